"""Values at the clients, as the server holds them: handles without arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import PlacementError
from .operations import Map

if TYPE_CHECKING:
    from .federation import Cohort



class Placed:
    """A value that lives at the clients: no arithmetic, no reading. `map` works on it, `mean` brings it to the server."""

    __slots__ = ("__weakref__", "_pending", "call", "cohort", "id", "pool", "spent")

    def __init__(self, cohort: Cohort, id: int, call: Map | None = None, pool: bool = False) -> None:
        self.cohort, self.id, self.call, self.pool = cohort, id, call, pool
        self.spent: str | None = None
        self._pending = cohort.fed.pending
        self._pending.alive.add(id)
        self._pending.handles.add(self)

    def __del__(self) -> None:
        self._pending.alive.discard(self.id)

    def __repr__(self) -> str:
        return f"Placed({self.cohort.size} values at the clients)"

    def _refuse(self: object, /, *_: object, **__: object) -> NoReturn:
        raise PlacementError("a value at the clients cannot be used at the server or mixed with a server value: compute with it inside "
                             "fed.map(self.method, value), or bring it over with fed.mean(value)")

    __torch_function__: classmethod[Any, ..., NoReturn] = classmethod(_refuse)
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __matmul__ = __rmatmul__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __abs__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __getitem__ = __len__ = __iter__ = __float__ = __int__ = __bool__ = __array__ = _refuse
