"""NumPy twins of the AUC methods and their minimax relatives, independent of the package.

As in twins.py: only NumPy is imported, client oracles are lists of plain deterministic callables, every client takes part, means are
plain. Each function says how far its paper could be read. Where a line was written from memory, or public implementations differ, an
option gives the other reading. Arguments marked WRONG make a deliberately wrong variant, which a comparison must detect.

LocalSCGDAM and LocalSGDAM move first and take estimates at the new point afterwards, also in the last iteration of a round, before the
mean. Under `project_x` and `project_y` they therefore keep two points: the raw move, which is what a client sends, and its projection,
where the estimates are taken and from which the next iteration moves. The server projects the mean of the raw moves, once, and the
start is projected.

Sources: LocalSCGDAM (Zhang et al. 2023, Algorithm 1), Momentum Local SGDA (Sharma et al. 2022, Algorithm 2), CoDA (Guo et al. 2020,
Algorithms 1 and 2), CODA+ and CODASCA (Yuan et al. 2021, Algorithms 1 to 4), FESS-GDA (Shen et al. 2024, Algorithm 1), FeDXL1 and
FeDXL2 (Guo et al. 2023, Algorithms 1 and 2).
"""

import numpy as np


def same(z):
    return z


def vec(z):
    return np.array(z, dtype=float)


def mean(vectors):
    return sum(vectors) / len(vectors)


def local_scgdam(g, jac, fz, fy, x0, y0, gamma_x, gamma_y, eta, alpha, beta_x, beta_y, p, rounds, project_x=same, project_y=same,
                 average_h=True):
    """Algorithm 1 of the paper; its scan is imperfect, but equations (11) to (14) and the text on Step 6 settle every line.

    Input line: h_0 = g(x_0), u_0 = ∇g(x_0)ᵀ∇_g f(h_0, y_0), v_0 = ∇_y f(h_0, y_0), each client's own. Iteration: x and y move along u
    and v, then h, u and v are updated at the new point, u and v with the new h. Step 6: all five are averaged after every p-th
    iteration. `average_h=False` (WRONG) leaves h with the clients."""
    K, x, y, out = range(len(g)), project_x(vec(x0)), project_y(vec(y0)), []
    h = [g[k](x) for k in K]
    u, v = [jac[k](x).T @ fz[k](h[k], y) for k in K], [fy[k](h[k], y) for k in K]
    for _ in range(rounds):
        raw_x, raw_y = [x] * len(g), [y] * len(g)
        for k in K:
            x_k, y_k = x, y
            for _ in range(p):
                raw_x[k], raw_y[k] = x_k - gamma_x * eta * u[k], y_k + gamma_y * eta * v[k]
                x_k, y_k = project_x(raw_x[k]), project_y(raw_y[k])
                h[k] = (1 - alpha * eta) * h[k] + alpha * eta * g[k](x_k)
                u[k] = (1 - beta_x * eta) * u[k] + beta_x * eta * (jac[k](x_k).T @ fz[k](h[k], y_k))
                v[k] = (1 - beta_y * eta) * v[k] + beta_y * eta * fy[k](h[k], y_k)
        x, y = project_x(mean(raw_x)), project_y(mean(raw_y))
        u, v = [mean(u)] * len(g), [mean(v)] * len(g)
        h = [mean(h)] * len(g) if average_h else h
        out.append((x, y, mean(h), u[0], v[0]))
    return out


