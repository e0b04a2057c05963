"""What is minimised: the seven kinds of problem, reductions between them, projections, and modules as functions of flat vectors."""

from . import testproblems
from .autodiff import cross, grad, hvp, jvp, value_and_jacobian, vjp
from .base import Problem
from .kinds import Bilevel, Compositional, CompositionalMinimax, Conditional, Minimax, Minimization
from .model import Model
from .pairwise import Pairwise
from .projections import ball, box, simplex
from .reductions import as_bilevel, conditional_as_compositional

__all__ = [
    "Bilevel", "Compositional", "CompositionalMinimax", "Conditional", "Minimax", "Minimization", "Model", "Pairwise", "Problem",
    "as_bilevel", "ball", "box", "conditional_as_compositional", "cross", "grad", "hvp", "jvp", "simplex", "testproblems",
    "value_and_jacobian", "vjp",
]
