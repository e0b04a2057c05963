"""SOAP in NumPy, from the lines of Qi, Luo, Xu, Ji, Yang, "Stochastic optimization of areas under precision-recall curves with provable
convergence", NeurIPS 2021: Algorithm 1 (SOAP), Algorithm 2 (UG, the running inner values) and Algorithm 3 (UW, the step).

`draw(r, k, q)` gives what client k drew in step q of round r: its outer rows, and the inner samples of each.
"""

from __future__ import annotations

import numpy as np


def soap(x, clients, draw, inner, slope, rounds, local_steps, lr, gamma, beta=1.0, weights=None, plain=None, cohorts=None,
         project=lambda x: x, wrong=""):
    """Local steps of SOAP at each client, between means of w (and of its averaged direction, where beta < 1).

    inner(k, x, i, eta) → g of one outer row and one inner sample, and its p × d Jacobian; slope(k, u, i) → ∇f_i(u); plain(x) → ∇h(x).
    cohorts: the clients of each round; u stays as it was at the others. wrong: a mistake, for a comparison that must see it.
    """
    weights = np.ones(clients) if weights is None else np.asarray(weights)
    u = [{} for _ in range(clients)]  # Algorithm 1, "initialise u": a row that was never drawn has none
    x, d, xs = project(x), np.zeros_like(x), []
    for r in range(rounds):
        ends, directions = [], []
        present = range(clients) if cohorts is None else cohorts[r]
        for k in present:
            w, v = x.copy(), d.copy()
            for q in range(local_steps):
                w = project(w)
                rows, samples = draw(r, k, q)  # Algorithm 1, "draw a batch of B₊ positive samples" and "of B samples"
                G, new = np.zeros_like(x), {}
                for i, etas in zip(rows, samples, strict=True):
                    pairs = [inner(k, w, i, eta) for eta in etas]
                    g = np.mean([value for value, _ in pairs], 0)  # Algorithm 2: g̃_i, a mean over B
                    J = np.mean([jacobian for _, jacobian in pairs], 0)
                    row = 0 if wrong == "one u for all rows" else i
                    known = row in u[k] and not (wrong == "0 is not drawn yet" and not u[k][row].any())
                    before = u[k][row] if known else np.zeros_like(g) if wrong == "u starts from 0" else g
                    now = (1 - gamma) * before + gamma * g  # Algorithm 2: u_i ← (1 − γ)u_i + γg̃_i
                    used = before if wrong == "u from before" else g if wrong == "no memory" else now
                    G += J.T @ slope(k, used, i) / len(rows)  # Algorithm 1, the biased estimator G(w)
                    new.setdefault(row, []).append(now)
                for row, values in new.items():
                    u[k][row] = np.mean(values, 0)  # a row that was drawn twice
                if plain is not None:
                    G += plain(w)
                v = (1 - beta) * v + beta * G if (r, q) != (0, 0) else G
                w = w - lr * v  # Algorithm 3, SGD-style
            ends.append(w)
            directions.append(v)
        share = weights[list(present)] / weights[list(present)].sum()
        x, d = project(np.tensordot(share, ends, 1)), np.tensordot(share, directions, 1)
        xs.append(x)
    return xs


def soap_average_precision(w, inputs, labels, batches, lr, gamma, margin):
    """One machine, as the paper prints it for average precision and scores w·x: the estimator G in closed form, nothing of a Jacobian."""
    u, ws = {}, []
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
        ws.append(w)
    return ws
