"""Methods for risks of pairs of rows at two clients."""

from .fedxl import FeDXL1, FeDXL2

__all__ = ["FeDXL1", "FeDXL2"]
