"""Running an algorithm: the loop, checkpoints, schedules, trackers."""

from .checkpoint import load, save
from .loop import EarlyStop, Run, run
from .schedules import Cosine, Decay, Drop

__all__ = ["Cosine", "Decay", "Drop", "EarlyStop", "Run", "load", "run", "save"]
