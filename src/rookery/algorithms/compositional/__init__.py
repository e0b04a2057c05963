"""Methods for compositions, min_x h(x) + f(g(x))."""

from .comfedl import ComFedL
from .fedavg_co import FedAvgCaseI, FedAvgCaseII, ModifiedFedAvg
from .feddro import FedDRO
from .gcivr import GCIVR
from .localscgd import LocalSCGD, LocalSCGDM
from .mbsgd import MBSGD, Unconstrained
from .nasa import NASA
from .pdsgd import PDSGD, PDSGDWeights
from .scgd import SCGD

__all__ = [
    "GCIVR", "MBSGD", "NASA", "PDSGD", "SCGD", "ComFedL", "FedAvgCaseI", "FedAvgCaseII", "FedDRO", "LocalSCGD", "LocalSCGDM",
    "ModifiedFedAvg", "PDSGDWeights", "Unconstrained",
]
