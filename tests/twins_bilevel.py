"""NumPy twins of the bilevel and minimax methods, written from the papers' statements.

As in twins.py: only NumPy is imported, client oracles are lists of plain deterministic callables, every client takes part, means are plain,
and `project` stands after each local move and after each mean. Random numbers (N' of a Neumann product) are given. The `broken_*` functions
are deliberately wrong: a test that compares with a twin must fail when given its broken variant.

Sources: LFedNest and FedNest-SGD (FedNest slides, "Communication Efficiency via Local Hypergradient" and its table), conjugate gradients
(Hestenes, Stiefel 1952), LocalSGDA (Deng, Mahdavi 2021), FedAvg-S (Hou et al. 2021), SGDA (Lin, Jin, Jordan 2020), SMD (Rafique et al.
2021), FedGDA-GT (Sun, Wei 2022), ALSET (Chen, Sun, Yin 2021), BSA (Ghadimi, Wang 2018), TTSA (Hong et al. 2020), stocBiO (Ji, Yang, Liang
2021), SimFBO and ShroFBO (Yang, Xiao, Ji 2023), FedBiOAcc (Li, Huang, Huang 2023).
"""

import numpy as np


def same(z):
    return z


def mean(vectors):
    return sum(vectors) / len(vectors)


# FedNest's relatives


def conjugate_gradient(product, b, iterations):
    """Solve H p = b from p = 0: step ‖r‖²/(s·Hs) along s, then s <- r + (‖r_new‖²/‖r‖²) s."""
    p, r = np.zeros_like(b), b.copy()
    s = r.copy()
    for _ in range(iterations):
        Hs = product(s)
        a = r @ r / (s @ Hs)
        p = p + a * s
        r_new = r - a * Hs
        s = r_new + (r_new @ r_new) / (r @ r) * s
        r = r_new
    return p


def own_series(gyy, v, N, ell, n_prime=None):
    """sum_{n=0..N} (I - H/ell)^n v / ell; with n_prime the random form (N/ell)(I - H/ell)^{N'} v."""
    term, total = v / ell, v / ell
    if n_prime is not None:
        term = N * term
        for _ in range(n_prime):
            term = term - gyy(term) / ell
        return term
    for _ in range(N):
        term = term - gyy(term) / ell
        total = total + term
    return total


def inner_sgd(gy, x, y, beta, tau):
    """FedInn with SGD: plain local steps of size beta/tau_i, one mean."""
    ends = []
    for i in range(len(gy)):
        y_i = y
        for _ in range(tau[i]):
            y_i = y_i - beta / tau[i] * gy[i](x, y_i)
        ends.append(y_i)
    return mean(ends)


def lfednest(fx, fy, gy, gyy, gxy, x0, y0, alpha, beta, tau, T, N, ell, rounds, n_primes=None, stale=False, outer=None):
    """Table: SGD on x, SGD on y, no global gradient and no global IHGP. `stale` (WRONG): p_i once a round instead of at every step.

    outer: local steps on x, where they are not tau"""
    outer = outer or tau
    x, y, out = np.array(x0, float), np.array(y0, float), []
    for k in range(rounds):
        for _ in range(T):
            y = inner_sgd(gy, x, y, beta, tau)
        ends = []
        for i in range(len(fx)):
            x_i, n = x, None if n_primes is None else n_primes[k]
            for _ in range(outer[i]):
                at = x if stale else x_i
                p = own_series(lambda v, i=i, at=at, y=y: gyy[i](at, y, v), fy[i](at, y), N, ell, n)
                x_i = x_i - alpha / outer[i] * (fx[i](x_i, y) - gxy[i](x_i, y, p))
            ends.append(x_i)
        x = mean(ends)
        out.append((x, y))
    return out


def fednest_sgd(fx, fy, gy, gyy, gxy, x0, y0, alpha, beta, tau, T, N, ell, rounds, conjugate=False, inn=inner_sgd, outer=None):
    """Table: SVRG on x, SGD on y, global IHGP (the summed series, or N steps of conjugate gradients)."""
    m, outer = len(fx), outer or tau
    x, y, out = np.array(x0, float), np.array(y0, float), []
    for _ in range(rounds):
        for _ in range(T):
            y = inn(gy, x, y, beta, tau)
        v = mean([fy[i](x, y) for i in range(m)])

        def H(u, x=x, y=y):
            return mean([gyy[i](x, y, u) for i in range(m)])

        p = conjugate_gradient(H, v, N) if conjugate else own_series(H, v, N, ell)
        h = mean([fx[i](x, y) - gxy[i](x, y, p) for i in range(m)])
        ends = []
        for i in range(m):
            x_i = x
            for _ in range(outer[i]):
                x_i = x_i - alpha / outer[i] * ((fx[i](x_i, y) - gxy[i](x_i, y, p)) - (fx[i](x, y) - gxy[i](x, y, p)) + h)
            ends.append(x_i)
        x = mean(ends)
        out.append((x, y))
    return out


