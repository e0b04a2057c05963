"""The engine whose clients are elsewhere: it sends frames to sites over a transport, and knows what each of them holds."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import Away, EngineError, FrameError, StateLost, UploadError
from ..federation.client import Setting
from ..federation.operations import Flush, Index, Map, Op, Put
from ..federation.reducer import Reducer, Work
from .frames import Buffer, expect, natural, numbers, pack, unpack
from .memory import keep_large_blocks
from .places import Asked, Frames, Place, error_of, in_words
from .programs import digest_of
from .roster import Roster, hello, roster, welcome_of
from .transaction import booked
from .transport import Transport

TRIES = 3
SECONDS = 60.0
PAUSE = 0.5  # seconds between two looks at a site where nobody listens
ROLL = 2.0  # seconds that a site has to say that it is there
LOG = logging.getLogger(__name__)
AWAY = "clients away"  # in a checkpoint: those whose sites have not kept their part of it
FINISH = 0  # the number under which the constants of `prepare` travel
Reply = tuple[dict[str, Any], dict[int, Tensor]]


class Remote:
    """Clients at sites that a transport reaches.

    transport:  carries frames to sites by their names
    seconds:    until when a site must have answered a frame; a frame without an answer is sent `tries` times

    A flush is one exchange with all sites of its cohort at once. Where it fails, at whichever site and for whatever reason, nothing has
    changed: the next frame builds on what was before it. `frame_bytes` counts what really crossed.
    """

    name = "remote"
    folder: Path | None = None

    def __init__(self, transport: Transport | None = None, *, seconds: float = SECONDS, tries: int = TRIES, run: str | None = None) -> None:
        self.seconds, self.tries, self.run = seconds, tries, run or uuid.uuid4().hex
        self.transport = transport
        self.places: list[Place] = []
        self.greeted: list[Place] = []
        self.said: dict[str, Any] = {}
        self.last: tuple[Index, list[tuple[Place, list[int], list[int]]]] | None = None
        self.frame_bytes = 0
        self.down, self.ends = False, 0.0  # whether nobody listened at a site, and until when it might have answered

    def bind(self, setting: Setting) -> None:
        keep_large_blocks()
        self.constants, self.clients = setting.constants, setting.data.names
        if not self.places:
            self.connect(setting)
            self.of = {client: place for place in self.places for client in place.clients}
        elif setting.constants is not None:
            self._everyone([{"op": "finish", "total": FINISH}], {FINISH: setting.constants})
        else:
            raise EngineError("a remote site holds its own problem; it changes only through fed.prepare(x)")

    def greet(self, sites: Sequence[str], problem: dict[str, Any], *, seed: int = 0, precision: torch.dtype | None = None,
              min_batch: int = 1) -> Roster:
        """Begin a run with these sites, or go on with it: who their clients are, as data without rows, for a federation on this engine.

        problem: what each site makes its own problem of, in words
        """
        assert self.transport is not None
        self.said = hello(problem, seed, precision, min_batch)
        frame, replies = pack({"run": self.run, "hello": self.said}, {}), dict[str, bytes | Exception]()
        for _ in range(self.tries):
            if missing := [site for site in sites if isinstance(replies.get(site, TimeoutError()), Exception)]:
                replies |= self.transport.exchange(dict.fromkeys(missing, frame), self.seconds)
        welcomes = [welcome_of(site, replies[site]) for site in sites]
        found, first, self.greeted = roster(welcomes), 0, []
        for welcome in welcomes:
            clients = list(range(first, first + len(welcome.clients)))
            self.greeted.append(Place(welcome.site, clients, sent=welcome.counter))
            first += len(clients)
        return found

    def connect(self, setting: Setting) -> None:
        """The sites are those that were greeted, with what was said to them."""
        own = hello(self.said.get("problem", {}), setting.seed, setting.precision, setting.min_batch)
        if not self.greeted or self.said != own:
            raise EngineError("greet the sites first, with the seed, precision and min_batch of the federation, and make it with the "
                              "roster that this gives")
        self.places = self.greeted

    def flush(self, flush: Flush, reducer: Reducer) -> None:
        wants = list(dict.fromkeys(flush.wants))
        made = {id for op in flush.ops for id in op.out} | {op.pool for op in flush.ops if isinstance(op, Put)}
        asked: list[Asked] = []
        buffers: dict[tuple[int, ...], Buffer] = {}
        frames, described = Frames(), [in_words(op) for op in flush.ops]
        named = set[str]().union(*(programs for _, programs in described))
        sites = self._sites(flush.cohort)
        for place, positions, clients in sites:
            values = {id: value for id, value in flush.values.items() if id not in place.shared}
            buffer = buffers.get(tuple(values))  # most sites are sent the same
            if buffer is None:
                buffer = buffers[tuple(values)] = Buffer(values)
            free = (place.late | flush.free) & (place.held | values.keys() | made)
            held = [place.own.get(client, set()) for client in clients]
            ops = [words(positions, held) for words, _ in described]
            programs = named - place.programs
            frame = frames.made(self._header(place, clients, ops, wants, free, programs), buffer)
            asked.append(Asked(place, frame, clients, len(wants), set(values), made, free, programs))
        replies = self._ask(asked)
        for one in asked:
            self._book(one, replies[one.place.name][0], flush.ops, reducer)
        if flush.wants:
            rows = {position: (place.name, row) for place, positions, _ in sites for row, position in enumerate(positions)}
            for position in range(len(flush.cohort)):
                name, row = rows[position]
                uploads = replies[name][1]
                reducer.add(position, [uploads[row * len(wants) + wants.index(id)] for id in flush.wants])
        self._commit(asked)  # from here on nothing can fail
        for place in self.places:
            place.late |= flush.free & place.held

    def _sites(self, cohort: Index) -> list[tuple[Place, list[int], list[int]]]:
        """The sites of a cohort, each with the positions in it of the site's clients, and with these; those of the last one are kept."""
        if self.last is None or self.last[0] is not cohort:
            found: dict[str, tuple[list[int], list[int]]] = {}
            for position, client in enumerate(cohort.tolist()):
                positions, clients = found.setdefault(self.of[client].name, ([], []))
                positions.append(position)
                clients.append(client)
            self.last = cohort, [(place, *found[place.name]) for place in self.places if place.name in found]
        return self.last[1]

    def _header(self, place: Place, clients: list[int], ops: list[Any], wants: Sequence[int], free: Iterable[int],
                programs: Iterable[str] = ()) -> dict[str, Any]:
        place.sent += 1
        return {"run": self.run, "k": place.sent, "base": place.base, "programs": {name: digest_of(name) for name in sorted(programs)},
                "clients": [place.rows[client] for client in clients], "ops": ops, "want": list(wants), "free": sorted(free),
                "forget": list(place.tags)}

    def _ask(self, asked: Sequence[Asked]) -> dict[str, Reply]:
        """All replies, or an error that names a site. A frame that got none, or a damaged one, is sent again: a site executes it once."""
        out: dict[str, Reply] = {}
        missing = {one.place.name: one for one in asked}
        trouble: dict[str, Exception] = {}
        self.ends = time.monotonic() + self.tries * self.seconds
        for _ in range(self.tries):
            frames = {name: one.frame for name, one in missing.items()}
            assert self.transport is not None
            for name, reply in self.transport.exchange(frames, self.seconds).items():
                self.frame_bytes += len(frames[name]) + (0 if isinstance(reply, Exception) else len(reply))
                try:
                    if isinstance(reply, Exception):
                        raise reply
                    out[name] = unpack(reply, finite=False)  # the reducer refuses non-finite uploads, by name
                except Exception as error:  # a transport has errors of its own
                    trouble[name] = error
            missing = {name: one for name, one in missing.items() if name not in out}
            if not missing:
                break
        for one in asked:
            one.place.missed = one.place.name in missing
        self.down = any(isinstance(trouble.get(name), ConnectionError) for name in missing)
        for one in missing.values():
            away = Away(one.place.name, f"{trouble.get(one.place.name, 'no reply')}, {self.tries} times over")
            away.clients = tuple(self.clients[client] for client in one.place.clients)
            raise away
        for one in asked:
            one.check(self.run, *out[one.place.name])
        return out

    def _commit(self, asked: Sequence[Asked]) -> None:
        for one in asked:
            place = one.place
            place.base, place.late, place.tags = place.sent, set(), []
            place.programs |= one.programs
            place.shared = (place.shared | one.shared) - one.free
            for client in one.clients:
                place.own.setdefault(client, set()).update(one.made)
            for own in place.own.values():
                own -= one.free

    def _book(self, one: Asked, header: dict[str, Any], ops: Sequence[Op], reducer: Reducer) -> None:
        name = one.place.name
        try:
            reported = booked(header)
        except FrameError as error:
            raise UploadError(name, str(error)) from None
        for place, calls, samples, draws in reported:
            op = ops[place] if place < len(ops) else None
            if not isinstance(op, Map):
                raise UploadError(name, f"it reports work on operation {place}, which is no function that it was asked to run")
            reducer.work(op, Work(calls, samples, draws))

    # checkpoints

    def save(self, tag: str, ids: Sequence[int]) -> dict[str, Tensor]:
        """Every site keeps these values under `tag`, in its own folder; none comes to the server."""
        if not ids:
            return {}
        self._everyone([{"op": "save", "tag": tag, "ids": list(ids)}], {}, [place for place in self.places if not place.missed])
        for place in self.places:
            place.saved = not place.missed
        away = [client for place in self.places if place.missed for client in place.clients]
        return {AWAY: torch.tensor(away)} if away else {}

    def load(self, tag: str, ids: Mapping[int, int], tensors: Mapping[str, Tensor]) -> set[str]:
        """Every site takes these values, under new numbers, from what it kept under `tag`; those that were away then stay away."""
        away = {*tensors[AWAY].tolist()} if ids and AWAY in tensors else set[int]()
        for place in self.places:
            place.lost = bool(away & {*place.clients})
            place.missed, place.saved = place.lost, not place.lost
            if place.lost:
                place.own = {}
                LOG.warning("site %s was away when the checkpoint was made, and nobody has what its clients had made: the run goes on "
                            "without it", place.name)
        there = [place for place in self.places if not place.lost]
        replies = self._everyone([{"op": "load", "tag": tag, "ids": [list(pair) for pair in ids.items()]}], {}, there) if ids else {}
        for place in [place for place in self.places if place.name in replies]:
            for entry in expect(replies[place.name][0], "loaded", list):
                match entry:
                    case [int(client), int(id)] if 0 <= client < len(place.clients):
                        place.own.setdefault(place.clients[client], set()).add(id)
                    case _:
                        raise UploadError(place.name, f"what it loaded is told as [client, number]; it sent {entry!r}")
        return {self.clients[client] for client in away}

    def forget(self, tags: Sequence[str]) -> None:
        """Checkpoints that nobody will load: sites are told with the next frame that goes there."""
        for place in self.places:
            place.tags += tags

    def roll_call(self, away: set[str]) -> set[str]:
        """Ask every site whether it is there, and what it holds.

        One that was restarted begins anew, with the constants of the problem, if nothing that it made is still in use. One that was away,
        whose part of it no checkpoint has, stays away.
        """
        assert self.transport is not None
        frame = pack({"run": self.run, "roll": True}, {})
        replies = self.transport.exchange({place.name: frame for place in self.places}, min(self.seconds, ROLL))
        for place in self.places:
            reply, place.missed = replies[place.name], True
            if isinstance(reply, Exception) or place.lost:
                continue
            try:
                header, _ = unpack(reply)
                if "error" in header:
                    raise FrameError(str(error_of(header["error"], place.name, place.name)))
                counter, holds = natural(header, "counter"), numbers(header, "holds")
            except FrameError as error:
                LOG.warning("site %s: %s", place.name, error)
                continue
            place.missed, place.sent = False, max(place.sent, counter)
            if place.base != 0 and place.base not in holds:
                lost = set().union(*place.own.values()) - place.late
                if lost and not place.saved and away & {self.clients[client] for client in place.clients}:
                    place.lost = place.missed = True
                    LOG.warning("site %s is back without %d of the values that the run counts on, and no checkpoint has them: the run goes "
                                "on without it", place.name, len(lost))
                    continue
                place.base, place.shared, place.own, place.late, place.programs = 0, set(), {}, set(), set()
                if self.constants is not None:
                    self._everyone([{"op": "finish", "total": FINISH}], {FINISH: self.constants}, [place])
                if lost:
                    raise StateLost(f"site {place.name!r} has come back without {len(lost)} of the values that the run counts on")
        return {self.clients[client] for place in self.places if place.missed for client in place.clients}

    def wait(self, away: set[str], gone: set[str], most: int) -> set[str]:
        """Wait for sites where nobody listens, as long as they may take to answer."""
        lost, rest = None, self.ends - time.monotonic()
        if self.down and rest > 0:
            LOG.warning("waiting for %s, where nobody answers, %.0f s at most", ", ".join(sorted(gone)), rest)
        while self.down and len(gone) > most and (rest := self.ends - time.monotonic()) > 0:
            time.sleep(min(PAUSE, rest))
            try:
                gone = self.roll_call(away)
            except StateLost as error:  # others may be on their way, and the run goes back to its checkpoint once
                lost = error
        if lost is not None:
            raise lost
        return gone

    def _everyone(self, ops: list[Any], values: dict[int, Tensor], places: Sequence[Place] | None = None) -> dict[str, Reply]:
        """Operations of the sites as a whole, or of some; constants are not kept among the values."""
        asked, frames, buffer = [], Frames(), Buffer(values)
        for place in self.places if places is None else places:
            free = place.late & place.held
            asked.append(Asked(place, frames.made(self._header(place, [], ops, [], free), buffer), [], free=free))
        replies = self._ask(asked)
        self._commit(asked)
        return replies
