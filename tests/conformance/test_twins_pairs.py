"""The twins of FeDXL in twins_auc.py, checked without the package: the pooled minimiser, one client for many alike, steps by hand."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import twins_auc as auc
from test_twins_auc import CLIENTS, apart

RNG = np.random.default_rng(8)

# pairwise losses of linear scores, two positives and three negatives at each client
ROWS = [RNG.normal(size=(5, 2)) for _ in range(CLIENTS)]
LABELS = [np.array(order, bool) for order in ([1, 0, 1, 0, 0], [0, 0, 1, 1, 0], [1, 1, 0, 0, 0])]
SCORES: list[Any] = [lambda w, k=k: ROWS[k] @ w for k in range(CLIENTS)]
DSCORES: list[Any] = [lambda w, k=k: ROWS[k] for k in range(CLIENTS)]
W0 = np.array([0.5, -0.3])


def square(s: Any, t: Any) -> Any:
    return (1 - s + t) ** 2 / 2


def square_s(s: Any, t: Any) -> Any:
    return -(1 - s + t)


def square_t(s: Any, t: Any) -> Any:
    return 1 - s + t


DATA: tuple[Any, ...] = (SCORES, DSCORES, LABELS)
SLOPES: tuple[Any, ...] = (square_s, square_t, W0)
LOSS: tuple[Any, ...] = (square, square_s, square_t, W0)
POSITIVE = np.concatenate([rows[label] for rows, label in zip(ROWS, LABELS, strict=True)])
NEGATIVE = np.concatenate([rows[~label] for rows, label in zip(ROWS, LABELS, strict=True)])


def best_ranker() -> Any:
    """The minimiser of the mean of (1 - s_i + t_j)²/2 over all pairs of all clients."""
    differences = (POSITIVE[:, None, :] - NEGATIVE[None, :, :]).reshape(-1, 2)
    return np.linalg.lstsq(differences, np.ones(len(differences)), rcond=None)[0]


def test_fedxl1_with_one_local_step() -> None:
    """Against the pool of the round before, which are the scores at the point before the last."""
    run = [W0, *auc.fedxl1(*DATA, *SLOPES, 0.1, 1, 300)]
    old = W0
    for w, new in pairwise(run[:20]):
        s, t, pool_s, pool_t = POSITIVE @ w, NEGATIVE @ w, POSITIVE @ old, NEGATIVE @ old
        active = square_s(s[:, None], pool_t[None, :]).mean(axis=1) @ POSITIVE / len(s)
        passive = square_t(pool_s[:, None], t[None, :]).mean(axis=0) @ NEGATIVE / len(t)
        assert np.abs(new - (w - 0.1 * (active + passive))).max() < 1e-13
        old = w
    assert np.abs(run[-1] - best_ranker()).max() < 1e-8
    assert np.abs(auc.fedxl1(*DATA, *SLOPES, 0.1, 1, 300, own_pool=True)[-1] - best_ranker()).max() > 1e-2


def test_fedxl1_stays_at_the_minimiser() -> None:
    for w in auc.fedxl1(*DATA, square_s, square_t, best_ranker(), 0.1, 1, 5):
        assert np.abs(w - best_ranker()).max() < 1e-14


def test_fedxl_of_identical_clients_is_one_client() -> None:
    alone, many = [part[:1] for part in DATA], [part[:1] * 4 for part in DATA]
    for a, b in zip(auc.fedxl1(*alone, *SLOPES, 0.1, 3, 8), auc.fedxl1(*many, *SLOPES, 0.1, 3, 8), strict=True):
        assert np.abs(a - b).max() < 1e-14
    rest: tuple[Any, ...] = (0.1, 3, 8, lambda u: 1 / (1 + u), 0.4, 0.3)  # log(1 + u): one client alone can make u small
    assert apart(auc.fedxl2(*alone, *LOSS, *rest), auc.fedxl2(*many, *LOSS, *rest)) < 1e-13


def test_fedxl1_uses_every_score_of_the_round_before() -> None:
    """Two rounds of two steps by hand: the second round's pool are the scores at both points of every client."""
    def gradient(k: int, w: Any, pool_s: Any, pool_t: Any) -> Any:
        up, down = ROWS[k][LABELS[k]], ROWS[k][~LABELS[k]]
        total = sum(square_s(row @ w, t) * row for row in up for t in pool_t) / (len(up) * len(pool_t))
        return total + sum(square_t(s, row @ w) * row for row in down for s in pool_s) / (len(down) * len(pool_s))
    pool_s, pool_t, w, expected = POSITIVE @ W0, NEGATIVE @ W0, W0, []
    for _ in range(2):
        made_s, made_t, ends = [], [], []
        for k in range(CLIENTS):
            w_k = w
            for _ in range(2):
                made_s.append(ROWS[k][LABELS[k]] @ w_k)
                made_t.append(ROWS[k][~LABELS[k]] @ w_k)
                w_k = w_k - 0.1 * gradient(k, w_k, pool_s, pool_t)
            ends.append(w_k)
        w, pool_s, pool_t = sum(ends) / CLIENTS, np.concatenate(made_s), np.concatenate(made_t)
        expected.append(w)
    for a, b in zip(auc.fedxl1(*DATA, *SLOPES, 0.1, 2, 2), expected, strict=True):
        assert np.abs(a - b).max() < 1e-14
    wrong = auc.fedxl1(*DATA, *SLOPES, 0.1, 2, 2, own_pool=True)
    assert np.abs(wrong[-1] - expected[-1]).max() > 1e-3


