"""NumPy twins of the bilevel methods, written from the papers' statements.

As in twins.py: only NumPy is imported, client oracles are lists of plain deterministic callables, every client takes part, means are plain.
`project_x` and `project_y` stand where twins.py says: gradients at projected points, unprojected ends averaged, the means projected once;
`project_first` (WRONG) averages projected ends. Random numbers (N' of a Neumann product) are given. The `broken_*` functions are
deliberately wrong: a test that compares with a twin must fail when given its broken variant.

Sources: LFedNest and FedNest-SGD (FedNest slides, "Communication Efficiency via Local Hypergradient" and its table), conjugate gradients
(Hestenes, Stiefel 1952), ALSET (Chen, Sun, Yin 2021), BSA (Ghadimi, Wang 2018), TTSA (Hong et al. 2020), stocBiO (Ji, Yang, Liang 2021),
SimFBO and ShroFBO (Yang, Xiao, Ji 2023), FedBiOAcc (Li, Huang, Huang 2023).
"""

import numpy as np
from twins_minimax import fedgda_gt, local_sgda, mean, same, sgda, smd  # noqa: F401  (callers find the minimax twins here too)

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


def inner_sgd(gy, x, y, beta, tau, project_y=same, project_first=False):
    """FedInn with SGD: plain local steps of size beta/tau_i, one mean."""
    ends = []
    for i in range(len(gy)):
        y_i = y
        for _ in range(tau[i]):
            y_i = project_y(y_i)
            y_i = y_i - beta / tau[i] * gy[i](x, y_i)
        ends.append(project_y(y_i) if project_first else y_i)
    return project_y(mean(ends))


def lfednest(fx, fy, gy, gyy, gxy, x0, y0, alpha, beta, tau, T, N, ell, rounds, n_primes=None, stale=False, outer=None, project_x=same,
             project_y=same, project_first=False):
    """Table: SGD on x, SGD on y, no global gradient and no global IHGP. `stale` (WRONG): p_i once a round instead of at every step.

    outer: local steps on x, where they are not tau"""
    outer = outer or tau
    x, y, out = project_x(np.array(x0, float)), project_y(np.array(y0, float)), []
    for k in range(rounds):
        for _ in range(T):
            y = inner_sgd(gy, x, y, beta, tau, project_y, project_first)
        ends = []
        for i in range(len(fx)):
            x_i, n = x, None if n_primes is None else n_primes[k]
            for _ in range(outer[i]):
                x_i = project_x(x_i)
                at = x if stale else x_i
                p = own_series(lambda v, i=i, at=at, y=y: gyy[i](at, y, v), fy[i](at, y), N, ell, n)
                x_i = x_i - alpha / outer[i] * (fx[i](x_i, y) - gxy[i](x_i, y, p))
            ends.append(project_x(x_i) if project_first else x_i)
        x = project_x(mean(ends))
        out.append((x, y))
    return out


def fednest_sgd(fx, fy, gy, gyy, gxy, x0, y0, alpha, beta, tau, T, N, ell, rounds, conjugate=False, inn=inner_sgd, outer=None,
                project_x=same, project_y=same, project_first=False):
    """Table: SVRG on x, SGD on y, global IHGP (the summed series, or N steps of conjugate gradients)."""
    m, outer = len(fx), outer or tau
    inner = {} if project_y is same else {"project_y": project_y, "project_first": project_first}
    x, y, out = project_x(np.array(x0, float)), project_y(np.array(y0, float)), []
    for _ in range(rounds):
        for _ in range(T):
            y = inn(gy, x, y, beta, tau, **inner)
        v = mean([fy[i](x, y) for i in range(m)])

        def H(u, x=x, y=y):
            return mean([gyy[i](x, y, u) for i in range(m)])

        p = conjugate_gradient(H, v, N) if conjugate else own_series(H, v, N, ell)

        def h(i, z, y=y, p=p):
            return fx[i](z, y) - gxy[i](z, y, p)

        common = mean([h(i, x) for i in range(m)])
        ends = []
        for i in range(m):
            x_i = x
            for _ in range(outer[i]):
                x_i = project_x(x_i)
                x_i = x_i - alpha / outer[i] * (h(i, x_i) - h(i, x) + common)
            ends.append(project_x(x_i) if project_first else x_i)
        x = project_x(mean(ends))
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


def ball(v, radius):
    return v * min(1.0, radius / max(np.linalg.norm(v), 1e-300))


