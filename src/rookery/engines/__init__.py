"""Where client functions run."""

from .auto import Auto
from .loop import Loop
from .vectorised import Vectorised
from .wire import Wire

__all__ = ["Auto", "Loop", "Vectorised", "Wire"]
