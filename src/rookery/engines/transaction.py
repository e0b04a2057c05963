"""One frame at work at a site: its operations are checked, run on a copy of what the site holds, and come to something as a whole."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Callable, Iterable, Set
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..errors import FrameError, RookeryError, StateLost, WriteError
from ..federation.ledger import PHASES
from ..federation.operations import Map
from ..federation.program import check_client_function, outputs
from ..problems.base import Problem
from .execute import run_one
from .frames import expect, natural, numbers
from .programs import Built, built
from .version import FROM_SERVER, Guard, Maker, Version

FILE = 4096  # bytes of a disk that a file takes at least
SERVERS = ("init", "round")  # methods of an algorithm that the server runs, not a client
AtClient = Callable[[int, int], None]
"""An operation at the client of a position in the frame, and of a number at the site."""


class Transaction:
    """Operations of the site (finish, save, load) come first in a frame; then each client's chain of functions runs as a whole."""

    def __init__(self, before: Version, tensors: dict[int, Tensor], clients: list[int], unfinished: Problem,
                 file: Callable[[str], Path], programs: Set[str], guard: Guard | None = None) -> None:
        self.clients, self.setting, self.unfinished, self.file, self.guard = clients, before.setting, unfinished, file, guard
        self.programs = programs  # those that are the same at the server
        self.shared = {**before.shared, **tensors}
        self.own = [dict(values) for values in before.own]
        self.makers = [dict(makers) for makers in before.makers]
        self.work: list[list[Any]] = []  # place of each map among the operations, oracle calls, samples, draws
        self.drawn: dict[tuple[int, str, int], int] = {}
        self.files: dict[Path, tuple[dict[str, Tensor], dict[str, Maker]]] = {}
        self.loaded: list[list[int]] = []

    def run(self, ops: list[Any]) -> None:
        chain: list[AtClient] = []
        for place, op in enumerate(ops):
            if not isinstance(op, dict):
                raise FrameError(f"an operation is an object; this is {op!r}")
            kind = op.get("op")
            if isinstance(kind, str) and kind in CLIENTS:
                chain.append(CLIENTS[kind](self, place, op))
            elif isinstance(kind, str) and kind in WHOLE:
                if chain:
                    raise FrameError(f"{kind!r} comes before the operations at clients")
                if self.guard is not None:
                    self.guard.operation(kind)
                WHOLE[kind](self, op)
            else:
                raise FrameError(f"unknown operation {kind!r}")
        if chain:
            with torch.no_grad():
                for position, client in enumerate(self.clients):
                    for each in chain:
                        each(position, client)

    def read(self, id: int, client: int) -> Tensor:
        value = self.own[client].get(id)
        if value is None and id not in self.shared:
            raise StateLost(f"value {id} is not at this site")
        return self.shared[id] if value is None else value

    def uploads(self, wants: list[int]) -> dict[int, Tensor]:
        """Values that leave: those of the first client, then those of the next."""
        sent = dict(enumerate(self.read(id, client) for client in self.clients for id in wants))
        if self.guard is not None:
            for maker in dict.fromkeys(self.makers[client].get(id) for client in self.clients for id in wants if id in self.own[client]):
                self.guard.leaves(maker)
        return sent

    def forget(self, ids: Iterable[int]) -> None:
        """Drop values that nobody will ask for."""
        ids = set(ids)
        for values in (self.shared, *self.own):
            for id in ids & values.keys():
                del values[id]
        for makers in self.makers:
            for id in ids & makers.keys():
                del makers[id]

    def write_files(self) -> None:
        for path, (tensors, makers) in self.files.items():
            part = path.with_suffix(".part")
            try:
                save_file(tensors, part, {"makers": json.dumps(makers)})
                part.replace(path)
            except (OSError, SafetensorError) as error:
                part.unlink(missing_ok=True)
                raise WriteError(f"{path.parent} could not be written ({getattr(error, 'strerror', None) or error})") from None

    # operations at clients

    def _map(self, place: int, op: dict[str, Any]) -> AtClient:
        fn, count = self._function(op.get("fn"))
        out, phase, call, known = numbers(op, "out"), expect(op, "phase", str), natural(op, "call"), natural(op, "known")
        times = self._times(op)
        arguments = [self._argument(a) for a in expect(op, "arguments", list)]
        if phase not in PHASES:
            raise FrameError(f"the phases are {', '.join(PHASES)}; got {phase!r}")
        if len(out) != count:
            raise FrameError(f"{fn.__qualname__} returns {count} values; the frame names {len(out)}")
        _fit(fn, len(arguments))
        if count > len(arguments) and any(number != 1 for number in times):
            raise FrameError(f"{fn.__qualname__} returns {count} values and takes {len(arguments)}; it cannot be repeated")
        if 0 in times and not all("ref" in note for note in op["arguments"][:count]):
            raise FrameError(f"{fn.__qualname__} runs no times at some client, and only values have results then; the frame has numbers")
        if self.guard is not None:
            self.guard.function(fn, sum(times))
        done: list[Any] = [place, Counter(), 0, 0]
        self.work.append(done)
        program = type(fn.__self__)
        makers = [(id, Maker(f"{program.__module__}.{program.__qualname__}", fn.__name__, k)) for k, id in enumerate(out)]

        def run(position: int, client: int) -> None:
            drawn = max(known, self.drawn.get((client, phase, call), 0))
            earlier = Map(fn, (), (), 1, phase, call, drawn=[drawn]) if drawn else None
            job = Map(fn, (), tuple(out), times[position], phase, call, earlier)
            own = [given(position, client) for given in arguments]
            results, work, _ = run_one(self.setting, job, client, times[position], own, None if self.guard is None else self.guard.drew)
            self.own[client].update(zip(out, results, strict=True))
            if times[position]:
                self.makers[client].update(makers)
            else:  # it did not run: these are its arguments, still of whoever made them
                self._keep_makers(client, op["arguments"], out)
            done[1].update(work.calls)
            done[2:] = [done[2] + work.samples, work.draws]
            self.drawn[client, phase, call] = work.draws

        return run

    def _take(self, place: int, op: dict[str, Any]) -> AtClient:
        """Whether a client must hold the source is the server's knowledge: one that lost it must not fall back on the default."""
        source, default, out, holders = natural(op, "source"), natural(op, "default"), natural(op, "out"), set(numbers(op, "holders"))
        if not holders <= set(range(len(self.clients))):
            raise FrameError(f"'holders' lists places among the {len(self.clients)} clients of the frame; it has {sorted(holders)}")

        return lambda position, client: self._copy(client, source if position in holders else default, out)

    def _put(self, place: int, op: dict[str, Any]) -> AtClient:
        pool, source = natural(op, "pool"), natural(op, "source")

        return lambda position, client: self._copy(client, source, pool)

    def _copy(self, client: int, source: int, to: int) -> None:
        """A client's value under another number, still of its maker; one of the server's is the client's own from here on."""
        own, makers, shared = self.own[client], self.makers[client], source not in self.own[client]
        own[to] = self.read(source, client)
        makers.pop(to, None)
        if shared:
            makers[to] = FROM_SERVER
        elif source in makers:
            makers[to] = makers[source]

    def _keep_makers(self, client: int, arguments: list[Any], out: list[int]) -> None:
        """Each value of `out` is an argument under another number."""
        before = dict(self.makers[client])
        for note, id in zip(arguments, out, strict=False):
            source = note["ref"]
            self.makers[client].pop(id, None)
            if source in before:
                self.makers[client][id] = before[source]
            elif source not in self.own[client]:
                self.makers[client][id] = FROM_SERVER

    def _times(self, op: dict[str, Any]) -> list[int]:
        times = op.get("times")
        if not isinstance(times, list):
            return [natural(op, "times")] * len(self.clients)
        if len(times) != len(self.clients):
            raise FrameError(f"'times' is one number, or one for each of the {len(self.clients)} clients; it has {len(times)}")
        return [natural({"times": number}, "times") for number in times]

    def _argument(self, note: Any) -> Callable[[int, int], Any]:
        match note:
            case {"ref": _}:
                id = natural(note, "ref")
                return lambda position, client: self.read(id, client)
            case {"each": list(each)} if len(each) == len(self.clients) and all(type(number) in (int, float, bool) for number in each):
                return lambda position, client: each[position]
            case {"value": value}:
                given = self._built(value).value
                return lambda position, client: given
        raise FrameError(f"an argument is a reference, a value, or a number for each of {len(self.clients)} clients; this is {note!r}")

    def _built(self, note: Any) -> Built:
        found = built(note)
        if strange := found.classes.keys() - self.programs:
            raise FrameError(f"program {min(strange)!r} came without the digest that says it is the same here")
        return found

    def _function(self, note: Any) -> tuple[MethodType, int]:
        """A client function, and how many values it returns."""
        match note:
            case [dict() as program, str(method)]:
                found = self._built(program)
            case _:
                raise FrameError(f"a function is [program, method]; this is {note!r}")
        owner, own = found.value, getattr(type(found.value), method, None)
        if method in found.functions and found.functions[method][0].__func__ is own:
            return found.functions[method]
        if method.startswith("_") or method in SERVERS or not isinstance(own, FunctionType):
            raise FrameError(f"{type(owner).__name__} has no client function {method!r}")
        try:
            fn = check_client_function(getattr(owner, method))
            found.functions[method] = fn, outputs(fn.__func__)[0]
        except RookeryError as error:
            raise FrameError(str(error)) from None
        return found.functions[method]

    # operations of the site as a whole

    def _finish(self, op: dict[str, Any]) -> None:
        finish, total = self.unfinished.finish, natural(op, "total")
        if finish is None:
            raise FrameError("this site's problem takes no constants")
        if total not in self.shared:
            raise FrameError(f"the constants are value {total}, which did not come with the frame")
        constants = self.shared.pop(total)
        self.setting = replace(self.setting, problem=finish(constants), constants=constants, checked=set())

    def _save(self, op: dict[str, Any]) -> None:
        ids = numbers(op, "ids")
        held = {f"{client}.{id}": values[id].clone() for client, values in enumerate(self.own) for id in ids if id in values}
        makers = {f"{client}.{id}": found[id] for client, found in enumerate(self.makers) for id in ids if id in found}
        if self.guard is not None:
            self.guard.moved(FILE + sum(value.nbytes for value in held.values()))
        self.files[self.file(expect(op, "tag", str))] = {**held, "empty": torch.zeros(0)}, makers

    def _load(self, op: dict[str, Any]) -> None:
        tag, pairs = expect(op, "tag", str), expect(op, "ids", list)
        if not all(isinstance(pair, list) and [type(n) for n in pair] == [int, int] for pair in pairs):
            raise FrameError(f"values are loaded as [saved number, new number]; got {pairs!r}")
        try:
            with safe_open(self.file(tag), "pt") as file:
                held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                makers = {name: Maker(*maker) for name, maker in json.loads((file.metadata() or {}).get("makers", "{}")).items()}
        except FileNotFoundError:
            raise StateLost(f"state lost: no checkpoint {tag!r} at this site") from None
        except (SafetensorError, ValueError, TypeError) as error:
            raise StateLost(f"state lost: the checkpoint {tag!r} at this site is damaged ({error})") from None
        for client, values in enumerate(self.own):
            found = {new: f"{client}.{old}" for old, new in pairs if f"{client}.{old}" in held}
            values.update({new: held[name] for new, name in found.items()})
            kept = {id: maker for id, maker in self.makers[client].items() if id not in found}
            self.makers[client] = kept | {new: makers[name] for new, name in found.items() if name in makers}
            self.loaded += [[client, new] for new in found]


