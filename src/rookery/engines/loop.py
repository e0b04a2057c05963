"""The plain engine: client after client, operation after operation. The reference, and the fast one for large nets."""

from __future__ import annotations

import torch
from torch import Tensor

from ..federation.operations import Flush, Map, Put, Take
from ..federation.reducer import Reducer
from .execute import run_one
from .local import LocalEngine
from .rowsums import row_sums


class Loop(LocalEngine):
    """Runs one client's whole chain of pending operations before the next client's, so nothing is stacked that nobody keeps."""

    name = "loop"

    @torch.no_grad()
    def flush(self, flush: Flush, reducer: Reducer) -> None:
        if row_sums(self.setting, flush, reducer):
            self._free(flush)
            return
        held = {op.out[0]: dict(zip(*self._holders(flush, op), strict=True)) for op in flush.ops if isinstance(op, Take)}
        kept: dict[int, list[Tensor]] = {}
        stored: dict[int, list[Tensor]] = {place: [] for place, op in enumerate(flush.ops) if isinstance(op, Put)}
        for position, client in enumerate(flush.cohort):
            local: dict[int, Tensor] = {}

            def read(id: int, local: dict[int, Tensor] = local, position: int = position) -> Tensor:
                return local[id] if id in local else self._read(flush, id, position)

            for place, op in enumerate(flush.ops):
                if isinstance(op, Map):
                    out, work, _ = run_one(self.setting, op, int(client), op.times_of(position), op.arguments_of(position, read))
                    local.update(zip(op.out, out, strict=True))
                    reducer.work(op, work)
                elif isinstance(op, Take):
                    holders = held[op.out[0]]
                    local[op.out[0]] = holders[position] if position in holders else read(op.default)
                else:
                    stored[place].append(read(op.source))
            if flush.wants:
                reducer.add(position, [read(id) for id in flush.wants])
            for id in flush.keep & local.keys():
                kept.setdefault(id, []).append(local[id])
        for place, op in enumerate(flush.ops):
            if isinstance(op, Put):
                self._put(flush, op, stored[place])
        for id, rows in kept.items():
            self.store[id] = (flush.cohort, rows)
        self._free(flush)
