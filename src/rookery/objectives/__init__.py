"""Objectives by name: functions that return problems."""

from .dro import kl_dro
from .regularised import with_weight_decay
from .supervised import cross_entropy, cross_entropy_losses

__all__ = ["cross_entropy", "cross_entropy_losses", "kl_dro", "with_weight_decay"]
