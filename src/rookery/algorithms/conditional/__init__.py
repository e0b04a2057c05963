"""Methods for conditional problems, min_x E f(E[g | ξ])."""

from .bsgd import BSGD, BSpiderBoost
from .fcsg import FCSG, FCSGM, AccFCSGM
from .soap import SOAP

__all__ = ["BSGD", "FCSG", "FCSGM", "SOAP", "AccFCSGM", "BSpiderBoost"]
