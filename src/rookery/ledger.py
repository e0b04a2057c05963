"""What crossed the network and what it cost to compute, counted by the federation itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

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


class Ledger:
    """One account per phase.

    >>> ledger = Ledger()
    >>> ledger.book(exchanges=1, floats_up=10)
    >>> ledger["train"].exchanges, ledger["setup"].exchanges
    (1, 0)
    """

    def __init__(self) -> None:
        self.accounts = {phase: Account() for phase in PHASES}
        self.current = "train"

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

    def book(self, calls: Counter[str] | None = None, **amounts: int) -> None:
        account = self.accounts[self.current]
        for name, amount in amounts.items():
            setattr(account, name, getattr(account, name) + amount)
        if calls:
            account.calls.update(calls)

    def to_json(self) -> dict[str, Any]:
        return {phase: {**vars(account), "calls": dict(account.calls)} for phase, account in self.accounts.items()}

    def load(self, saved: dict[str, Any]) -> None:
        for phase, counts in saved.items():
            self.accounts[phase] = Account(**{**counts, "calls": Counter(counts["calls"])})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ledger) and self.accounts == other.accounts

    __hash__ = None  # type: ignore[assignment]
