"""Methods for bilevel problems."""

from .alset import ALSET
from .bsa import BSA
from .curvature import estimate_smoothness
from .fedbioacc import FedBiOAcc
from .fednest import FedNest, FedNestSGD, LFedNest
from .simfbo import ShroFBO, SimFBO
from .stocbio import StocBiO
from .ttsa import TTSA

__all__ = ["ALSET", "BSA", "TTSA", "FedBiOAcc", "FedNest", "FedNestSGD", "LFedNest", "ShroFBO", "SimFBO", "StocBiO", "estimate_smoothness"]
