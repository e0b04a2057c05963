"""The algorithms, one file per paper."""

from . import theory
from .base import Algorithm
from .bilevel_alone import ALSET, BSA, TTSA, StocBiO
from .bsgd import BSGD, BSpiderBoost
from .comfedl import ComFedL
from .curvature import estimate_smoothness
from .fastdro import FastDRO
from .fcsg import FCSG, FCSGM, AccFCSGM
from .fedavg import FedAvg
from .fedavg_co import FedAvgCaseI, FedAvgCaseII, ModifiedFedAvg
from .fedbioacc import FedBiOAcc
from .feddro import FedDRO
from .fedgdagt import FedGDAGT
from .fedlin import FedLin
from .fednest import FedNest, FedNestSGD, LFedNest
from .fednova import FedNova
from .fedopt import FedOpt
from .fedprox import FedProx
from .fedsvrg import FedSVRG
from .gcivr import GCIVR
from .localscgd import LocalSCGD, LocalSCGDM
from .localsgda import FedAvgS, LocalSGDA
from .localsgdm import LocalSGDM
from .mbsgd import MBSGD, Unconstrained
from .nasa import NASA
from .pdsgd import PDSGD, PDSGDWeights
from .scaffold import SCAFFOLD
from .scgd import SCGD
from .sgda import SGDA
from .simfbo import ShroFBO, SimFBO
from .smd import SMD

__all__ = [
    "ALSET", "BSA", "BSGD", "FCSG", "FCSGM", "GCIVR", "MBSGD", "NASA", "PDSGD", "SCAFFOLD", "SCGD", "SGDA", "SMD", "TTSA", "AccFCSGM",
    "Algorithm", "BSpiderBoost", "ComFedL", "FastDRO", "FedAvg", "FedAvgCaseI", "FedAvgCaseII", "FedAvgS", "FedBiOAcc", "FedDRO",
    "FedGDAGT", "FedLin", "FedNest", "FedNestSGD", "FedNova", "FedOpt", "FedProx", "FedSVRG", "LFedNest", "LocalSCGD", "LocalSCGDM",
    "LocalSGDA", "LocalSGDM", "ModifiedFedAvg", "PDSGDWeights", "ShroFBO", "SimFBO", "StocBiO", "Unconstrained", "estimate_smoothness",
    "theory",
]
