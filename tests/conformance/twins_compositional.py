"""NumPy twins of the algorithms on compositions and on worst cases, written from the papers' statements.

As in twins.py: only NumPy is imported, client oracles are lists of plain callables, every client takes part, means are plain. An oracle
takes a point and a batch; `draws` says which: a list of batches for each client, used up in the order in which the paper samples.
`project` stands where twins.py says: gradients at projected points, unprojected ends averaged, the mean projected once; `project_first`
(WRONG) averages projected ends. The `broken_*` functions are deliberately wrong: a test that compares with a twin must fail when given its
broken variant.

Sources: FedAvg-CO (FedDRO paper, Algorithm 1 with equation (6)), Local-SCGD and Local-SCGDM (Gao, Li, Huang 2022), ComFedL (Huang, Li,
Huang 2021), SCGD (Wang, Fang, Liu 2017, Algorithm 1), NASA (Ghadimi, Ruszczynski, Wang 2020, Algorithm 1), CIVR (Zhang, Xiao 2019,
Algorithm 1), PDSG (Xu 2020, Algorithm 1), FastDRO (Levy et al. 2020, minibatch estimator).
"""

import numpy as np


def same(x):
    return x


def mean(vectors):
    return sum(vectors) / len(vectors)


def fedavg_co(g, jac, f_grad, h_grad, x0, eta, I, rounds, case, project=same, project_first=False):
    """FedDRO paper, Algorithm 1, lines 2-10; case "modified" shares y at each t (Theorem 4.2). h's gradient is added to (6)."""
    K, out = len(g), []
    x = [project(np.array(x0, dtype=float))] * K  # line 2
    y = [g[k](x[k]) for k in range(K)]  # line 2; in cases II and modified the common value
    if case != "I":
        y = [mean(y)] * K
    for t in range(I * rounds):  # line 3
        move = [x[k] - eta * (jac[k](x[k]).T @ f_grad(y[k]) + h_grad[k](x[k])) for k in range(K)]  # line 5, (6)
        x = [project(z) for z in move]
        if (t + 1) % I == 0:  # line 6
            x = [project(mean(x if project_first else move))] * K  # lines 7, 8
            out.append(x[0])
        y = [g[k](x[k]) for k in range(K)]  # line 5, and lines 7, 8 at the mean
        if case == "modified" or (case == "II" and (t + 1) % I == 0):
            y = [mean(y)] * K  # line 8; Theorem 4.2
    return out


def local_scgd(g, jac, f_grad, h_grad, x0, lr, c, q, rounds, project=same, project_first=False):
    """h_k = (1-c) h_k + c g_k(x_k); x_k = x_k - lr g_k'(x_k)^T f_k'(h_k); every q iterations all x_k and h_k become their means."""
    K, out = len(g), []
    x = [project(np.array(x0, dtype=float))] * K
    h = [mean([g[k](x[k]) for k in range(K)])] * K
    for t in range(1, q * rounds + 1):
        h = [(1 - c) * h[k] + c * g[k](x[k]) for k in range(K)]
        move = [x[k] - lr * (jac[k](x[k]).T @ f_grad[k](h[k]) + h_grad[k](x[k])) for k in range(K)]
        x = [project(z) for z in move]
        if t % q == 0:
            x, h = [project(mean(x if project_first else move))] * K, [mean(h)] * K
            out.append(x[0])
    return out


