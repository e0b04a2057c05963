"""Methods for min_x max_y f(g(x), y)."""

from .localscgdam import LocalSCGDAM

__all__ = ["LocalSCGDAM"]
