"""Draws for objectives over the positives of a client: a few positives, and one set of rows to compare each of them with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import DataError
from .draws import Brief, Draw, Request, Selection, everything
from .store import Batch, Data


def positive_counts(data: Data, label: str = "labels", clients: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """The rows with `label` > 0 at each client. As `Federation(weights=positive_counts(data))` every positive counts the same.

    >>> positive_counts(Data.from_parts({"a": {"labels": [1, 0, 1]}, "b": {"labels": [0]}})).tolist()
    [2, 0]
    """
    groups = data.groups(label)
    chosen = np.arange(len(data.names)) if clients is None else clients
    return np.asarray([int(groups.size[f : f + c][groups.value[f : f + c] > 0].sum())
                       for f, c in zip(groups.first[chosen], groups.number[chosen], strict=True)], dtype=np.int64)


@dataclass(frozen=True, repr=False)
class Positives(Brief):
    """Outer samples: positives (`label` > 0) of the client. Inner samples: rows of the same client, one set for all outer ones.

    Inner fields have shape (1, m, …). With `enrich=k` every inner set has k positives and m − k negatives, for rare positives; the
    inner field `importance` then has share·m/k and (1 − share)·m/(m − k), so that means over the set estimate means over the
    client's rows. `reweight=False` leaves it out: the inner means are those of a client with a share k/m of positives. With
    `inner="negatives"` the inner samples are rows with `label` ≤ 0 only; a client that has none draws positives, and the objective tells.
    With `among=True` the outer samples are the first of the inner set's k positives, so that a batch is one set of m rows and each of its
    positives is compared with itself too.

    A client without positives draws other rows as outer samples; the objective tells by their label. Where one class is missing, its
    places in an enriched set go to the other one, with importance 0. Without sizes all rows are both outer and inner samples,
    and an objective over negatives leaves the positives among them out.
    """

    LATER: ClassVar[tuple[str, ...]] = ("inner", "among")
    label: str = "labels"
    enrich: int | None = None
    reweight: bool = True
    inner: Literal["all", "negatives"] = "all"
    among: bool = False

    def __post_init__(self) -> None:
        if self.inner not in ("all", "negatives"):
            raise DataError(f'inner is "all" or "negatives", the rows that inner samples are drawn from; got {self.inner!r}')
        if self.inner == "negatives" and self.enrich is not None:
            raise DataError(f'inner sets of negatives hold no positives; got enrich={self.enrich}: leave it out, or write inner="all"')
        if self.among and self.enrich is None:
            raise DataError("among=True takes the outer samples from the positives of the inner set: say how many it has, as in enrich=3")

    @property
    def together(self) -> bool:
        """Whether a draw has its outer samples beside one set of inner ones; else they are in it."""
        return not self.among

    def select(self, draw: Draw, request: Request) -> Selection:
        if (request.outer is None) != (request.inner is None):
            raise DataError(f"Positives needs both sizes, outer and inner, or neither for all rows; got {request}")
        if request.outer is None or request.inner is None:
            rows = inner = everything(draw)
            selection: Selection = {}
        else:
            positive = positive_counts(draw.data, self.label, draw.clients)[:, None, None]
            negative = draw.column(draw.data.sizes) - positive
            draw.refuse_few(self.label, positive, negative)
            # rows of a client are sorted by label in `order`: negatives first
            inner, selection = self._inner(draw.beside(), request.inner, positive, negative)
            if self.among:
                rows = self._first(inner, request.outer)
            else:
                rows = self._rows(draw, draw.choose(request.outer, np.where(positive > 0, positive, negative)) + negative * (positive > 0))
        start = draw.column(draw.data.offsets)
        return selection | {name: torch.from_numpy(value) for name, value in {
            "rows": start + rows, "index": rows, "innerrows": (start + inner)[:, :, None], "innerindex": inner[:, :, None]}.items()}

    def _first(self, inner: NDArray[np.int64], outer: int) -> NDArray[np.int64]:
        assert self.enrich is not None
        if outer > self.enrich:
            raise DataError(f"the outer samples are among the {self.enrich} positives of the inner set (enrich={self.enrich}, among=True), "
                            f"and {outer} were asked for: ask for at most {self.enrich}, or raise enrich")
        return inner[..., :outer]

    def _inner(self, draw: Draw, size: int, positive: NDArray[np.int64],
               negative: NDArray[np.int64]) -> tuple[NDArray[np.int64], Selection]:
        k = self.enrich
        if self.inner == "negatives":
            return self._rows(draw, draw.choose(size, np.where(negative > 0, negative, positive))), {}  # `order` has negatives first
        if k is None:
            return draw.choose(size, positive + negative), {}
        if not 0 < k < size:
            raise DataError(f"an enriched set of {size} inner samples needs between 1 and {size - 1} positives; enrich={k}")
        wanted = np.arange(size) < k  # the first k places are for positives
        taken = np.where(negative == 0, True, np.where(positive == 0, False, wanted))
        rows = self._rows(draw, draw.choose(size, np.where(taken, positive, negative), taken) + negative * taken)
        if not self.reweight:
            return rows, {}
        share = positive / (positive + negative)
        weight = np.where(wanted, share * size / k, (1 - share) * size / (size - k))
        return rows, {"importance": torch.from_numpy(np.broadcast_to(weight, rows.shape)[:, :, None].astype(np.float32))}

    def _rows(self, draw: Draw, rank: NDArray[np.int64]) -> NDArray[np.int64]:
        start = draw.column(draw.data.offsets)
        rows: NDArray[np.int64] = draw.data.groups(self.label).order[start + rank] - start
        return rows

    def fetch(self, data: Data, selection: Selection) -> Batch:
        inner = data.take(selection["innerrows"])
        if "importance" in selection:
            if "importance" in inner:
                raise DataError("an enriched draw gives its inner samples the field 'importance'; rename the clients' field of that name")
            inner["importance"] = selection["importance"].to(next(iter(inner.values())).device)
        return Batch(data.take(selection["rows"]), selection["index"], Batch(inner, selection["innerindex"]))

    def whole(self, fields: dict[str, Tensor]) -> Batch:
        index = torch.arange(len(next(iter(fields.values()))))
        return Batch(fields, index, Batch({name: field[None] for name, field in fields.items()}, index[None]))
