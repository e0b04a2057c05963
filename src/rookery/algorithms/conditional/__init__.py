"""Methods for conditional problems, min_x E f(E[g | ξ])."""

from .bsgd import BSGD, BSpiderBoost
from .fcsg import FCSG, FCSGM, AccFCSGM

__all__ = ["BSGD", "FCSG", "FCSGM", "AccFCSGM", "BSpiderBoost"]
