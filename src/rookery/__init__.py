"""Federated nested optimisation: Problem × Algorithm × Federation."""

from .algorithms import (
    BSGD,
    FCSG,
    FCSGM,
    SCAFFOLD,
    AccFCSGM,
    Algorithm,
    BSpiderBoost,
    FedAvg,
    FedDRO,
    FedLin,
    FedNest,
    FedNova,
    FedOpt,
    FedProx,
    FedSVRG,
    LocalSGDM,
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
    "BSGD", "FCSG", "FCSGM", "SCAFFOLD", "AccFCSGM", "Algorithm", "BSpiderBoost", "Batch", "Bilevel", "Clients", "Cohort",
    "Compositional", "CompositionalMinimax", "Conditional", "Data", "Epochs", "FedAvg", "FedDRO", "FedLin", "FedNest", "FedNova",
    "FedOpt", "FedProx", "FedSVRG", "Federation", "LocalSGDM", "Minimax", "Minimization", "Model", "Problem", "Program",
    "RookeryError", "Schedule", "as_bilevel", "ball", "box", "conditional_as_compositional", "cross", "grad", "hvp", "simplex",
    "theory", "vjp",
]
