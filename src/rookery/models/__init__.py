"""Nets made fit for a federation."""

from .norm import FederatedNorm, FrozenNorm, federated_norm, freeze_norm, sum_moments, to_group_norm

__all__ = ["FederatedNorm", "FrozenNorm", "federated_norm", "freeze_norm", "sum_moments", "to_group_norm"]
