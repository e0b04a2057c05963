"""Rows of two kinds, told apart by the field `validation`: batches that hold both, and a share of each client's rows that is marked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..data.batch import different
from ..data.columns import Form
from ..data.sampling import Draw, Request, Selection, Stratified
from ..data.store import Batch, Data
from ..errors import ConfigError, DataError
from .given import Column, Entry


class TrainValBatch(Batch):
    """A draw that knows its rows' kinds: the first `front` rows are validation rows, or, in a full batch (None), some are."""

    __slots__ = ("front",)

    def __init__(self, batch: Batch, front: int | None) -> None:
        super().__init__(batch.fields, batch.index, None, batch.key)
        self.front = front

    def rebuild(self, leaves: list[Tensor]) -> Batch:
        return TrainValBatch(super().rebuild(leaves), self.front)

    def _fewest(self, clients: int = 1) -> Tensor:
        """Each loss is a mean of the rows of one kind."""
        if self.front is None or self.index is None:
            outside = (self.validation > 0).reshape(clients, -1).sum(-1)
            return torch.minimum(outside, self.validation.shape[-1] - outside)
        front, rest = (different(part.reshape(clients, 1, -1)) for part in (self.index[..., :self.front], self.index[..., self.front:]))
        return torch.minimum(front, rest)


@dataclass(frozen=True, repr=False)
class TrainValSampler(Stratified):
    """Batches with both kinds of rows, the validation rows first; full batches as they are."""

    counted: ClassVar[bool] = True
    label: str = "validation"
    positives: int = 0  # of a batch; 0: there are full batches only

    def select(self, draw: Draw, request: Request) -> Selection:
        _marked(draw.data.forms())
        for client in draw.clients:
            _both_kinds(draw.data.column("validation", int(client)), f"client {draw.data.names[client]!r}")
        if request.outer is None:
            return super().select(draw, request)
        if not self.positives:
            raise DataError(f"a batch of {request.outer} would hold a random number of validation rows, and means over them be biased: "
                            'give the objective sampling=Stratified("validation", n), or the algorithm batch=None')
        return {**super().select(draw, request), "sorted": torch.ones(len(draw.clients), len(draw.steps))}

    def fetch(self, data: Data, selection: Selection) -> Batch:
        return TrainValBatch(super().fetch(data, selection), self.positives if "sorted" in selection else None)

    def whole(self, fields: dict[str, Tensor]) -> Batch:
        _marked({name: Form(tuple(field.shape[1:]), field.dtype) for name, field in fields.items()})
        _both_kinds(fields["validation"], "it")
        return TrainValBatch(super().whole(fields), None)


def _marked(forms: dict[str, Form]) -> None:
    if "validation" not in forms:
        raise DataError("a bilevel objective tells its rows apart by the field `validation`, 1 for the outer loss and 0 for the inner one; "
                        f"there are {sorted(forms)}")
    if forms["validation"].shape:
        raise DataError(f"the field `validation` holds one number a row; it has rows of shape {forms['validation'].shape}")


def _both_kinds(validation: Tensor, who: str) -> None:
    outside = int((validation > 0).sum())
    inside = len(validation) - outside
    if not (outside and inside):
        raise DataError(f"{who} has {outside} validation and {inside} training rows, and every client of a bilevel objective needs both: "
                        "mark some of its rows, or leave it out")


def mark(data: Data, entries: Mapping[str, Any], seed: int) -> Tensor:
    """1 for a share of each client's rows, of every class alike; at least one is marked, and at least one is not.

    Which rows depends on the seed and the client's name, not on other clients.
    """
    share = entries["validation_share"]
    if not 0 < share < 1:
        raise ConfigError(f"objective.validation_share is the share of its training rows that each client marks for the outer loss, "
                          f"between 0 and 1; got {share}")
    if int(data.sizes.min()) < 2:
        raise ConfigError(f"client {data.names[int(data.sizes.argmin())]!r} has a single training row, and a bilevel objective needs one "
                          "for each of its two losses: merge it with another client, or leave it out")
    marked = np.zeros(int(data.sizes.sum()), dtype=np.int64)
    labels = data.fields["labels"].cpu().numpy()
    for key, first, size in zip(data.client_keys, data.offsets, data.sizes, strict=True):
        r = np.random.default_rng([seed, int(key), 1])  # another stream than that of the rows held out
        order = first + np.lexsort((r.random(size), labels[first : first + size]))
        places = np.diff(np.floor(np.arange(size + 1) * share + r.random())) > 0
        if places.all() or not places.any():
            places[r.integers(size)] ^= True
        marked[order[places]] = 1
    return torch.from_numpy(marked)


def _both_in_a_batch(data: Data, batch: int) -> Stratified:
    """As many validation rows in a batch as their share of all rows says."""
    if batch < 2:
        raise ConfigError(f"a batch of a bilevel objective holds rows for the inner and for the outer loss, so at least 2; "
                          f"algorithm.batch is {batch}")
    share = float((data.fields["validation"] > 0).double().mean())
    return Stratified("validation", min(max(round(share * batch), 1), batch - 1))


VALIDATION = Column("validation", "1 for the rows of the outer loss, 0 for those of the inner one. Where the rows have no such column, "
                    "each client marks validation_share of its training rows; batches then hold both kinds in that share",
                    mark, {"validation_share": Entry(float, 0.25)}, _both_in_a_batch)
