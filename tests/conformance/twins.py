"""NumPy twins: reference implementations written from the papers' pseudo-code, independent of the package (only NumPy is imported).

Client oracles are lists of plain callables and deterministic (full batch), so "draw a batch" lines have no counterpart here and the two
evaluations "on the same batch" are simply two calls. One round is one exchange of the model. Every client takes part; means are plain
unless `weights` is given. The `broken_*` functions at the end are deliberately wrong: a test that compares with a twin must fail when given
its broken variant.

The papers have no constraint set. `project` adds one by this rule: every gradient is taken at a projected point (the first x0 included),
a client sends the result of its last local step as it is, and the server projects the mean, once. One local step is then the projected
gradient step on the mean objective. `project_first` (WRONG) projects before the mean: a client that the set holds back is outvoted by one
that moves inwards, so that even one local step has another limit.

Sources: FCSG paper (Algorithms 1 and 2), FedDRO paper (Algorithm 2, equations (7) and (8)), FedNest slides (FedSVRG, FedIHGP, FedNest).
FedAvg and SCAFFOLD follow the usual statements (McMahan et al. 2017; Karimireddy et al. 2020, option II).
"""

import numpy as np


def _same(x):
    return x


def _vec(x):
    return np.array(x, dtype=float)


def _mean(vectors, weights=None):
    w = [1.0] * len(vectors) if weights is None else weights
    total = np.zeros_like(vectors[0])
    for w_n, v_n in zip(w, vectors, strict=True):
        total = total + w_n * v_n
    return total / sum(w)


def _sent(ends, project, project_first):
    return [project(z) for z in ends] if project_first else ends


def fedavg(grads, x0, lr, local_steps, rounds, weights=None, project=_same, project_first=False):
    """FedNest slides, "Gradient-Type Federated Optimization" with h = -grad f_i (FedAvg); steps of size lr, mean by `weights`."""
    x, out = project(_vec(x0)), []
    for _ in range(rounds):
        ends = []
        for grad in grads:  # (1) i-th client
            z = x
            for _ in range(local_steps):
                at = project(z)
                z = at - lr * grad(at)
            ends.append(z)
        x = project(_mean(_sent(ends, project, project_first), weights))  # (2) server
        out.append(x)
    return out


def scaffold(grads, x0, lr, local_steps, rounds, server_lr=1.0, project=_same, project_first=False):
    """SCAFFOLD, option II, all clients in every round (|S| = N), control variates from zero.

    The model's and the variate's change take the same y, the unprojected one."""
    N, x, out = len(grads), project(_vec(x0)), []
    c, c_i = np.zeros_like(x), [np.zeros_like(x) for _ in range(N)]
    for _ in range(rounds):
        dy, dc = [], []
        for n in range(N):
            y = x
            for _ in range(local_steps):
                at = project(y)
                y = at - lr * (grads[n](at) - c_i[n] + c)  # local step
            (y,) = _sent([y], project, project_first)
            c_new = c_i[n] - c + (x - y) / (local_steps * lr)  # option II, with the server's x and c of the round's start
            dy.append(y - x)
            dc.append(c_new - c_i[n])
            c_i[n] = c_new
        x = project(x + server_lr * _mean(dy))  # server: model
        c = c + _mean(dc)  # server: variate, |S|/N = 1
        out.append(x)
    return out


def fcsg(grads, x0, alpha, q, rounds, project=_same, project_first=False):
    """FCSG paper, Algorithm 1, lines 2-14 (FCSG branch), T = q * rounds. Line 7 is left out: FCSG's u is used up in the mean of line 8."""
    return fcsg_m(grads, x0, alpha, 1.0, q, rounds, project, project_first)  # line 14 is line 15 with beta = 1


def fcsg_m(grads, x0, alpha, beta, q, rounds, project=_same, project_first=False):
    """FCSG paper, Algorithm 1, lines 2-15 (FCSG-M branch). mean(x - alpha u) = mean(x - alpha mean u), so line 8's bracket takes the own u:
    the move of line 10, before any projection."""
    N, out = len(grads), []
    x = [project(_vec(x0)) for _ in range(N)]  # line 2
    u = [grads[n](x[n]) for n in range(N)]  # line 2: u_1 at x_0, own to each client
    for t in range(1, q * rounds + 1):  # line 3
        move = [x[n] - alpha * u[n] for n in range(N)]  # line 10, and the bracket of line 8
        if t % q == 0:  # line 5
            u = [_mean(u)] * N  # line 7
            x = [project(_mean(_sent(move, project, project_first)))] * N  # line 8
            out.append(x[0])
        else:
            x = [project(z) for z in move]  # line 10
        u = [(1 - beta) * u[n] + beta * grads[n](x[n]) for n in range(N)]  # line 15, on the averaged u and x after an exchange
    return out


