"""Values at the clients, as the server holds them: handles without arithmetic, and where they live."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NoReturn
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from ..errors import PlacementError
from .operations import Index, Map

id_of = id  # which is the name of an argument below


class Place:
    """Some clients of a federation, by number: where a value lives."""

    def __init__(self, index: Index, everyone: tuple[str, ...]) -> None:
        self.index, self._everyone = index, everyone

    @property
    def size(self) -> int:
        return len(self.index)

    @cached_property
    def names(self) -> list[str]:
        return [self._everyone[i] for i in self.index]

    @cached_property
    def positions(self) -> Index:
        return np.arange(self.size)

    @cached_property
    def ones(self) -> NDArray[np.float64]:
        """The weights of a plain sum."""
        return np.ones(self.size)


class Handles:
    """The handles that exist, and the numbers of the values they stand for."""

    def __init__(self) -> None:
        self.alive: set[int] = set()
        self.all: dict[int, ref[Placed]] = {}  # by their place in memory


class Placed:
    """A value that lives at the clients: no arithmetic, no reading. `map` works on it, `mean` brings it to the server."""

    __slots__ = ("__weakref__", "_handles", "call", "id", "place", "pool", "spent")

    def __init__(self, place: Place, id: int, handles: Handles, call: Map | None = None, pool: bool = False) -> None:
        self.place, self.id, self.call, self.pool = place, id, call, pool
        self.spent: str | None = None
        self._handles = handles
        handles.alive.add(id)
        handles.all[id_of(self)] = ref(self)

    def __del__(self) -> None:
        self._handles.alive.discard(self.id)
        self._handles.all.pop(id_of(self), None)

    def __repr__(self) -> str:
        return f"Placed({self.place.size} values at the clients)"

    def _refuse(self: object, /, *_: object, **__: object) -> NoReturn:
        raise PlacementError("a value at the clients cannot be used at the server or mixed with a server value: compute with it inside "
                             "fed.map(self.method, value), or bring it over with fed.mean(value)")

    __torch_function__: classmethod[Any, ..., NoReturn] = classmethod(_refuse)
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __matmul__ = __rmatmul__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __abs__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __getitem__ = __len__ = __iter__ = __float__ = __int__ = __bool__ = __array__ = _refuse
