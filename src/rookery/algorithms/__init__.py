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
from .conditional import BSGD, FCSG, FCSGM, AccFCSGM, BSpiderBoost
from .minimax import SGDA, SMD, FedAvgS, FedGDAGT, LocalSGDA
from .minimization import SCAFFOLD, FastDRO, FedAvg, FedLin, FedNova, FedOpt, FedProx, FedSVRG, LocalSGDM

__all__ = [
    "ALSET", "BSA", "BSGD", "FCSG", "FCSGM", "GCIVR", "MBSGD", "NASA", "PDSGD", "SCAFFOLD", "SCGD", "SGDA", "SMD", "TTSA",
    "AccFCSGM", "Algorithm", "BSpiderBoost", "ComFedL", "FastDRO", "FedAvg", "FedAvgCaseI", "FedAvgCaseII", "FedAvgS",
    "FedBiOAcc", "FedDRO", "FedGDAGT", "FedLin", "FedNest", "FedNestSGD", "FedNova", "FedOpt", "FedProx", "FedSVRG", "LFedNest",
    "LocalSCGD", "LocalSCGDM", "LocalSGDA", "LocalSGDM", "ModifiedFedAvg", "Number", "PDSGDWeights", "ShroFBO", "SimFBO", "StocBiO",
    "Unconstrained", "check_fraction", "check_positive", "check_start", "estimate_smoothness", "theory", "value_at",
]