def local_scgdm(g, jac, f_grad, h_grad, x0, lr, c, a, q, rounds, project=same, project_first=False):
    """As local_scgd with u_k = (1-a) u_k + a g_k'(x_k)^T f_k'(h_k), x_k = x_k - lr u_k; x_k, u_k and h_k are averaged."""
    K, out = len(g), []
    x = [project(np.array(x0, dtype=float))] * K
    h = [g[k](x[k]) for k in range(K)]
    u = [mean([jac[k](x[k]).T @ f_grad[k](h[k]) + h_grad[k](x[k]) for k in range(K)])] * K
    h = [mean(h)] * K
    for t in range(1, q * rounds + 1):
        h = [(1 - c) * h[k] + c * g[k](x[k]) for k in range(K)]
        u = [(1 - a) * u[k] + a * (jac[k](x[k]).T @ f_grad[k](h[k]) + h_grad[k](x[k])) for k in range(K)]
        move = [x[k] - lr * u[k] for k in range(K)]
        x = [project(z) for z in move]
        if t % q == 0:
            x, u, h = [project(mean(x if project_first else move))] * K, [mean(u)] * K, [mean(h)] * K
            out.append(x[0])
    return out


def local_sgd(grads, x0, lr, q, rounds, project=same, project_first=False):
    """ComFedL: x_k = x_k - lr (f_k o g_k)'(x_k), q times, then the mean. With q = 1 it is MBSGD."""
    K, x, out = len(grads), [project(np.array(x0, dtype=float))] * len(grads), []
    for t in range(1, q * rounds + 1):
        move = [x[k] - lr * grads[k](x[k]) for k in range(K)]
        x = [project(z) for z in move]
        if t % q == 0:
            x = [project(mean(x if project_first else move))] * K
            out.append(x[0])
    return out


def scgd(g, jac, f_grad, h_grad, draws, x0, y0, alpha, beta, project=same):
    """SCGD, Algorithm 1: y_{k+1} = (1-beta) y_k + beta g_w(x_k); x_{k+1} = P(x_k - alpha g_w'(x_k)^T f'(y_{k+1})), w drawn once a k."""
    x, y, out = np.array(x0, dtype=float), np.array(y0, dtype=float), []
    for w, v in draws:
        y = (1 - beta) * y + beta * g(x, w)
        x = project(x - alpha * (jac(x, w).T @ f_grad(y) + h_grad(x, v)))
        out.append(x)
    return out


def nasa(g, jac, f_grad, h_grad, draws, x0, z0, u0, beta, tau, a, b, project=same):
    """NASA, Algorithm 1: y^k = argmin <z^k, y - x^k> + beta/2 |y - x^k|^2 over X; x^{k+1} = x^k + tau (y^k - x^k);
    z^{k+1} = (1 - a tau) z^k + a tau J^{k+1}^T s^{k+1} with s^{k+1} at u^k; u^{k+1} = (1 - b tau) u^k + b tau G^{k+1}."""
    x, z, u, out = np.array(x0, dtype=float), np.array(z0, dtype=float), np.array(u0, dtype=float), []
    for w, v in draws:
        y = project(x - z / beta)
        x = x + tau * (y - x)
        s = f_grad(u)
        z = (1 - a * tau) * z + a * tau * (jac(x, w).T @ s + h_grad(x, v))
        u = (1 - b * tau) * u + b * tau * g(x, w)
        out.append(x)
    return out


def gcivr(g, jac, f_grad, h_grad, draws, x0, eta, tau, rounds):
    """CIVR, Algorithm 1, on the mean of the clients: y, z (and w of h) anew from batches B every tau iterations, else corrected on S."""
    K, x, out, t = len(draws), np.array(x0, dtype=float), [], 0
    before = x
    for _ in range(rounds):
        for i in range(tau):
            batch = [draws[k][t] for k in range(K)]
            t += 1
            if i == 0:
                y, z, w = (mean([e(x, b) for b in batch]) for e in (g, jac, h_grad))
            else:
                y = y + mean([g(x, b) - g(before, b) for b in batch])
                z = z + mean([jac(x, b) - jac(before, b) for b in batch])
                w = w + mean([h_grad(x, b) - h_grad(before, b) for b in batch])
            before, x = x, x - eta * (z.T @ f_grad(y) + w)
        out.append(x)
    return out


