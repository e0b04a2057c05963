"""What crossed the network and what it cost to compute, counted by the federation itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

PHASES = ("setup", "train", "output", "evaluation")


@dataclass
class Account:
    """The counts of one phase. Floats and bytes are summed over clients; numbers in headers are not counted."""

    exchanges: int = 0
    floats_up: int = 0
    floats_down: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    samples: int = 0
    calls: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Line:
    """One value that crossed the network: to or from `clients` clients, `floats` numbers each."""

    direction: Literal["down", "up"]
    what: str  # the client function that first reads it, or that made it: one of several results with its place, as "step[0]"
    floats: int
    bytes: int
    clients: int
    exchange: int  # of the phase; what comes down before the first upload belongs to exchange 1


class Ledger:
    """What crossed the network and what it cost to compute, counted by the federation itself: `ledger[phase]` is an `Account`.

    The phases are `setup`, `train`, `output` and `evaluation`.

    >>> ledger = Ledger()
    >>> ledger.book(exchanges=1, floats_up=10)
    >>> ledger["train"].exchanges, ledger["setup"].exchanges
    (1, 0)
    """

    def __init__(self) -> None:
        self.accounts = {phase: Account() for phase in PHASES}
        self.current = "train"
        self.instead: str | None = None  # a phase that all bookings go to, see `redirected`
        self.lines: list[Line] | None = None  # single values, where somebody wants to see them

    def __getitem__(self, phase: str) -> Account:
        return self.accounts[phase]

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Inside, everything is booked under another phase."""
        if name not in self.accounts:
            raise KeyError(f"the phases are {', '.join(PHASES)}; {name!r} is not one of them")
        before, self.current = self.current, name
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def redirected(self, phase: str) -> Iterator[None]:
        """Inside, bookings go to `phase`, whatever phase they say."""
        before, self.instead = self.instead, phase
        try:
            yield
        finally:
            self.instead = before

    @contextmanager
    def recording(self) -> Iterator[list[Line]]:
        """Inside, single values are listed as they cross."""
        before, lines = self.lines, list[Line]()
        self.lines = lines
        try:
            yield lines
        finally:
            self.lines = before

    def cross(self, direction: Literal["down", "up"], what: str, floats: int, nbytes: int, clients: int) -> None:
        """Book one value at `clients` clients; an upload comes before its exchange is booked."""
        if self.lines is not None:
            self.lines.append(Line(direction, what, floats, nbytes, clients, self._account.exchanges + 1))
        account = self._account
        if direction == "down":
            account.floats_down, account.bytes_down = account.floats_down + floats * clients, account.bytes_down + nbytes * clients
        else:
            account.floats_up, account.bytes_up = account.floats_up + floats * clients, account.bytes_up + nbytes * clients

    @property
    def _account(self) -> Account:
        return self.accounts[self.instead or self.current]

    def book(self, calls: Counter[str] | None = None, phase: str | None = None, **amounts: int) -> None:
        """Book amounts under a phase, which is the current one unless another is named."""
        account = self._account if phase is None else self.accounts[self.instead or phase]
        for name, amount in amounts.items():
            setattr(account, name, getattr(account, name) + amount)
        if calls:
            account.calls.update(calls)

    def absorb(self, other: Ledger) -> None:
        """Book what another ledger holds, phase by phase, and empty that one.

        >>> ledger, other = Ledger(), Ledger()
        >>> other.book(exchanges=2)
        >>> ledger.absorb(other)
        >>> ledger["train"].exchanges, other["train"].exchanges
        (2, 0)
        """
        for phase, account in other.accounts.items():
            with self.phase(phase):
                self.book(account.calls, **{name: value for name, value in vars(account).items() if name != "calls"})
            other.accounts[phase] = Account()

    def to_json(self) -> dict[str, Any]:
        return {phase: {**vars(account), "calls": dict(account.calls)} for phase, account in self.accounts.items()}

    def load(self, saved: dict[str, Any]) -> None:
        for phase, counts in saved.items():
            self.accounts[phase] = Account(**{**counts, "calls": Counter(counts["calls"])})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ledger) and self.accounts == other.accounts

    __hash__ = None  # type: ignore[assignment]