def acc_fcsg_m(grads, x0, alpha, beta, q, rounds, project=_same, project_first=False, averaged_last=False):
    """FCSG paper, Algorithm 2, lines 2-14. x_{t-1}^n in line 14 is the client's own (feasible) point, also right after an average.

    `averaged_last` (WRONG): see broken_acc_fcsg_m."""
    N, out = len(grads), []
    x = [project(_vec(x0)) for _ in range(N)]  # line 2
    u = [grads[n](x[n]) for n in range(N)]  # line 2: u_1
    for t in range(1, q * rounds + 1):  # line 3
        last, move = x, [x[n] - alpha * u[n] for n in range(N)]  # x_{t-1}^n; line 10, and the bracket of line 8
        if t % q == 0:  # line 5
            u = [_mean(u)] * N  # line 7
            x = [project(_mean(_sent(move, project, project_first)))] * N  # line 8
            out.append(x[0])
            if averaged_last:
                last = [_mean(last)] * N
        else:
            x = [project(z) for z in move]  # line 10
        u = [grads[n](x[n]) + (1 - beta) * (u[n] - grads[n](last[n])) for n in range(N)]  # line 14
    return out


def fed_dro(g, g_jac, f_grad, h_grad, x0, eta, beta, I, rounds, y0=None, project=_same, project_first=False):
    """FedDRO paper, Algorithm 2, lines 2-11, with (7) and (8), T = I * rounds; y^{-1} = y^0 = mean g_k(x^0) unless y0 is given.

    In full batch and from that start y_bar^t = mean_k g_k(x_k^t) for every beta: only another y0 (or noise) lets beta be seen."""
    K, out = len(g), []
    x = [project(_vec(x0)) for _ in range(K)]  # line 2
    last = x  # line 2: x^{-1} = x^0
    y_bar = _mean([g[k](x[k]) for k in range(K)]) if y0 is None else _vec(y0)  # line 2
    for t in range(I * rounds):  # line 3
        y = [(1 - beta) * (y_bar - g[k](last[k])) + g[k](x[k]) for k in range(K)]  # lines 4-6: equation (8), y_k^{t-1} = y_bar^{t-1}
        y_bar = _mean(y)  # line 6: shared at every step
        move = [x[k] - eta * (h_grad[k](x[k]) + g_jac[k](x[k]).T @ f_grad(y_bar)) for k in range(K)]  # line 6: equation (7), the step
        last = x  # x_k^t is the next step's x_k^{t-1}: the own point, whatever line 8 does
        if (t + 1) % I == 0:  # line 7
            x = [project(_mean(_sent(move, project, project_first)))] * K  # line 8
            out.append((x[0], y_bar))
        else:
            x = [project(z) for z in move]
    return out


def _fed_svrg(h, z, step, tau, project=_same, project_first=False):
    """FedNest slides, "Gradient-Type Federated Optimization" with FedSVRG's direction, on oracles h[i](z) and with step/tau_i."""
    z = project(_vec(z))
    q = _mean([h_i(z) for h_i in h])  # 1/m sum_i of the gradients at the common point (first exchange)
    ends = []
    for i in range(len(h)):  # (1) i-th client
        z_i = z
        for _ in range(tau[i]):  # nu = 0 .. tau_i - 1
            at = project(z_i)
            z_i = at - (step / tau[i]) * (h[i](at) - h[i](z) + q)
        ends.append(z_i)
    return project(_mean(_sent(ends, project, project_first)))  # (2) server (second exchange)


def fed_inn(gy, x, y, beta, tau, project_y=_same, project_first=False):
    """FedNest slides, inner optimizer FedInn: one FedSVRG on y for mean_i g_i(x, .)."""
    return _fed_svrg([lambda z, i=i: gy[i](x, z) for i in range(len(gy))], y, beta, tau, project_y, project_first)