def pdsgd(f0_grad, f, f_jac, x0, alpha, beta, rho, chosen):
    """PDSG, Algorithm 1: x = x - alpha (f_0'(x) + [beta f_j(x) + z_j]_+ f_j'(x)); z_i = z_i + rho max(-z_i/beta, f_i(x)) at the new x."""
    x, out = np.array(x0, dtype=float), []
    z = np.zeros(len(f(x)))
    for j, i in chosen:
        x = x - alpha * (f0_grad(x) + max(beta * f(x)[j] + z[j], 0.0) * f_jac(x)[j])
        z[i] = z[i] + rho * max(-z[i] / beta, f(x)[i])
        out.append((x, z.copy()))
    return out


def exponentiated(fx, fp, x0, p0, lr, rho, rounds):
    """x = x - lr f_x(x, p), p_j ~ p_j exp(rho f_pj(x, p)), both at the old point."""
    x, p, out = np.array(x0, dtype=float), np.array(p0, dtype=float), []
    for _ in range(rounds):
        dx, dp = fx(x, p), fp(x, p)
        x = x - lr * dx
        p = p * np.exp(rho * dp)
        p = p / p.sum()
        out.append((x, p))
    return out


def broken_local_scgd(g, jac, f_grad, h_grad, x0, lr, c, q, rounds):
    """WRONG: h stays at its client across the average of x. Right if c = 1, or K = 1."""
    K, out = len(g), []
    x = [np.array(x0, dtype=float)] * K
    h = [mean([g[k](x[k]) for k in range(K)])] * K
    for t in range(1, q * rounds + 1):
        h = [(1 - c) * h[k] + c * g[k](x[k]) for k in range(K)]
        x = [x[k] - lr * (jac[k](x[k]).T @ f_grad[k](h[k]) + h_grad[k](x[k])) for k in range(K)]
        if t % q == 0:
            x = [mean(x)] * K
            out.append(x[0])
    return out


def broken_local_scgdm(g, jac, f_grad, h_grad, x0, lr, c, a, q, rounds):
    """WRONG: x moves along the gradient and not along u. Right if a = 1."""
    return local_scgd(g, jac, f_grad, h_grad, x0, lr, c, q, rounds)


def broken_scgd(g, jac, f_grad, h_grad, draws, x0, y0, alpha, beta):
    """WRONG: the step uses the old y. Right where y no longer changes."""
    x, y, out = np.array(x0, dtype=float), np.array(y0, dtype=float), []
    for w, v in draws:
        slope = f_grad(y)
        y = (1 - beta) * y + beta * g(x, w)
        x = x - alpha * (jac(x, w).T @ slope + h_grad(x, v))
        out.append(x)
    return out


def broken_nasa(g, jac, f_grad, h_grad, draws, x0, z0, u0, beta, tau, a, b):
    """WRONG: s at the new u."""
    x, z, u, out = np.array(x0, dtype=float), np.array(z0, dtype=float), np.array(u0, dtype=float), []
    for w, v in draws:
        x = x - tau * z / beta
        u = (1 - b * tau) * u + b * tau * g(x, w)
        z = (1 - a * tau) * z + a * tau * (jac(x, w).T @ f_grad(u) + h_grad(x, v))
        out.append(x)
    return out


def broken_gcivr(g, jac, f_grad, h_grad, draws, x0, eta, tau, rounds):
    """WRONG: no corrections, but all taken anew from the small batch. Right with full batches, or tau = 1."""
    return gcivr(g, jac, f_grad, h_grad, draws, x0, eta, 1, tau * rounds)[tau - 1::tau]


def broken_pdsgd(f0_grad, f, f_jac, x0, alpha, beta, rho, chosen):
    """WRONG: multipliers may become negative, and an inactive constraint pulls."""
    x, out = np.array(x0, dtype=float), []
    z = np.zeros(len(f(x)))
    for j, i in chosen:
        x = x - alpha * (f0_grad(x) + (beta * f(x)[j] + z[j]) * f_jac(x)[j])
        z[i] = z[i] + rho * f(x)[i]
        out.append((x, z.copy()))
    return out
