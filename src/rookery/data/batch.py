"""One draw of samples at one client."""

from __future__ import annotations

import torch
from torch import Tensor


class Batch:
    """One draw of samples at one client. Fields are attributes: `batch.inputs`, `batch.labels`.

    `index` holds the row numbers within the client, `inner` the conditional samples (a batch of their own) of a
    conditional draw, and `key` seeds dropout and augmentation, so that every oracle on this batch sees the same masks.
    """

    __slots__ = ("fields", "index", "inner", "key")

    def __init__(self, fields: dict[str, Tensor], index: Tensor | None = None, inner: Batch | None = None,
                 key: int | None = None) -> None:
        self.fields, self.index, self.inner, self.key = fields, index, inner, key

    def __getattr__(self, name: str) -> Tensor:
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(f"a batch has the fields {sorted(self.fields)}; {name!r} is not one of them") from None

    def __repr__(self) -> str:
        return f"Batch({', '.join(f'{k}: {tuple(v.shape)}' for k, v in self.fields.items())})"

    def _fewest(self, clients: int = 1) -> Tensor:
        """The fewest different rows that a value of one loss is a mean of, for each of the clients that the batch is of."""
        if self.index is None:
            return torch.full((clients,), self.leaves()[0].shape[clients > 1])
        own = different(self.index.reshape(clients, 1, -1))
        if self.inner is None or self.inner.index is None:  # inner samples that are no rows
            return own
        return torch.minimum(own, different(self.inner.index.reshape(clients, -1, self.inner.index.shape[-1])))

    def leaves(self) -> list[Tensor]:
        """All tensors in a fixed order; `rebuild` is the inverse."""
        own = [*self.fields.values(), *([] if self.index is None else [self.index])]
        return own + (self.inner.leaves() if self.inner is not None else [])

    def rebuild(self, leaves: list[Tensor]) -> Batch:
        """A batch of the same form with other tensors, taken in order from the front of `leaves`."""
        fields = {name: leaves.pop(0) for name in self.fields}
        index = None if self.index is None else leaves.pop(0)
        return Batch(fields, index, None if self.inner is None else self.inner.rebuild(leaves), self.key)


def different(index: Tensor) -> Tensor:
    """The fewest different numbers in a last axis of `index`, which has three, for each of the first."""
    ordered = index.sort(-1).values
    return 1 + (ordered[..., 1:] != ordered[..., :-1]).sum(-1).amin(-1)