def local_sgdam(fx, fy, x0, y0, lr_x, lr_y, alpha, beta, p, rounds, beta_y=None, project_x=same, project_y=same, average_momenta=True):
    """Momentum Local SGDA; the paper's Algorithm 2 is from memory, as its text could not be read.

    Start: d = the client's own gradients at (x_0, y_0). Each iteration: x̃ = x - lr_x d_x and x <- x + alpha (x̃ - x), likewise y with
    a plus sign, then d <- (1 - beta alpha) d + beta alpha · gradient at the new point. After every p-th iteration x, y, d_x and d_y are
    averaged. The paper has beta_x and beta_y. `average_momenta=False` (WRONG) leaves d_x and d_y with the clients."""
    K, x, y, out = range(len(fx)), project_x(vec(x0)), project_y(vec(y0)), []
    keep_x, keep_y = beta * alpha, (beta if beta_y is None else beta_y) * alpha
    dx, dy = [fx[k](x, y) for k in K], [fy[k](x, y) for k in K]
    for _ in range(rounds):
        raw_x, raw_y = [x] * len(fx), [y] * len(fx)
        for k in K:
            x_k, y_k = x, y
            for _ in range(p):
                x_tilde, y_tilde = x_k - lr_x * dx[k], y_k + lr_y * dy[k]
                raw_x[k], raw_y[k] = x_k + alpha * (x_tilde - x_k), y_k + alpha * (y_tilde - y_k)
                x_k, y_k = project_x(raw_x[k]), project_y(raw_y[k])
                dx[k] = (1 - keep_x) * dx[k] + keep_x * fx[k](x_k, y_k)
                dy[k] = (1 - keep_y) * dy[k] + keep_y * fy[k](x_k, y_k)
        x, y = project_x(mean(raw_x)), project_y(mean(raw_y))
        if average_momenta:
            dx, dy = [mean(dx)] * len(fx), [mean(dy)] * len(fx)
        out.append((x, y, mean(dx), mean(dy)))
    return out


def _next_stage(centre, dual_start, v, a, moves, points):
    """The next stage's centre and dual. `moves` holds the mean over clients of (v, alpha) after each local step, v_1..v_T and not v_0, and
    `points` what the server sent after each round."""
    chosen = {"iterates": moves, "rounds": points, "last": [(v, a)]}
    return mean([pair[0] for pair in chosen[centre]]), mean([pair[1] for pair in chosen[dual_start]])


def coda(fx, fy, v0, a0, eta0, T0, gamma, I, stages, plus=False, dual=None, growth=3, centre="iterates", dual_start="last", go_on=False,
         prox=True, restarts=None):
    """CoDA, Algorithm 1 with DSG (Algorithm 2), and CODA+ (`plus`); both from memory, as the papers' text could not be read.

    Stage s = 0, 1, ...: T0·growth^s steps of size eta0/growth^s, v <- v - eta (∂v + (v - v0)/gamma), alpha <- alpha + eta ∂alpha, both
    at the old point; v and alpha are averaged after every I-th step. Then v0 <- the mean over clients and steps v_1..v_T, from which
    the next stage also starts. The dual: CoDA estimates it anew, `dual(v)`; CODA+ carries on with the last mean, as public
    implementations do, or (`dual_start="iterates"`, DSG+'s output as remembered) with the mean over the stage. Other readings:
    `centre="last"`; `go_on=True`, only the centre moves and v itself goes on from the last mean (the authors' public code).
    `prox=False` (WRONG) drops the centre. Returns the (v, alpha) that every averaging makes; `restarts` collects each stage's new
    start."""
    v, a, out = vec(v0), vec(a0), []
    ref = v
    for s in range(stages):
        eta, T, moves, first = eta0 / growth**s, int(T0 * growth**s), [], len(out)
        assert T % I == 0, "a stage is a whole number of rounds"
        vs, duals = [v] * len(fx), [a] * len(fx)
        for t in range(T):
            for k in range(len(fx)):
                dv, da = fx[k](vs[k], duals[k]) + prox * (vs[k] - ref) / gamma, fy[k](vs[k], duals[k])
                vs[k], duals[k] = vs[k] - eta * dv, duals[k] + eta * da
            moves.append((mean(vs), mean(duals)))
            if (t + 1) % I == 0:
                vs, duals = [mean(vs)] * len(fx), [mean(duals)] * len(fx)
                out.append((vs[0], duals[0]))
        v, a = vs[0], duals[0]
        ref, a = _next_stage(centre, dual_start, v, a, moves, out[first:])
        v = v if go_on else ref
        a = a if plus else vec(dual(v))
        if restarts is not None:
            restarts.append((v, a))
    return out


