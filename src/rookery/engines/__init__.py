"""Where client functions run."""

from .auto import Auto
from .loop import Loop
from .ray import Ray
from .shards import Shards
from .vectorised import Vectorised
from .wire import Wire

__all__ = ["Auto", "Loop", "Ray", "Shards", "Vectorised", "Wire"]
