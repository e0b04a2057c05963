"""The algorithms, one file per paper, by the kind of problem they solve."""

from . import theory
from .base import Algorithm, Number, check_fraction, check_positive, check_start, value_at
from .bilevel import ALSET, BSA, TTSA, FedBiOAcc, FedNest, FedNestSGD, LFedNest, ShroFBO, SimFBO, StocBiO, estimate_smoothness
from .compositional import (
    GCIVR,
    MBSGD,
    NASA,
    PDSGD,
    SCGD,
    ComFedL,
    FedAvgCaseI,
    FedAvgCaseII,
    FedDRO,
    LocalSCGD,
    LocalSCGDM,
    ModifiedFedAvg,
    PDSGDWeights,
    Unconstrained,
)
from .compositional_minimax import LocalSCGDAM
from .conditional import BSGD, FCSG, FCSGM, SOAP, AccFCSGM, BSpiderBoost
from .minimax import CODASCA, FESSGDA, SGDA, SMD, CoDA, CODAPlus, FedAvgS, FedGDAGT, LocalSGDA, LocalSGDAM
from .minimization import SCAFFOLD, FastDRO, FedAvg, FedLin, FedNova, FedOpt, FedProx, FedSVRG, LocalSGDM
from .pairwise import FeDXL1, FeDXL2

__all__ = [
    "ALSET", "BSA", "BSGD", "CODASCA", "FCSG", "FCSGM", "FESSGDA", "GCIVR", "MBSGD", "NASA", "PDSGD", "SCAFFOLD", "SCGD", "SGDA", "SMD",
    "SOAP", "TTSA", "AccFCSGM", "Algorithm", "BSpiderBoost", "CODAPlus", "CoDA", "ComFedL", "FastDRO", "FeDXL1", "FeDXL2", "FedAvg",
    "FedAvgCaseI", "FedAvgCaseII", "FedAvgS", "FedBiOAcc", "FedDRO", "FedGDAGT", "FedLin", "FedNest", "FedNestSGD", "FedNova", "FedOpt",
    "FedProx", "FedSVRG", "LFedNest", "LocalSCGD", "LocalSCGDAM", "LocalSCGDM", "LocalSGDA", "LocalSGDAM", "LocalSGDM", "ModifiedFedAvg",
    "Number", "PDSGDWeights", "ShroFBO", "SimFBO", "StocBiO", "Unconstrained", "check_fraction", "check_positive", "check_start",
    "estimate_smoothness", "theory", "value_at",
]
