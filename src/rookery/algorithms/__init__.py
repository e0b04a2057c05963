"""The algorithms, one file per paper."""

from .base import Algorithm
from .fcsg import FCSG, FCSGM, AccFCSGM
from .fedavg import FedAvg
from .feddro import FedDRO
from .fednest import FedNest
from .scaffold import SCAFFOLD

__all__ = ["FCSG", "FCSGM", "SCAFFOLD", "AccFCSGM", "Algorithm", "FedAvg", "FedDRO", "FedNest"]