# minimax


def local_sgda(fx, fy, x0, y0, eta_x, eta_y, tau, rounds, order="simultaneous", project_x=same, project_y=same):
    """Every node: x <- x - eta_x F_x, y <- y + eta_y F_y at the same point, tau times; then both are averaged. FedAvg-S adds "y first"."""
    x, y, out = np.array(x0, float), np.array(y0, float), []
    for _ in range(rounds):
        xs, ys = [], []
        for i in range(len(fx)):
            x_i, y_i = x, y
            for _ in range(tau[i]):
                y_new = project_y(y_i + eta_y * fy[i](x_i, y_i))
                x_i = project_x(x_i - eta_x * fx[i](x_i, y_new if order == "y first" else y_i))
                y_i = y_new
            xs.append(x_i)
            ys.append(y_i)
        x, y = project_x(mean(xs)), project_y(mean(ys))
        out.append((x, y))
    return out


def sgda(fx, fy, x0, y0, eta_x, eta_y, rounds):
    """Descent ascent on the whole objective."""
    x, y, out = np.array(x0, float), np.array(y0, float), []
    for _ in range(rounds):
        gx, gy = mean([g(x, y) for g in fx]), mean([g(x, y) for g in fy])
        x, y = x - eta_x * gx, y + eta_y * gy
        out.append((x, y))
    return out


def fedgda_gt(fx, fy, x0, y0, eta, K, rounds, tracking=True):
    """K local steps along own gradient - own gradient at the round's point + global gradient there. `tracking=False` (WRONG) drops both."""
    m, x, y, out = len(fx), np.array(x0, float), np.array(y0, float), []
    for _ in range(rounds):
        gx, gy = mean([g(x, y) for g in fx]), mean([g(x, y) for g in fy])
        xs, ys = [], []
        for i in range(m):
            x_i, y_i = x, y
            cx, cy = (gx - fx[i](x, y), gy - fy[i](x, y)) if tracking else (0, 0)
            for _ in range(K):
                x_i, y_i = x_i - eta * (fx[i](x_i, y_i) + cx), y_i + eta * (fy[i](x_i, y_i) + cy)
            xs.append(x_i)
            ys.append(y_i)
        x, y = mean(xs), mean(ys)
        out.append((x, y))
    return out


def smd(fx, fy, x0, y0, eta_x, eta_y, gamma, first, stages, prox=True):
    """Stage t: j_t = first·(t+1)² steps on f + ‖x - xbar‖²/(2 gamma); xbar <- mean of the iterates. `prox=False` (WRONG) has no guide."""
    x, y, out = np.array(x0, float), np.array(y0, float), []
    for t in range(stages):
        centre, xs, ys = x, [], []
        for _ in range(first * (t + 1) ** 2):
            xs.append(x)
            ys.append(y)
            x, y = x - eta_x * (fx(x, y) + (x - centre) / gamma * prox), y + eta_y * fy(x, y)
        x, y = mean(xs), mean(ys)
        out.append((x, y))
    return out


# bilevel on one machine: f and g have one client


def _outer(fx, gxy, x, y, v, alpha):
    return x - alpha * (fx(x, y) - gxy(x, y, v))


def alset(fx, fy, gy, gyy, gxy, x0, y0, alpha, beta, T, N, ell, n_primes):
    """T steps on y, then one step on x with (N/ell) prod_{N'} (I - H/ell) grad_y f at the new y."""
    x, y, out = np.array(x0, float), np.array(y0, float), []
    for n in n_primes:
        for _ in range(T):
            y = y - beta * gy(x, y)
        x = _outer(fx, gxy, x, y, own_series(lambda v, x=x, y=y: gyy(x, y, v), fy(x, y), N, ell, n), alpha)
        out.append((x, y))
    return out


def bsa(fx, fy, gy, gyy, gxy, x0, y0, alpha, beta, T, N, ell, n_primes, warm=False):
    """Iteration k: t_k steps on y from y_0, the same in every iteration; then HIA. `warm` (WRONG) goes on from the last y."""
    x, out, last = np.array(x0, float), [], np.array(y0, float)
    for k, n in enumerate(n_primes):
        y = last if warm else np.array(y0, float)
        for _ in range(T * int(np.ceil(np.sqrt(k + 1)))):
            y = y - beta * gy(x, y)
        x, last = _outer(fx, gxy, x, y, own_series(lambda v, x=x, y=y: gyy(x, y, v), fy(x, y), N, ell, n), alpha), y
        out.append((x, y))
    return out


