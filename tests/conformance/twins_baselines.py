"""NumPy twins of the single-level baselines and of the one-machine conditional methods, written from the papers' statements.

As in twins.py: only NumPy is imported, client oracles are lists of plain deterministic callables, every client takes part, `weights` are
normalised here. `project` stands where twins.py says: gradients at projected points, unprojected ends sent, the server's result projected;
`project_first` (WRONG) projects what is sent. The `broken_*` functions are deliberately wrong: a test that compares with a twin must fail
when given its broken variant.

Sources: FedProx (Li et al. 2020, Algorithm 2), FedNova (Wang et al. 2020, the normalised update and its table of ‖a_i‖_1), FedLin (Mitra
et al. 2021), FedSVRG (FedNest slides, "Gradient-Type Federated Optimization"), LocalSGDM (Yu, Jin, Yang 2019), FedOpt (Reddi et al. 2021,
Algorithm 2), FedAvgM (Hsu, Qi, Brown 2019), BSGD and BSpiderBoost (Hu et al. 2020, Algorithms 1 and 2).
"""

import numpy as np


def same(x):
    return x


def shares(weights, n):
    w = np.ones(n) if weights is None else np.array(weights, dtype=float)
    return w / w.sum()


def average(vectors, p):
    return sum(p_i * v_i for p_i, v_i in zip(p, vectors, strict=True))


def local_end(direction, x, step, steps, project, project_first=False):
    """What a client sends after z <- P(z) - step·direction(P(z)), `steps` times from x."""
    z = x
    for _ in range(steps):
        z = project(z)
        z = z - step * direction(z)
    return project(z) if project_first else z


def fedprox(grads, x0, lr, steps, rounds, mu, weights=None, project=same, project_first=False):
    """Algorithm 2: SGD on h_k(w; w^t) = F_k(w) + mu/2 ‖w - w^t‖^2, whose gradient is F_k'(w) + mu (w - w^t); then the mean."""
    w, out, p = project(np.array(x0, dtype=float)), [], shares(weights, len(grads))
    for _ in range(rounds):
        ends = [local_end(lambda z, grad=grad, w=w: grad(z) + mu * (z - w), w, lr, steps, project, project_first) for grad in grads]
        w = project(average(ends, p))
        out.append(w)
    return out


def fednova(grads, x0, lr, tau, rounds, rho=0.0, weights=None, project=same, project_first=False, summed=False):
    """x <- x - tau_eff sum_i p_i eta d_i with d_i = G_i a_i / ‖a_i‖_1 and tau_eff = sum_i p_i ‖a_i‖_1.

    G_i holds the round's gradients; under momentum from zero a gradient of step k is counted 1 + rho + ... + rho^(tau_i - 1 - k) times.
    eta G_i a_i is the client's change x - x_i. Under a constraint the two differ once a local point is projected: the change is sent here,
    so that equal tau_i give FedAvg as they do without a constraint. `summed`: the other reading, G_i a_i itself at projected points."""
    x, out, p = project(np.array(x0, dtype=float)), [], shares(weights, len(grads))
    for _ in range(rounds):
        d, norm = [], []
        for grad, t in zip(grads, tau, strict=True):
            a = [sum(rho**j for j in range(t - k)) for k in range(t)]
            G, x_i = [], x
            for k in range(t):
                x_i = project(x_i)
                G.append(grad(x_i))
                x_i = x_i - lr * sum(rho ** (k - s) * G[s] for s in range(k + 1))
            end = project(x_i) if project_first else x_i
            d.append((sum(a_k * g_k for a_k, g_k in zip(a, G, strict=True)) if summed else (x - end) / lr) / sum(a))
            norm.append(sum(a))
        x = project(x - average(norm, p) * lr * average(d, p))
        out.append(x)
    return out


def fedlin(grads, x0, eta, tau, rounds, weights=None, project=same, project_first=False):
    """x_{i,l+1} = x_{i,l} - eta_i (f_i'(x_{i,l}) - f_i'(x_t) + g_t), eta_i = eta / tau_i, g_t = mean f_i'(x_t); then the mean."""
    x, out, p = project(np.array(x0, dtype=float)), [], shares(weights, len(grads))
    for _ in range(rounds):
        g = average([grad(x) for grad in grads], p)
        ends = [local_end(lambda z, grad=grad, x=x, g=g: grad(z) - grad(x) + g, x, eta / t, t, project, project_first)
                for grad, t in zip(grads, tau, strict=True)]
        x = project(average(ends, p))
        out.append(x)
    return out


