"""Where samples come from: the flat store, and the ways a client draws from it."""

from .partition import dirichlet
from .sampling import Normal, PerTask, Replacement, Shuffled, Stored, Stratified
from .store import Batch, Data

__all__ = ["Batch", "Data", "Normal", "PerTask", "Replacement", "Shuffled", "Stored", "Stratified", "dirichlet"]
