"""Objectives by name: functions that return problems."""

from .ap import ap_surrogate, binary_scores
from .bilevel import data_reweighting, hyper_parameters, hyper_representation, loss_tuning
from .dro import ClampWarning, constrained_dro, dro_report, kl_dro
from .fairness import fair, fairness_gap, group_rates
from .fastdro import fast_dro
from .groups import balanced_cross_entropy, group_dro
from .invariant import invariant_logistic
from .minimax import robust_regression
from .regularised import with_weight_decay
from .robust import chi2_dro, cvar, mean_variance
from .saddle import group_weights
from .supervised import cross_entropy, cross_entropy_losses

__all__ = [
    "ClampWarning", "ap_surrogate", "balanced_cross_entropy", "binary_scores", "chi2_dro", "constrained_dro", "cross_entropy",
    "cross_entropy_losses", "cvar", "data_reweighting", "dro_report", "fair", "fairness_gap", "fast_dro", "group_dro",
    "group_rates", "group_weights", "hyper_parameters", "hyper_representation", "invariant_logistic", "kl_dro", "loss_tuning",
    "mean_variance", "robust_regression", "with_weight_decay",
]
