"""Methods for min_x max_y f(x, y)."""

from .fedgdagt import FedGDAGT
from .localsgda import FedAvgS, LocalSGDA
from .sgda import SGDA
from .smd import SMD

__all__ = ["SGDA", "SMD", "FedAvgS", "FedGDAGT", "LocalSGDA"]