def fedsvrg(grads, x0, alpha, tau, rounds, project=same, project_first=False):
    """x_{i,nu+1} = x_{i,nu} + alpha_i h, h = -f_i'(x_{i,nu}) + f_i'(x) - 1/m sum_j f_j'(x), alpha_i = alpha/tau_i; then 1/m sum_i."""
    m, x, out = len(grads), project(np.array(x0, dtype=float)), []
    for _ in range(rounds):
        total = np.zeros_like(x)
        for i in range(m):
            z = x
            for _ in range(tau[i]):
                z = project(z)
                h = -grads[i](z) + grads[i](x) - sum(grad(x) for grad in grads) / m
                z = z + alpha / tau[i] * h
            total = total + (project(z) if project_first else z) / m
        x = project(total)
        out.append(x)
    return out


def local_sgdm(grads, x0, lr, steps, rounds, beta, weights=None, project=same, project_first=False):
    """u_i <- beta u_i + f_i'(x_i), x_i <- x_i - gamma u_i at every iteration t; every I iterations all u_i and x_i become their means."""
    n, p, out = len(grads), shares(weights, len(grads)), []
    x, u = [project(np.array(x0, dtype=float))] * n, [np.zeros(len(x0))] * n
    for t in range(1, steps * rounds + 1):
        u = [beta * u[i] + grads[i](x[i]) for i in range(n)]
        move = [x[i] - lr * u[i] for i in range(n)]
        x = [project(z) for z in move]
        if t % steps == 0:
            u, x = [average(u, p)] * n, [project(average(x if project_first else move, p))] * n
            out.append(x[0])
    return out


def fedopt(grads, x0, lr, steps, rounds, server, eta, beta1, beta2, tau, weights=None, project=same, project_first=False):
    """Algorithm 2: Delta = mean (x_i - x); m = beta1 m + (1 - beta1) Delta; v by the server, from tau^2; x = x + eta m / (sqrt(v) + tau).

    "momentum" is FedAvgM: with Delta w = -Delta, v = beta v + Delta w, w = w - eta v."""
    x, out, p = project(np.array(x0, dtype=float)), [], shares(weights, len(grads))
    m, v = np.zeros(len(x)), np.full(len(x), tau**2)
    for _ in range(rounds):
        delta = average([local_end(grad, x, lr, steps, project, project_first) - x for grad in grads], p)
        if server == "momentum":
            m = beta1 * m - delta
            x = project(x - eta * m)
        else:
            m = beta1 * m + (1 - beta1) * delta
            if server == "adagrad":
                v = v + delta**2
            elif server == "yogi":
                v = v - (1 - beta2) * delta**2 * np.sign(v - delta**2)
            elif server == "adam":
                v = beta2 * v + (1 - beta2) * delta**2
            x = project(x + eta * m / (np.sqrt(v) + tau))
        out.append(x)
    return out


def bsgd(batches, x0, lr, project=same):
    """Algorithm 1: x <- x - gamma F'(x; batch of iteration t); `batches` has the gradient on each iteration's batch."""
    x, out = project(np.array(x0, dtype=float)), []
    for grad in batches:
        x = project(x - lr * grad(x))
        out.append(x)
    return out


def bspiderboost(batches, x0, lr, q, project=same):
    """Algorithm 2: v = F'(x_t; large batch) if t mod q = 0, else v + F'(x_t; b) - F'(x_{t-1}; b) on one b; then x <- x - gamma v."""
    x = before = project(np.array(x0, dtype=float))
    v, out = np.zeros(len(x)), []
    for t, grad in enumerate(batches):
        v = grad(x) if t % q == 0 else v + grad(x) - grad(before)
        before, x = x, project(x - lr * v)
        out.append(x)
    return out


