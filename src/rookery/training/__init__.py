"""Running an algorithm: the loop, its stages, checkpoints, schedules, trackers."""

from .checkpoint import load, save
from .loop import run, run_stages
from .result import EarlyStop, Run
from .schedules import Cosine, Decay, Drop
from .stage import Stage

__all__ = ["Cosine", "Decay", "Drop", "EarlyStop", "Run", "Stage", "load", "run", "run_stages", "save"]
