"""The algorithms, one file per paper."""

from . import theory
from .base import Algorithm
from .bsgd import BSGD, BSpiderBoost
from .fcsg import FCSG, FCSGM, AccFCSGM
from .fedavg import FedAvg
from .feddro import FedDRO
from .fedlin import FedLin
from .fednest import FedNest
from .fednova import FedNova
from .fedopt import FedOpt
from .fedprox import FedProx
from .fedsvrg import FedSVRG
from .localsgdm import LocalSGDM
from .scaffold import SCAFFOLD

__all__ = [
    "BSGD", "FCSG", "FCSGM", "SCAFFOLD", "AccFCSGM", "Algorithm", "BSpiderBoost", "FedAvg", "FedDRO", "FedLin", "FedNest",
    "FedNova", "FedOpt", "FedProx", "FedSVRG", "LocalSGDM", "theory",
]