def simfbo(fx, fy, gy, gyy, gxy, x0, y0, gamma, eta, tau, rounds, radius=np.inf, normalised=False, alternating=False, weights=None,
           cohorts=None, project_x=same, project_y=same, renormalised=False):
    """gamma and eta are (x, y, v) rates of server and clients. Client i sends the sums h_i of its tau_i directions, taken at projected x_i
    and y_i; the server steps along h = sum_{i in C} pt_i h_i with pt_i = (n/|C|) p_i, the p_i of all n clients summing to 1: over uniform
    cohorts h is unbiased; pt is not made to sum to 1 within a cohort. x and y are projected at the server, v into its ball (there only).

    normalised: ShroFBO, h_i / ‖a_i‖_1 in the place of h_i (here ‖a_i‖_1 = tau_i), the same pt_i, and server rates times
    rho = sum_i p_i ‖a_i‖_1 over all clients, which a cohort does not change. cohorts: client indices of each round (None: all).
    `alternating` (WRONG): y first, then v and x at the new y. `renormalised` (WRONG): pt_i = p_i / sum_C p_i; right if the
    p_i are equal or C is everyone."""
    n, p = len(fx), np.ones(len(fx)) if weights is None else np.array(weights, float)
    p = p / p.sum()
    x, y = project_x(np.array(x0, float)), project_y(np.array(y0, float))
    v, out = np.zeros_like(y), []
    for r in range(rounds):
        cohort = range(n) if cohorts is None else cohorts[r]
        h = [0.0, 0.0, 0.0]
        for i in cohort:
            x_i, y_i, v_i, total = x, y, v, [0.0, 0.0, 0.0]
            for _ in range(tau[i]):
                x_i, y_i = project_x(x_i), project_y(y_i)
                hy = gy[i](x_i, y_i)
                y_at = project_y(y_i - eta[1] * hy) if alternating else y_i
                step = [fx[i](x_i, y_at) - gxy[i](x_i, y_at, v_i), hy, gyy[i](x_i, y_at, v_i) - fy[i](x_i, y_at)]
                x_i, y_i, v_i = x_i - eta[0] * step[0], y_i - eta[1] * step[1], v_i - eta[2] * step[2]
                total = [a + b for a, b in zip(total, step, strict=True)]
            pt = p[i] / sum(p[j] for j in cohort) if renormalised else n / len(cohort) * p[i]
            h = [a + pt * b / (tau[i] if normalised else 1) for a, b in zip(h, total, strict=True)]
        rate = sum(p[i] * tau[i] for i in range(n)) if normalised else 1.0
        x, y = project_x(x - rate * gamma[0] * h[0]), project_y(y - rate * gamma[1] * h[1])
        v = ball(v - rate * gamma[2] * h[2], radius)
        out.append((x, y, v))
    return out


def fedbioacc(fx, fy, gy, gyy, gxy, x0, y0, eta, gamma, tau, delta, u_0, c, I, rounds, radius=np.inf, start=None, stale=False,
              project_x=same, project_y=same, project_first=False, averaged_last=False):
    """STORM in all three variables, a_t = delta/(u_0 + t)^(1/3). Iteration t: move x, y, u along nu, omega, q with a_t; if t mod I = 0 the
    moved points and the momenta that moved them become their means (one exchange of six); then, on a new batch, each momentum
    d <- grad(new point) + (1 - c a_t²)(d - grad(own point before the move)), a_t that of the move just made. Right after an average the new
    point and d are the means, and the point before the move is still the client's own, as in Acc-FCSG-M.

    u is kept in its ball as x and y in their sets: own moves are projected, except the ones that are averaged, whose mean is.
    `start` gives (omega, nu, q); else they are the means at the start. `stale` (WRONG): the momenta stay at the clients. `averaged_last`
    (WRONG): see broken_fedbioacc_averaged_last."""
    m, project = len(fx), (project_x, project_y, lambda u: ball(u, radius))

    def directions(i, x, y, u):
        return [fx[i](x, y) - gxy[i](x, y, u), gy[i](x, y), gyy[i](x, y, u) - fy[i](x, y)]

    def means(rows):
        return [mean([row[j] for row in rows]) for j in range(3)]

    def feasible(z):
        return [P(part) for P, part in zip(project, z, strict=True)]

    z = [feasible([np.array(x0, float), np.array(y0, float), np.zeros(len(y0))])] * m  # x, y, u
    first = means([directions(i, *z[i]) for i in range(m)]) if start is None else [start[1], start[0], start[2]]
    d, out = [first] * m, []  # nu, omega, q
    for t in range(1, I * rounds + 1):
        a = delta / (u_0 + t) ** (1 / 3)
        last = z
        move = [[part - a * rate * d_j for part, rate, d_j in zip(z[i], (eta, gamma, tau), d[i], strict=True)] for i in range(m)]
        z = [feasible(z_i) for z_i in move]
        if t % I == 0:
            z = [feasible(means(z if project_first else move))] * m
            d = d if stale else [means(d)] * m
            last = [means(last)] * m if averaged_last else last
            out.append(tuple(z[0]))
        d = [[new + (1 - c * a * a) * (d_j - old)
              for new, d_j, old in zip(directions(i, *z[i]), d[i], directions(i, *last[i]), strict=True)] for i in range(m)]
    return out


def broken_fedbioacc_averaged_last(*args, **options):
    """WRONG: after an exchange the correction is taken at the mean of the clients' previous points instead of at each client's own.
    Right if I = 1, if one client, or c a_t² = 1."""
    return fedbioacc(*args, **options, averaged_last=True)
