"""Ways to spread the rows of one table over sites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError


def dirichlet(labels: Sequence[Any] | NDArray[Any], sites: int, alpha: float, seed: int = 0, least: int = 2) -> NDArray[np.str_]:
    """The site of each row, with each class spread over the sites by a Dirichlet(alpha) draw: small alpha, unlike sites.

    Drawn again until every site has at least `least` rows.

    >>> sites = dirichlet([0, 1] * 50, sites=4, alpha=0.5)
    >>> sorted(set(sites.tolist()))
    ['site-0', 'site-1', 'site-2', 'site-3']
    """
    labels = np.asarray(labels)
    if not alpha > 0 or sites < 1 or least * sites > len(labels):
        raise DataError(f"alpha must be positive and {sites} sites of at least {least} rows must fit into {len(labels)} rows; "
                        f"alpha is {alpha}")
    r = np.random.default_rng(seed)
    for _ in range(1000):
        site = np.empty(len(labels), dtype=np.int64)
        for value in np.unique(labels):
            rows = np.flatnonzero(labels == value)
            site[rows] = r.choice(sites, len(rows), p=r.dirichlet(np.full(sites, alpha)))
        if np.bincount(site, minlength=sites).min() >= least:
            width = len(str(sites - 1))
            return np.asarray([f"site-{s:0{width}}" for s in site])
    raise DataError(f"no draw gave each of {sites} sites {least} rows; take a larger alpha, fewer sites or a smaller least")
