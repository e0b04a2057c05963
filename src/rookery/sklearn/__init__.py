"""Estimators with scikit-learn's conventions: a goal, rows, and whose they are."""

from .classifier import FederatedClassifier

__all__ = ["FederatedClassifier"]
