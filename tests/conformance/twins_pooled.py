"""NumPy twin of FastDRO on several clients: the parallel version of the method for one machine (Levy et al. 2020, minibatch estimator).

As in twins.py: only NumPy is imported and client oracles are lists of plain deterministic callables. The rows of all clients form one
batch, so that there is one worst case and one threshold; a mean of the clients' own worst cases is another objective (the broken variant).
"""

import numpy as np


def worst_weights(v, q, form, size):
    """The p >= 0, sum p = 1 that is worst for losses v under base probabilities q, by sorting: no search, no tolerance.

    "cvar": p_i <= q_i/size. "chi2": max p·v - size/2 sum_i q_i (p_i/q_i - 1)². "chi2 ball": 1/2 sum_i q_i (p_i/q_i - 1)² <= size.
    "kl": max p·v - size sum_i p_i log(p_i/q_i). Where the maximiser is not unique (rows tied at CVaR's threshold; a ball so wide that all
    weight lies on tied largest losses) every one is right; here the tied rows share what is left in proportion to q."""
    v, q = np.asarray(v, dtype=float), np.asarray(q, dtype=float)
    if form == "kl":
        p = q * np.exp((v - v.max()) / size)
        return p / p.sum()
    if form == "cvar":
        return _cvar(v, q, size)
    top = np.where(v == v.max(), q, 0.0)
    if form == "chi2 ball" and (1 + 2 * size) * top.sum() >= 1:  # the whole weight on the largest losses lies in the ball
        return top / top.sum()
    if form == "chi2 ball" and size == 0:
        return q
    order = np.argsort(-v, kind="stable")
    for n in range(len(v), 0, -1):  # p ~ q (v - e)_+; the n largest losses are the ones above e: the largest n for which that agrees
        w, r = v[order[:n]], q[order[:n]]
        mean, total = r @ w / r.sum(), r.sum()
        if form == "chi2":  # sum_i q_i (v_i - e) = size
            below = size / total
        elif (1 + 2 * size) * total > 1:  # sum_i p_i²/q_i = 1 + 2 size
            below = np.sqrt(r @ (w - mean) ** 2 / total / ((1 + 2 * size) * total - 1))
        else:  # rounding, where the ball just does not hold the whole weight on the largest losses
            break
        if w[-1] > mean - below:
            p = q * np.maximum(v - (mean - below), 0)
            return p / p.sum()
    return top / top.sum()


def _cvar(v, q, a):
    """q_i/a from the largest loss downwards until the weight is used up; the rows of the threshold's loss share the rest."""
    for level in np.unique(v)[::-1]:
        above, tied = np.where(v > level, q, 0.0) / a, np.where(v == level, q, 0.0)
        rest = 1 - above.sum()
        if rest <= tied.sum() / a or level == v.min():
            return above + max(rest, 0.0) * tied / tied.sum()
    raise AssertionError


def fast_dro_pooled(losses, gradients, x0, lr, form, size, rounds, weights=None, project=lambda x: x):
    """x <- x - lr sum_i p_i l_i'(x) over the rows i of all clients, p the worst weights of the pooled batch, held fixed in the gradient.

    Client k of weight w_k (of sum 1; None: equal clients) and m_k rows gives each of its rows the base probability w_k/m_k.
    losses[k](x) is a vector, gradients[k](x) a matrix of rows × d."""
    w = np.ones(len(losses)) if weights is None else np.array(weights, dtype=float)
    x, out = project(np.array(x0, dtype=float)), []
    for _ in range(rounds):
        v = [loss(x) for loss in losses]
        q = np.concatenate([np.full(len(v_k), w_k / w.sum() / len(v_k)) for v_k, w_k in zip(v, w, strict=True)])
        p = worst_weights(np.concatenate(v), q, form, size)
        x = project(x - lr * np.concatenate([gradient(x) for gradient in gradients]).T @ p)
        out.append(x)
    return out


def broken_fast_dro_pooled(losses, gradients, x0, lr, form, size, rounds, weights=None):
    """WRONG: each client's own worst case, and the mean of these. Right if one client, or all clients with the same losses."""
    w = np.ones(len(losses)) if weights is None else np.array(weights, dtype=float)
    x, out = np.array(x0, dtype=float), []
    for _ in range(rounds):
        step = np.zeros_like(x)
        for loss, gradient, w_k in zip(losses, gradients, w / w.sum(), strict=True):
            v = loss(x)
            step = step + w_k * gradient(x).T @ worst_weights(v, np.full(len(v), 1 / len(v)), form, size)
        x = x - lr * step
        out.append(x)
    return out
