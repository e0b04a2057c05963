"""Bundles: what training leaves, what predicts, and what is exported."""

from .bundle import Bundle, load

__all__ = ["Bundle", "load"]
