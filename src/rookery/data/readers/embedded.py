"""Small sets that come with scikit-learn: nothing to download."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..split import split
from .base import Table, numbers


def digits(test_share: float = 0.25, seed: int = 0) -> tuple[Table, Table]:
    """Handwritten digits (Alpaydin, Kaynak, 1998), 1 797 of shape (1, 8, 8).

    >>> train, test = digits()
    >>> tuple(train.fields["inputs"].shape), len(test)
    ((1348, 1, 8, 8), 449)
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    inputs = torch.from_numpy((bunch.images[:, None] / 16).astype(np.float32))
    whole = Table({"inputs": inputs, "labels": numbers(bunch.target)}, tuple("0123456789"), "digits")
    parts = split(bunch.target, test_share, seed=seed)
    return whole.take(parts.train), whole.take(parts.test)


def breast_cancer(test_share: float = 0.25, seed: int = 0) -> tuple[Table, Table]:
    """Malignant (0) or benign (1) from 30 measurements (Street, Wolberg, Mangasarian, 1993), 569 rows."""
    from sklearn.datasets import load_breast_cancer

    return _standardised(load_breast_cancer(), "breast-cancer", test_share, seed)


def wine(test_share: float = 0.25, seed: int = 0) -> tuple[Table, Table]:
    """Three cultivars from 13 measurements (Forina et al., 1988), 178 rows."""
    from sklearn.datasets import load_wine

    return _standardised(load_wine(), "wine", test_share, seed)


def iris(test_share: float = 0.25, seed: int = 0) -> tuple[Table, Table]:
    """Three irises from 4 measurements (Fisher, 1936), 150 rows."""
    from sklearn.datasets import load_iris

    return _standardised(load_iris(), "iris", test_share, seed)


def _standardised(bunch: Any, name: str, test_share: float, seed: int) -> tuple[Table, Table]:
    parts = split(bunch.target, test_share, seed=seed)
    mean, deviation = bunch.data[parts.train].mean(0), bunch.data[parts.train].std(0)
    inputs = torch.from_numpy(((bunch.data - mean) / deviation).astype(np.float32))
    whole = Table({"inputs": inputs, "labels": numbers(bunch.target)}, tuple(str(word) for word in bunch.target_names), name,
                  {"inputs": tuple(str(word) for word in bunch.feature_names)})
    return whole.take(parts.train), whole.take(parts.test)