def fed_ihgp_random(fy, gyy, x, y, N, n_prime, ell):
    """FedNest slides, FedIHGP(x, y, N) for a drawn N' = n_prime in {0..N-1}; each term acts on the averaged p_{n-1}."""
    m = len(fy)
    p = (N / ell) * _mean([fy[i](x, y) for i in range(m)])  # p_0
    for _ in range(n_prime):  # n = 1 .. N'
        p = _mean([p - gyy[i](x, y, p) / ell for i in range(m)])  # p_{i,n} and their mean p_n
    return p


def fed_ihgp_deterministic(fy, gyy, x, y, N, ell):
    """The Neumann series itself: (1/ell) sum_{n=0..N} (I - H/ell)^n mean_i grad_y f_i, H = mean_i grad_yy g_i; N+1 terms, no factor N."""
    m = len(fy)
    term = _mean([fy[i](x, y) for i in range(m)]) / ell
    p = term
    for _ in range(N):
        term = _mean([term - gyy[i](x, y, term) / ell for i in range(m)])
        p = p + term
    return p


def fed_out(fx, gxy, x, y, p, alpha, tau, project_x=_same, project_first=False):
    """FedNest slides, outer optimizer FedOut: one FedSVRG on x with h_i(x') = grad_x f_i(x', y) - grad_xy g_i(x', y) p, p and y fixed."""
    h = [lambda z, i=i: fx[i](z, y) - gxy[i](z, y, p) for i in range(len(fx))]
    return _fed_svrg(h, x, alpha, tau, project_x, project_first)


def fednest(fx, fy, gy, gyy, gxy, x0, y0, alpha, beta, tau, T, N, ell, rounds, n_primes=None, inn=fed_inn, project_x=_same, project_y=_same,
            project_first=False):
    """FedNest slides, "Proposed Algorithm": T FedInn, FedIHGP at (x^k, y^{k+1}), FedOut. n_primes: N' per round (None: deterministic)."""
    x, y, out = project_x(_vec(x0)), project_y(_vec(y0)), []
    inner = {} if project_y is _same else {"project_y": project_y, "project_first": project_first}
    for k in range(rounds):  # k = 0 .. K-1
        for _ in range(T):
            y = inn(gy, x, y, beta, tau, **inner)  # (1) one or multiple FedSVRGs on y
        p = fed_ihgp_deterministic(fy, gyy, x, y, N, ell) if n_primes is None else fed_ihgp_random(fy, gyy, x, y, N, n_primes[k], ell)
        x = fed_out(fx, gxy, x, y, p, alpha, tau, project_x, project_first)  # (2) FedSVRG + FedIHGP on x
        out.append((x, y))
    return out


def broken_acc_fcsg_m(grads, x0, alpha, beta, q, rounds):
    """WRONG: Algorithm 2 with the averaged previous point in line 14 after an exchange. Same as the right one if q = 1, N = 1 or beta = 1,
    and the same averages if all clients have one constant Hessian: use unequal Hessians."""
    return acc_fcsg_m(grads, x0, alpha, beta, q, rounds, averaged_last=True)


def broken_fed_dro(g, g_jac, f_grad, h_grad, x0, eta, beta, I, rounds):
    """WRONG: Algorithm 2 with each client's own y_k in (7) and (8) within a round; y is averaged only together with x, every I steps."""
    K, out = len(g), []
    x = [_vec(x0) for _ in range(K)]
    x_prev = list(x)
    y = [_mean([g[k](x[k]) for k in range(K)])] * K
    for t in range(I * rounds):
        y = [(1 - beta) * (y[k] - g[k](x_prev[k])) + g[k](x[k]) for k in range(K)]
        x_prev = list(x)
        x = [x[k] - eta * (h_grad[k](x[k]) + g_jac[k](x[k]).T @ f_grad(y[k])) for k in range(K)]  # wrong: y_k, not y_bar
        if (t + 1) % I == 0:
            x, y = [_mean(x)] * K, [_mean(y)] * K
            out.append((x[0], y[0]))
    return out


def broken_fed_inn(gy, x, y, beta, tau, project_y=_same, project_first=False):
    """WRONG: FedInn without the correction -grad_i(y) + q, plain local SGD. Right if all tau_i = 1; else its limit drifts."""
    ends = []
    for i in range(len(gy)):
        y_i = _vec(y)
        for _ in range(tau[i]):
            y_i = project_y(y_i)
            y_i = y_i - (beta / tau[i]) * gy[i](x, y_i)
        ends.append(y_i)
    return project_y(_mean(_sent(ends, project_y, project_first)))
