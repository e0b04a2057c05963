"""The store that engines in this process share: values placed at clients, and the population's sparse state."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import PlacementError
from ..federation.client import Setting
from ..federation.operations import Flush, Index, Put, Take
from ..federation.reducer import Reducer
from .memory import keep_large_blocks

BLOCK_ROWS = 1024
MEMORY_LIMIT = 4 << 30  # bytes of population state kept in memory; beyond it, blocks are memory-mapped files


class Pool:
    """Rows of state for a population of which only some have ever been seen.

    Rows live in blocks that are never moved, so growing costs no copy; past a limit new blocks are memory-mapped.
    """

    def __init__(self, population: int, limit: int = MEMORY_LIMIT) -> None:
        self.place = np.full(population, -1, dtype=np.int32)
        self.blocks: list[Tensor] = []
        self.used, self.limit = 0, limit

    def seen(self, clients: Index) -> np.ndarray[Any, np.dtype[np.bool_]]:
        return np.asarray(self.place[clients] >= 0)

    def write(self, clients: Index, rows: Sequence[Tensor] | Tensor) -> None:
        fresh = clients[self.place[clients] < 0]
        self.place[fresh] = np.arange(self.used, self.used + len(fresh))
        self.used += len(fresh)
        while len(self.blocks) * BLOCK_ROWS < self.used:
            self.blocks.append(self._block(rows[0]))
        for block, here, where in self._split(clients):
            self.blocks[block][where] = rows[here] if isinstance(rows, Tensor) else torch.stack([rows[int(i)] for i in here])

    def read(self, clients: Index) -> Tensor:
        first = self.blocks[0]
        out = first.new_empty((len(clients), *first.shape[1:]))
        for block, here, where in self._split(clients):
            out[here] = self.blocks[block][where]
        return out

    def _split(self, clients: Index) -> list[tuple[int, Tensor, Tensor]]:
        place = self.place[clients]
        block = place // BLOCK_ROWS
        return [(int(b), torch.from_numpy(np.flatnonzero(block == b)), torch.from_numpy((place[block == b] % BLOCK_ROWS).astype(np.int64)))
                for b in np.unique(block)]

    def _block(self, like: Tensor) -> Tensor:
        shape, size = (BLOCK_ROWS, *like.shape), BLOCK_ROWS * like.numel() * like.element_size()
        if (len(self.blocks) + 1) * size <= self.limit:
            return like.new_empty(shape)
        with tempfile.NamedTemporaryFile(prefix="rookery-state-") as file:  # the mapping keeps the pages after the name is gone
            file.truncate(size)
            return torch.from_file(file.name, shared=True, size=BLOCK_ROWS * like.numel(), dtype=like.dtype).reshape(shape)


def shapes_of(rows: Sequence[Tensor] | Tensor) -> set[torch.Size]:
    """The shapes of some clients' values."""
    return {rows.shape[1:]} if isinstance(rows, Tensor) else {row.shape for row in rows}


class LoosePool:
    """Rows of state that differ in shape from client to client, such as a number for each of a client's rows; one tensor each."""

    def __init__(self, population: int) -> None:
        self.place = np.full(population, -1, dtype=np.int32)
        self.rows: dict[int, Tensor] = {}

    def seen(self, clients: Index) -> np.ndarray[Any, np.dtype[np.bool_]]:
        return np.asarray(self.place[clients] >= 0)

    def write(self, clients: Index, rows: Sequence[Tensor] | Tensor) -> None:
        self.place[clients] = 0
        self.rows.update({int(client): row.clone() for client, row in zip(clients, rows, strict=True)})

    def read(self, clients: Index) -> list[Tensor]:
        return [self.rows[int(client)] for client in clients]