def _fit(fn: MethodType, number: int) -> None:
    """Refuse a number of arguments, after the client, that a function does not take."""
    fewest, most = _arity(fn.__func__)
    if not fewest <= number <= most:
        try:
            inspect.signature(fn).bind(None, *[None] * number)
        except TypeError as error:
            raise FrameError(f"{fn.__qualname__}: {error}") from None


@lru_cache(maxsize=4096)
def _arity(function: Callable[..., Any]) -> tuple[int, float]:
    """The fewest and the most arguments that a function takes after itself and the client; none is between where that is not plain."""
    own = list(inspect.signature(function).parameters.values())[2:]
    if any(one.kind is not one.POSITIONAL_OR_KEYWORD for one in own):
        return len(own) + 1, 0
    return sum(one.default is one.empty for one in own), len(own)


CLIENTS = {"map": Transaction._map, "take": Transaction._take, "put": Transaction._put}
WHOLE = {"finish": Transaction._finish, "save": Transaction._save, "load": Transaction._load}


def booked(header: dict[str, Any]) -> list[tuple[int, Counter[str], int, int]]:
    """The work a reply reports, checked."""
    out = []
    for entry in expect(header, "work", list):
        match entry:
            case [int(place), dict(calls), int(samples), int(draws)] if min(place, samples, draws) >= 0 and all(
                    type(n) is int and n >= 0 for n in calls.values()):
                out.append((place, Counter(calls), samples, draws))
            case _:
                raise FrameError(f"work is reported as [place, oracle calls, samples, draws]; this is {entry!r}")
    return out