def codasca(fx, fy, v0, a0, eta, eta_g, gamma, I, rounds_per_stage, stages, growth=3, centre="iterates", dual_start="last", go_on=False,
            prox_in_variates=False, reset=False, variates=True, restarts=None):
    """CODASCA, Algorithm 3 with Algorithm 4, from memory; the authors' public code and a second one (federated-minimax) could be read.

    Local step: v <- v - eta (G - c_k + c + (v - v0)/gamma), alpha <- alpha + eta (H - c'_k + c'), variates from zero. At a round's end
    c_k <- the mean of the round's own gradients, c <- mean c_k, and the server steps in both variables, v <- v + eta_g (mean v_k - v).
    The schedule and the stage's centre are those of `coda`; the server's step is not among the local steps that `centre="iterates"`
    averages. The authors' code leaves the proximal term out of c_k; SCAFFOLD's option II, c_k - c + (v - v_k)/(I eta), which the second
    code has, puts it in (`prox_in_variates`). Both codes keep the variates across stages; `reset=True` starts each stage from zero.
    `variates=False` (WRONG) keeps them at zero."""
    n, v, a, out = len(fx), vec(v0), vec(a0), []
    ref, cv, ca = v, [np.zeros_like(v)] * len(fx), [np.zeros_like(a)] * len(fx)
    for s in range(stages):
        step, moves, first = eta / growth**s, [], len(out)
        if reset:
            cv, ca = [np.zeros_like(v)] * n, [np.zeros_like(a)] * n
        for _ in range(int(rounds_per_stage * growth**s)):
            c_v, c_a, vs, duals = mean(cv), mean(ca), [v] * n, [a] * n
            sum_v, sum_a = [0 * v] * n, [0 * a] * n
            for _ in range(I):
                for k in range(n):
                    dv, da, pull = fx[k](vs[k], duals[k]), fy[k](vs[k], duals[k]), (vs[k] - ref) / gamma
                    sum_v[k], sum_a[k] = sum_v[k] + dv + prox_in_variates * pull, sum_a[k] + da
                    vs[k], duals[k] = vs[k] - step * (dv - cv[k] + c_v + pull), duals[k] + step * (da - ca[k] + c_a)
                moves.append((mean(vs), mean(duals)))
            if variates:
                cv, ca = [z / I for z in sum_v], [z / I for z in sum_a]
            v, a = v + eta_g * (mean(vs) - v), a + eta_g * (mean(duals) - a)
            out.append((v, a))
        ref, a = _next_stage(centre, dual_start, v, a, moves, out[first:])
        v = v if go_on else ref
        if restarts is not None:
            restarts.append((v, a))
    return out


def fess_gda(fx, fy, x0, y0, eta_xl, eta_yl, eta_xg, eta_yg, K, p, beta, rounds, project_y=same, send_projected=True, count_steps=True):
    """FESS-GDA, Algorithm 1, read in a public summary that gives all five update lines; z_0 = x_0 is from memory.

    K local steps x_i <- x_i - eta_xl ∂x, y_i <- P(y_i + eta_yl ∂y) at the same point. Server: x⁺ = x + eta_xg (mean x_i - x) - eta_xl
    eta_xg K p (x - z) with the old x and z, y⁺ = P(y + eta_yg (mean y_i - y)), z⁺ = z + beta (x⁺ - z). The paper's clients send
    projected y_i. `send_projected=False` is the rule of twins.py instead: the last move is sent as it is. `count_steps=False` (WRONG)
    forgets K in the pull towards z."""
    x, y, out = vec(x0), project_y(vec(y0)), []
    z = x
    for _ in range(rounds):
        xs, ys = [], []
        for k in range(len(fx)):
            x_k, y_k = x, y
            for _ in range(K):
                at = project_y(y_k)
                x_k, y_k = x_k - eta_xl * fx[k](x_k, at), at + eta_yl * fy[k](x_k, at)
            xs.append(x_k)
            ys.append(project_y(y_k) if send_projected else y_k)
        x_new = x + eta_xg * (mean(xs) - x) - eta_xl * eta_xg * (K if count_steps else 1) * p * (x - z)
        y = project_y(y + eta_yg * (mean(ys) - y))
        z = z + beta * (x_new - z)
        x = x_new
        out.append((x, y, z))
    return out


def _pairs(function, s, t):
    """function(s_i, t_j) for all pairs, a matrix."""
    return function(s[:, None], t[None, :]) + np.zeros((len(s), len(t)))