def broken_fedprox(grads, x0, lr, steps, rounds, mu):
    """WRONG: the pull goes to the origin, as weight decay does, and not to the round's first point."""
    return fedprox([lambda z, grad=grad: grad(z) + mu * z for grad in grads], x0, lr, steps, rounds, 0.0)


def broken_fednova(grads, x0, lr, tau, rounds, rho, weights=None):
    """WRONG: momentum's ‖a_i‖_1 taken for tau_i, as if it were plain SGD. Right if all tau_i are equal, or rho = 0."""
    x, out, p = np.array(x0, dtype=float), [], shares(weights, len(grads))
    for _ in range(rounds):
        d = []
        for grad, t in zip(grads, tau, strict=True):
            x_i, u = x, np.zeros(len(x))
            for _ in range(t):
                u = rho * u + grad(x_i)
                x_i = x_i - lr * u
            d.append((x - x_i) / t)
        x = x - average(tau, p) * average(d, p)
        out.append(x)
    return out


def broken_fedlin(grads, x0, eta, tau, rounds):
    """WRONG: steps of size eta, not eta / tau_i. Right if all tau_i = 1."""
    x, out, p = np.array(x0, dtype=float), [], shares(None, len(grads))
    for _ in range(rounds):
        g = average([grad(x) for grad in grads], p)
        ends = []
        for grad, t in zip(grads, tau, strict=True):
            x_i = x
            for _ in range(t):
                x_i = x_i - eta * (grad(x_i) - grad(x) + g)
            ends.append(x_i)
        x = average(ends, p)
        out.append(x)
    return out


def broken_fedsvrg(grads, x0, alpha, tau, rounds):
    """WRONG: without + f_i'(x), so that the mean gradient is added to the own one instead of taking its place."""
    m, x, out = len(grads), np.array(x0, dtype=float), []
    for _ in range(rounds):
        ends = []
        for i in range(m):
            z = x
            for _ in range(tau[i]):
                z = z - alpha / tau[i] * (grads[i](z) + sum(grad(x) for grad in grads) / m)
            ends.append(z)
        x = sum(ends) / m
        out.append(x)
    return out


def broken_local_sgdm(grads, x0, lr, steps, rounds, beta):
    """WRONG: each client keeps its own momentum across the average. Right if steps = 1 (the mean is linear), or beta = 0."""
    n, out = len(grads), []
    x, u = [np.array(x0, dtype=float)] * n, [np.zeros(len(x0))] * n
    for t in range(1, steps * rounds + 1):
        u = [beta * u[i] + grads[i](x[i]) for i in range(n)]
        x = [x[i] - lr * u[i] for i in range(n)]
        if t % steps == 0:
            x = [sum(x) / n] * n
            out.append(x[0])
    return out


def broken_fedopt(grads, x0, lr, steps, rounds, server, eta, beta1, beta2, tau):
    """WRONG: v starts at 0, and m comes without its 1 - beta1 (with it for "momentum", where it does not belong)."""
    x, out = np.array(x0, dtype=float), []
    m, v = np.zeros(len(x)), np.zeros(len(x))
    for _ in range(rounds):
        ends = []
        for grad in grads:
            x_i = x
            for _ in range(steps):
                x_i = x_i - lr * grad(x_i)
            ends.append(x_i)
        delta = sum(ends) / len(ends) - x
        if server == "momentum":
            m = beta1 * m + (1 - beta1) * delta
            x = x + eta * m
        else:
            m = beta1 * m + delta
            v = {"adagrad": v + delta**2, "adam": beta2 * v + (1 - beta2) * delta**2,
                 "yogi": v - (1 - beta2) * delta**2 * np.sign(v - delta**2)}[server]
            x = x + eta * m / (np.sqrt(v) + tau)
        out.append(x)
    return out


def broken_bspiderboost(batches, x0, lr, q):
    """WRONG: the old gradient is the one on the previous batch, not on this one: v is then this batch's gradient alone, which is BSGD."""
    x, out = np.array(x0, dtype=float), []
    v = last = np.zeros(len(x))
    for t, grad in enumerate(batches):
        v = grad(x) if t % q == 0 else v + grad(x) - last
        last, x = grad(x), x - lr * v
        out.append(x)
    return out
