"""Federated nested optimisation: Problem × Algorithm × Federation.

A name is imported when it is first asked for, so that `rookery --help` does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

# where names are that are no algorithm's, and the modules that were attributes of the package without being asked for
_ELSEWHERE = {name: module for module, names in {
    "autodiff": ("cross", "grad", "hvp", "vjp"), "data": ("Batch", "Data"), "errors": ("RookeryError",),
    "fed": ("Cohort", "Epochs", "Federation"),
    "problem": ("Bilevel", "Compositional", "CompositionalMinimax", "Conditional", "Minimax", "Minimization", "Problem"),
    "program": ("Program", "Schedule"), "reductions": ("as_bilevel", "conditional_as_compositional"), "tape": ("Clients",),
    "vector": ("Model", "ball", "box", "simplex")}.items() for name in names}
_MODULES = {*_ELSEWHERE.values(), "algorithms", "client", "engines", "ledger", "rng"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'algorithms')}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
