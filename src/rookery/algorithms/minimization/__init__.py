"""Methods for min_x f(x), most of them baselines of the nested ones."""

from .fastdro import FastDRO
from .fedavg import FedAvg
from .fedlin import FedLin
from .fednova import FedNova
from .fedopt import FedOpt
from .fedprox import FedProx
from .fedsvrg import FedSVRG
from .localsgdm import LocalSGDM
from .scaffold import SCAFFOLD

__all__ = ["SCAFFOLD", "FastDRO", "FedAvg", "FedLin", "FedNova", "FedOpt", "FedProx", "FedSVRG", "LocalSGDM"]
