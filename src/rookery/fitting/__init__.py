"""From rows and a goal to the best model: the goal's method beside its honest opponents, chosen by the goal itself."""

from .fit import fit
from .goals import GOALS, Goal
from .measures import Measure
from .options import Fitted, Options

__all__ = ["GOALS", "Fitted", "Goal", "Measure", "Options", "fit"]
