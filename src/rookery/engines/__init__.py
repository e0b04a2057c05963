"""Where client functions run."""

from typing import TYPE_CHECKING, Any

from .auto import Auto
from .loop import Loop
from .ray import Ray
from .remote import Remote
from .shards import Shards
from .transport import InProcess, Transport
from .vectorised import Vectorised
from .wire import Wire

if TYPE_CHECKING:
    from .grpc import Grpc

__all__ = ["Auto", "Grpc", "InProcess", "Loop", "Ray", "Remote", "Shards", "Transport", "Vectorised", "Wire"]


def __getattr__(name: str) -> Any:
    """What needs an extra is imported when it is asked for."""
    if name == "Grpc":
        from .grpc import Grpc

        return Grpc
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
