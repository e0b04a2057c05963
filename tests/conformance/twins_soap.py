"""SOAP in NumPy, from the lines of Qi, Luo, Xu, Ji, Yang, "Stochastic optimization of areas under precision-recall curves with provable
convergence", NeurIPS 2021: Algorithm 1 (SOAP), Algorithm 2 (UG, the running inner values) and Algorithm 3 (UW, the step).

`draw(r, k, q)` gives what client k drew in step q of round r: its outer rows, and the inner samples of each.
"""

from __future__ import annotations

import numpy as np


def soap(x, clients, draw, inner, slope, rounds, local_steps, lr, gamma, beta=1.0, weights=None, plain=None):
    """Local steps of SOAP at each client, between means of w (and of its averaged direction, where beta < 1).

    inner(k, x, i, eta) → g of one outer row and one inner sample, and its p × d Jacobian; slope(k, u, i) → ∇f_i(u); plain(x) → ∇h(x).
    """
    weights = np.ones(clients) / clients if weights is None else np.asarray(weights) / np.sum(weights)
    u = [{} for _ in range(clients)]  # Algorithm 1, "initialise u": a row that was never drawn has none
    d = np.zeros_like(x)
    for r in range(rounds):
        ends, directions = [], []
        for k in range(clients):
            w, v = x.copy(), d.copy()
            for q in range(local_steps):
                rows, samples = draw(r, k, q)  # Algorithm 1, "draw a batch of B₊ positive samples" and "of B samples"
                G, new = np.zeros_like(x), {}
                for i, etas in zip(rows, samples, strict=True):
                    pairs = [inner(k, w, i, eta) for eta in etas]
                    g = np.mean([value for value, _ in pairs], 0)  # Algorithm 2: g̃_i, a mean over B
                    J = np.mean([jacobian for _, jacobian in pairs], 0)
                    now = (1 - gamma) * u[k][i] + gamma * g if i in u[k] else g  # Algorithm 2: u_i ← (1 − γ)u_i + γg̃_i
                    G += J.T @ slope(k, now, i) / len(rows)  # Algorithm 1, the biased estimator G(w)
                    new.setdefault(i, []).append(now)
                for i, values in new.items():
                    u[k][i] = np.mean(values, 0)  # a row that was drawn twice
                if plain is not None:
                    G += plain(w)
                v = (1 - beta) * v + beta * G if (r, q) != (0, 0) else G
                w = w - lr * v  # Algorithm 3, SGD-style
            ends.append(w)
            directions.append(v)
        x, d = np.tensordot(weights, ends, 1), np.tensordot(weights, directions, 1)
    return x


def soap_average_precision(w, inputs, labels, batches, lr, gamma, margin):
    """One machine, as the paper prints it for average precision and scores w·x: the estimator G in closed form, nothing of a Jacobian."""
    u = {}
    for positives, others in batches:
        G = np.zeros_like(w)
        for i in positives:
            gaps = np.maximum(margin - (inputs[i] - inputs[others]) @ w, 0)
            tilde = np.array([np.mean((labels[others] == 1) * gaps**2), np.mean(gaps**2)])
            u[i] = (1 - gamma) * u[i] + gamma * tilde if i in u else tilde
            for j, gap in zip(others, gaps, strict=True):
                slope_of_loss = 2 * gap * (inputs[j] - inputs[i])
                G += (u[i][0] - u[i][1] * (labels[j] == 1)) * slope_of_loss / (u[i][1] ** 2 * len(others) * len(positives))
        w = w - lr * G
    return w