@pytest.mark.parametrize("gamma", [0.3, 1.0])
def test_fedxl2_with_a_linear_f_and_no_momentum_is_fedxl1(gamma: float) -> None:
    linear = auc.fedxl2(*DATA, *LOSS, 0.1, 3, 6, np.ones_like, gamma, 1.0)
    assert apart(linear, [(w, m) for w, (_, m) in zip(auc.fedxl1(*DATA, *SLOPES, 0.1, 3, 6), linear, strict=True)]) < 1e-13


def test_fedxl2_stops_where_the_gradient_of_the_whole_objective_does() -> None:
    """f = log: mean_i log mean_j ell(s_i, t_j) over all clients; one local step, so that nothing is left of the delays at the end."""
    rest: tuple[Any, ...] = (0.05, 1, 1000, np.reciprocal, 0.4, 0.3)

    def slope(w: Any) -> float:
        s, t = POSITIVE @ w, NEGATIVE @ w
        weight = 1 / square(s[:, None], t[None, :]).mean(axis=1, keepdims=True)
        inner = weight * square_s(s[:, None], t[None, :])
        return float(np.abs(inner.mean(axis=1) @ POSITIVE / len(s) - inner.mean(axis=0) @ NEGATIVE / len(t)).max())

    right = auc.fedxl2(*DATA, *LOSS, *rest)
    assert slope(right[-1][0]) < 1e-8
    assert np.abs(right[-1][1]).max() < 1e-8
    assert slope(auc.fedxl2(*DATA, *LOSS, *rest, u0=1.0, zero_momentum=True)[-1][0]) < 1e-8
    assert slope(auc.fedxl2(*DATA, *LOSS, *rest, own_pool=True)[-1][0]) > 1e-3


def test_fedxl2_by_hand() -> None:
    """Two rounds of two steps with loops over the rows: own u renewed before its use, the pool's u beside its score, momenta averaged."""
    eta, gamma, beta = 0.1, 0.4, 0.3
    up, down = [r[label] for r, label in zip(ROWS, LABELS, strict=True)], [r[~label] for r, label in zip(ROWS, LABELS, strict=True)]
    pool_t = list(NEGATIVE @ W0)
    u = [[np.mean([square(row @ W0, t) for t in pool_t]) for row in up[k]] for k in range(CLIENTS)]
    pool = [(row @ W0, u[k][i]) for k in range(CLIENTS) for i, row in enumerate(up[k])]
    w, m, expected = W0, None, []
    for _ in range(2):
        ends, momenta, new_pool, new_t = [], [], [], []
        for k in range(CLIENTS):
            w_k, m_k = w, m
            for _ in range(2):
                grad = np.zeros(2)
                for i, row in enumerate(up[k]):
                    u[k][i] = (1 - gamma) * u[k][i] + gamma * np.mean([square(row @ w_k, t) for t in pool_t])
                    new_pool.append((row @ w_k, u[k][i]))
                    grad += np.mean([square_s(row @ w_k, t) for t in pool_t]) / u[k][i] * row / len(up[k])
                for row in down[k]:
                    new_t.append(row @ w_k)
                    grad += np.mean([square_t(s, row @ w_k) / old for s, old in pool]) * row / len(down[k])
                m_k = grad if m_k is None else (1 - beta) * m_k + beta * grad
                w_k = w_k - eta * m_k
            ends.append(w_k)
            momenta.append(m_k)
        w, m, pool, pool_t = sum(ends) / CLIENTS, sum(momenta) / CLIENTS, new_pool, new_t
        expected.append((w, m))
    rest: tuple[Any, ...] = (eta, 2, 2, np.reciprocal, gamma, beta)
    assert apart(auc.fedxl2(*DATA, *LOSS, *rest), expected) < 1e-13
    assert apart(auc.fedxl2(*DATA, *LOSS, *rest, own_pool=True), expected) > 1e-3
    assert apart(auc.fedxl2(*DATA, *LOSS, *rest, u_after=False), expected) > 1e-4
