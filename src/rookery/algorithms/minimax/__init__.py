"""Methods for min_x max_y f(x, y)."""

from .coda import CODASCA, CoDA, CODAPlus
from .fedgdagt import FedGDAGT
from .fessgda import FESSGDA
from .localsgda import FedAvgS, LocalSGDA
from .localsgdam import LocalSGDAM
from .sgda import SGDA
from .smd import SMD

__all__ = ["CODASCA", "FESSGDA", "SGDA", "SMD", "CODAPlus", "CoDA", "FedAvgS", "FedGDAGT", "LocalSGDA", "LocalSGDAM"]
