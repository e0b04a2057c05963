"""Nets, and what makes them fit for a federation."""

from .nets import conv4, densenet121, lenet, logistic, mlp, resnet20, small_cnn
from .norm import FederatedNorm, FrozenNorm, federated_norm, freeze_norm, sum_moments, to_group_norm

__all__ = ["FederatedNorm", "FrozenNorm", "conv4", "densenet121", "federated_norm", "freeze_norm", "lenet", "logistic", "mlp", "resnet20",
           "small_cnn", "sum_moments", "to_group_norm"]
