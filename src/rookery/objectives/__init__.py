"""Objectives by name: functions that return problems; `@objective(…)` declares one of one's own for descriptions."""

from .ap import ap_surrogate, binary_scores
from .auc import auc
from .bilevel import data_reweighting, hyper_parameters, hyper_representation, loss_tuning
from .declare import Objective, RowCounts, declared, objective, objectives
from .dro import ClampWarning, constrained_dro, dro_report, kl_dro
from .fairness import fair, fairness_gap, group_rates
from .fastdro import fast_dro
from .given import MODEL, Column, Entry, Given, Start, constant, with_zeros
from .groups import balanced_cross_entropy, group_dro
from .invariant import invariant_logistic
from .lastlayer import last_layer
from .maml import adapt, maml, tasks
from .minimax import robust_regression
from .partialauc import partial_auc
from .ratio import ratio_loss
from .regularised import with_weight_decay
from .robust import chi2_dro, cvar, mean_variance
from .saddle import group_weights
from .supervised import cross_entropy, cross_entropy_losses
from .trainval import VALIDATION

__all__ = [
    "MODEL", "VALIDATION", "ClampWarning", "Column", "Entry", "Given", "Objective", "RowCounts", "Start", "adapt", "ap_surrogate", "auc",
    "balanced_cross_entropy", "binary_scores", "chi2_dro", "constant", "constrained_dro", "cross_entropy", "cross_entropy_losses", "cvar",
    "data_reweighting", "declared", "dro_report", "fair", "fairness_gap", "fast_dro", "group_dro", "group_rates", "group_weights",
    "hyper_parameters", "hyper_representation", "invariant_logistic", "kl_dro", "last_layer", "loss_tuning", "maml", "mean_variance",
    "objective", "objectives", "partial_auc", "ratio_loss", "robust_regression", "tasks", "with_weight_decay", "with_zeros",
]
