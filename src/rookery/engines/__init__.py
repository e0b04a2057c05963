"""Where client functions run.

A name is imported when it is first asked for: what carries frames must not wait for torch, nor ask for an extra that it does not need.
"""

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from . import flare
    from .auto import Auto
    from .grpc import Grpc
    from .loop import Loop
    from .ray import Ray
    from .remote import Remote
    from .shards import Shards
    from .transport import InProcess, Transport
    from .vectorised import Vectorised
    from .wire import Wire

__all__ = ["Auto", "Grpc", "InProcess", "Loop", "Ray", "Remote", "Shards", "Transport", "Vectorised", "Wire", "flare"]

__getattr__, __dir__ = lazy(__name__, {
    "auto": ["Auto"], "grpc": ["Grpc"], "loop": ["Loop"], "ray": ["Ray"], "remote": ["Remote"], "shards": ["Shards"],
    "transport": ["InProcess", "Transport"], "vectorised": ["Vectorised"], "wire": ["Wire"]}, ["flare"])