class LocalEngine:
    """Placed values as one sequence of tensors per handle (a list, or a stack with a row per client)."""

    name = "local"
    folder: Path | None = None

    def bind(self, setting: Setting) -> None:
        keep_large_blocks()
        self.setting = setting
        self.store: dict[int, tuple[Index, Sequence[Tensor] | Tensor]] = getattr(self, "store", {})
        self.pools: dict[int, Pool | LoosePool] = getattr(self, "pools", {})

    def flush(self, flush: Flush, reducer: Reducer) -> None:
        raise NotImplementedError

    # what operations read and leave

    def _read(self, flush: Flush, id: int, position: int) -> Tensor:
        if id in flush.values:
            return flush.values[id]
        return self._held(flush, id)[position]

    def _held(self, flush: Flush, id: int) -> Sequence[Tensor] | Tensor:
        cohort, rows = self.store[id]
        if cohort is not flush.cohort and not np.array_equal(cohort, flush.cohort):
            raise PlacementError("a value at one cohort was used at another; write S.take(value, default) first")
        return rows

    def _holders(self, flush: Flush, op: Take) -> tuple[Index, Sequence[Tensor] | Tensor]:
        """Positions in the cohort that hold the source of a take (another cohort's value, or the population's), and their rows."""
        if op.source in self.pools:
            pool = self.pools[op.source]
            positions = np.flatnonzero(pool.seen(flush.cohort))
            return positions, pool.read(flush.cohort[positions]) if len(positions) else []
        cohort, rows = self.store[op.source]
        _, positions, places = np.intersect1d(flush.cohort, cohort, assume_unique=True, return_indices=True)
        return positions, rows[torch.from_numpy(places)] if isinstance(rows, Tensor) else [rows[i] for i in places]

    def _put(self, flush: Flush, op: Put, rows: Sequence[Tensor] | Tensor) -> None:
        self._write(op.pool, flush.cohort, rows)

    def _write(self, pool: int, clients: Index, rows: Sequence[Tensor] | Tensor) -> None:
        population, known = len(self.setting.data.names), self.pools.get(pool)
        shapes = shapes_of(rows) | ({known.blocks[0].shape[1:]} if isinstance(known, Pool) and known.blocks else set())
        if len(shapes) > 1 and not isinstance(known, LoosePool):
            loose = self.pools[pool] = LoosePool(population)
            if known is not None:
                before = np.flatnonzero(known.place >= 0)
                loose.write(before, known.read(before))
        elif known is None:
            self.pools[pool] = Pool(population)
        self.pools[pool].write(clients, rows)

    def _free(self, flush: Flush) -> None:
        for id in flush.free:
            self.store.pop(id, None)
            self.pools.pop(id, None)

    # checkpoints

    def save(self, tag: str, ids: Sequence[int]) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for id in ids:
            if id in self.pools:
                clients = np.flatnonzero(self.pools[id].place >= 0)
                rows = list(self.pools[id].read(clients)) if len(clients) else []
            else:
                clients, rows = self.store[id][0], list(self.store[id][1])
            found[f"{id}.clients"] = torch.tensor(clients)  # a copy: values of one cohort share their index
            kind = "pool" if id in self.pools else "rows"
            if len(shapes_of(rows)) > 1:  # of unequal lengths: one after the other
                found[f"{id}.lengths"] = torch.tensor([len(row) for row in rows])
                found[f"{id}.{kind}"] = torch.cat(rows)
            else:
                found[f"{id}.{kind}"] = torch.stack([r.contiguous() for r in rows]) if rows else torch.zeros(0)
        return found

    def forget(self, tags: Sequence[str]) -> None:
        """What was saved is in the caller's file."""

    def roll_call(self, away: set[str]) -> set[str]:
        """Nobody comes back by themselves: who is away in a simulation was sent away."""
        return away

    def wait(self, away: set[str], gone: set[str], most: int) -> set[str]:
        return gone

    def load(self, tag: str, ids: Mapping[int, int], tensors: Mapping[str, Tensor]) -> set[str]:
        for old, new in ids.items():
            clients, kind = tensors[f"{old}.clients"].numpy(), "pool" if f"{old}.pool" in tensors else "rows"
            saved, lengths = tensors[f"{old}.{kind}"], tensors.get(f"{old}.lengths")
            # in memory of its own: products may round by where their factors lie
            parts = saved if lengths is None else torch.split(saved, lengths.tolist())
            rows = [row.to(self.setting.data.device, copy=True) for row in parts]
            if kind == "rows":
                self.store[new] = (clients, rows)
            elif len(clients):
                self._write(new, clients, rows)
            else:
                self.pools[new] = Pool(len(self.setting.data.names))
        return set()
