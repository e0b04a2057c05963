"""Federated nested optimisation: Problem × Algorithm × Federation."""

from .algorithms import (
    ALSET,
    BSA,
    BSGD,
    FCSG,
    FCSGM,
    GCIVR,
    MBSGD,
    NASA,
    PDSGD,
    SCAFFOLD,
    SCGD,
    SGDA,
    SMD,
    TTSA,
    AccFCSGM,
    Algorithm,
    BSpiderBoost,
    ComFedL,
    FastDRO,
    FedAvg,
    FedAvgCaseI,
    FedAvgCaseII,
    FedAvgS,
    FedBiOAcc,
    FedDRO,
    FedGDAGT,
    FedLin,
    FedNest,
    FedNestSGD,
    FedNova,
    FedOpt,
    FedProx,
    FedSVRG,
    LFedNest,
    LocalSCGD,
    LocalSCGDM,
    LocalSGDA,
    LocalSGDM,
    ModifiedFedAvg,
    PDSGDWeights,
    ShroFBO,
    SimFBO,
    StocBiO,
    Unconstrained,
    estimate_smoothness,
    theory,
)
from .autodiff import cross, grad, hvp, vjp
from .data import Batch, Data
from .errors import RookeryError
from .fed import Cohort, Epochs, Federation
from .problem import Bilevel, Compositional, CompositionalMinimax, Conditional, Minimax, Minimization, Problem
from .program import Program, Schedule
from .reductions import as_bilevel, conditional_as_compositional
from .tape import Clients
from .vector import Model, ball, box, simplex

__version__ = "0.1.0"

__all__ = [
    "ALSET", "BSA", "BSGD", "FCSG", "FCSGM", "GCIVR", "MBSGD", "NASA", "PDSGD", "SCAFFOLD", "SCGD", "SGDA", "SMD", "TTSA", "AccFCSGM",
    "Algorithm", "BSpiderBoost", "Batch", "Bilevel", "Clients", "Cohort", "ComFedL", "Compositional", "CompositionalMinimax",
    "Conditional", "Data", "Epochs", "FastDRO", "FedAvg", "FedAvgCaseI", "FedAvgCaseII", "FedAvgS", "FedBiOAcc", "FedDRO", "FedGDAGT",
    "FedLin", "FedNest", "FedNestSGD", "FedNova", "FedOpt", "FedProx", "FedSVRG", "Federation", "LFedNest", "LocalSCGD", "LocalSCGDM",
    "LocalSGDA", "LocalSGDM", "Minimax", "Minimization", "Model", "ModifiedFedAvg", "PDSGDWeights", "Problem", "Program",
    "RookeryError", "Schedule", "ShroFBO", "SimFBO", "StocBiO", "Unconstrained", "as_bilevel", "ball", "box",
    "conditional_as_compositional", "cross", "estimate_smoothness", "grad", "hvp", "simplex", "theory", "vjp",
]