def ttsa(fx, fy, gy, gyy, gxy, x0, y0, alpha, beta, N, ell, n_primes, swapped=False):
    """y <- y - b_k grad_y g, then x at the new y; a_k = alpha k^(-3/5), b_k = beta k^(-2/5). `swapped` (WRONG) exchanges the exponents."""
    x, y, out = np.array(x0, float), np.array(y0, float), []
    slow, fast = (-0.4, -0.6) if swapped else (-0.6, -0.4)
    for k, n in enumerate(n_primes, 1):
        y = y - beta * k**fast * gy(x, y)
        x = _outer(fx, gxy, x, y, own_series(lambda v, x=x, y=y: gyy(x, y, v), fy(x, y), N, ell, n), alpha * k**slow)
        out.append((x, y))
    return out


def stocbio(fx, fy, gy, gyy, gxy, x0, y0, alpha, beta, D, Q, eta, rounds):
    """D steps on y from the last one; v = eta sum_{q=0..Q} prod_q (I - eta H) grad_y f."""
    x, y, out = np.array(x0, float), np.array(y0, float), []
    for _ in range(rounds):
        for _ in range(D):
            y = y - beta * gy(x, y)
        r = fy(x, y)
        total = r
        for _ in range(Q):
            r = r - eta * gyy(x, y, r)
            total = total + r
        x = _outer(fx, gxy, x, y, eta * total, alpha)
        out.append((x, y))
    return out


# beyond


def simfbo(fx, fy, gy, gyy, gxy, x0, y0, gamma, eta, tau, rounds, radius=np.inf, normalised=False, alternating=False):
    """gamma and eta are (x, y, v) rates of server and clients. Clients send sums of their directions; the server steps along their mean and
    projects v. normalised: ShroFBO. `alternating` (WRONG): y first, then v and x at the new y."""
    m = len(fx)
    x, y, v, out = np.array(x0, float), np.array(y0, float), np.zeros_like(np.array(y0, float)), []
    for _ in range(rounds):
        sums = []
        for i in range(m):
            x_i, y_i, v_i, s = x, y, v, [0, 0, 0]
            for _ in range(tau[i]):
                hy = gy[i](x_i, y_i)
                y_at = y_i - eta[1] * hy if alternating else y_i
                hv = gyy[i](x_i, y_at, v_i) - fy[i](x_i, y_at)
                hx = fx[i](x_i, y_at) - gxy[i](x_i, y_at, v_i)
                x_i, y_i, v_i = x_i - eta[0] * hx, y_i - eta[1] * hy, v_i - eta[2] * hv
                s = [s[0] + hx, s[1] + hy, s[2] + hv]
            sums.append([part / tau[i] for part in s] if normalised else s)
        rho = mean(list(tau)) if normalised else 1.0
        hx, hy, hv = (mean([s[j] for s in sums]) for j in range(3))
        x, y, v = x - rho * gamma[0] * hx, y - rho * gamma[1] * hy, v - rho * gamma[2] * hv
        v = v * min(1.0, radius / max(np.linalg.norm(v), 1e-300))
        out.append((x, y, v))
    return out


def fedbioacc(fx, fy, gy, gyy, gxy, x0, y0, eta, gamma, tau, delta, u_0, c, I, rounds, radius=np.inf, start=None, stale=False):
    """STORM in all three variables: new point, then d <- grad(new) + (1 - c a²)(d - grad(old)); all six averaged every I iterations.

    `start` gives (omega, nu, q); else they are the means at the start. `stale` (WRONG): the momenta stay at the clients."""
    m = len(fx)

    def directions(i, x, y, u):
        return [gy[i](x, y), fx[i](x, y) - gxy[i](x, y, u), gyy[i](x, y, u) - fy[i](x, y)]

    def inside(u):
        return u * min(1.0, radius / max(np.linalg.norm(u), 1e-300))

    z = [(np.array(x0, float), np.array(y0, float), np.zeros_like(np.array(y0, float))) for _ in range(m)]
    first = [directions(i, *z[i]) for i in range(m)]
    common = [mean([f[j] for f in first]) for j in range(3)] if start is None else list(start)
    d, out = [list(common) for _ in range(m)], []
    for t in range(1, I * rounds + 1):
        a = delta / (u_0 + t) ** (1 / 3)
        for i in range(m):
            x, y, u = z[i]
            new = (x - eta * a * d[i][1], y - gamma * a * d[i][0], inside(u - tau * a * d[i][2]))
            at_new, at_old = directions(i, *new), directions(i, x, y, u)
            d[i] = [n + (1 - c * a * a) * (k - o) for n, k, o in zip(at_new, d[i], at_old, strict=True)]
            z[i] = new
        if t % I == 0:
            point = tuple(mean([z[i][j] for i in range(m)]) for j in range(3))
            z = [(point[0], point[1], inside(point[2]))] * m
            if not stale:
                d = [[mean([d[i][j] for i in range(m)]) for j in range(3)]] * m
                d = [list(row) for row in d]
            out.append(z[0])
    return out