def fedxl1(scores, dscores, labels, ell_s, ell_t, w0, eta, K_steps, rounds, own_pool=False):
    """FeDXL1, Algorithm 1, from memory and as in the authors' public code (for a linear f).

    The loss is ell(s, t) of a positive's score s and a negative's score t, with partial derivatives ell_s and ell_t. G1 has the
    client's own positives against the pool's negatives, G2 the pool's positives against its own negatives, and w <- w - eta (G1 + G2).
    The pool holds the scores that all clients made in the round before; the first round's holds scores at w0. Here each step uses all
    the client's rows and the whole pool, so its draws become means. w is averaged after K_steps. `own_pool=True` (WRONG) makes the pool
    the client's own."""
    one = [np.ones(int(np.sum(label))) for label in labels]
    return [w for w, _ in _fedxl(scores, dscores, labels, None, ell_s, ell_t, w0, eta, K_steps, rounds, np.ones_like, 1.0, 1.0, one, False,
                                 own_pool)]


def fedxl2(scores, dscores, labels, ell, ell_s, ell_t, w0, eta, K_steps, rounds, f_slope, gamma, beta, u0=None, zero_momentum=False,
           own_pool=False, u_after=True):
    """FeDXL2, Algorithm 2, from memory and as in the authors' public code; the objective is mean_i f(mean_j ell(s_i, t_j)).

    As FeDXL1, and every positive has u_i <- (1 - gamma) u_i + gamma · mean_j ell(s_i, pool's t_j), renewed before its use; G1 is
    weighed by f'(u_i), G2 by f'(u) of the pool's positives, whose u the pool holds beside their scores. The momentum m <- (1 - beta) m
    + beta (G1 + G2) moves w; w and m are averaged, u stays. Start of u: `u0` per client (a vector, or a number), else the values at w0
    against all negatives. The momentum starts as the first gradient, as in the authors' code; `zero_momentum=True` starts it from 0.
    WRONG: `own_pool=True` as in FeDXL1; `u_after=False` weighs by u before its renewal. Returns (w, m) after each round."""
    return _fedxl(scores, dscores, labels, ell, ell_s, ell_t, w0, eta, K_steps, rounds, f_slope, gamma, beta, u0, zero_momentum, own_pool,
                  u_after)


def _fedxl(scores, dscores, labels, ell, ell_s, ell_t, w0, eta, K_steps, rounds, f_slope, gamma, beta, u0, zero_momentum, own_pool,
           u_after=True):
    n, w, out = range(len(scores)), vec(w0), []
    positive = [np.asarray(label, bool) for label in labels]
    made = [[(scores[k](w)[positive[k]], scores[k](w)[~positive[k]])] for k in n]  # per client: what each step of the last round made
    everyone = np.concatenate([made[k][0][1] for k in n])
    if u0 is None:
        u = [_pairs(ell, made[k][0][0], everyone).mean(axis=1) for k in n]
    else:
        u = [np.zeros(int(positive[k].sum())) + (u0 if np.isscalar(u0) else u0[k]) for k in n]
    us = [[u[k]] for k in n]
    momenta = [0 * w for _ in n] if zero_momentum else [None for _ in n]
    for _ in range(rounds):
        pools = []
        for k in n:
            members = [k] if own_pool else n
            pools.append((np.concatenate([pair[0] for j in members for pair in made[j]]),
                          np.concatenate([pair[1] for j in members for pair in made[j]]),
                          np.concatenate([z for j in members for z in us[j]])))
        made, us, ws = [[] for _ in n], [[] for _ in n], []
        for k in n:
            w_k, (pool_s, pool_t, pool_u) = w, pools[k]
            for _ in range(K_steps):
                score, slope = scores[k](w_k), dscores[k](w_k)
                s, t = score[positive[k]], score[~positive[k]]
                before = u[k]
                if ell is not None:
                    u[k] = (1 - gamma) * u[k] + gamma * _pairs(ell, s, pool_t).mean(axis=1)
                made[k].append((s, t))
                us[k].append(u[k])
                weight = f_slope(u[k] if u_after else before)
                g1 = (weight * _pairs(ell_s, s, pool_t).mean(axis=1)) @ slope[positive[k]] / len(s)
                g2 = (f_slope(pool_u)[:, None] * _pairs(ell_t, pool_s, t)).mean(axis=0) @ slope[~positive[k]] / len(t)
                momenta[k] = g1 + g2 if momenta[k] is None else (1 - beta) * momenta[k] + beta * (g1 + g2)
                w_k = w_k - eta * momenta[k]
            ws.append(w_k)
        w, momenta = mean(ws), [mean(momenta)] * len(scores)
        out.append((w, momenta[0]))
    return out
