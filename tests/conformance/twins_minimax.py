"""NumPy twins of the minimax methods, written from the papers' statements.

As in twins.py: only NumPy is imported, client oracles are lists of plain deterministic callables, every client takes part, means are plain.
`project_x` and `project_y` stand where twins.py says: gradients at projected points, unprojected ends averaged, the means projected once;
`project_first` (WRONG) averages projected ends.

Sources: LocalSGDA (Deng, Mahdavi 2021), FedAvg-S (Hou et al. 2021), SGDA (Lin, Jin, Jordan 2020), SMD (Rafique et al. 2021), FedGDA-GT
(Sun, Wei 2022).
"""

import numpy as np


def same(z):
    return z


def mean(vectors):
    return sum(vectors) / len(vectors)


def local_sgda(fx, fy, x0, y0, eta_x, eta_y, tau, rounds, order="simultaneous", project_x=same, project_y=same, project_first=False):
    """Every node: x <- x - eta_x F_x, y <- y + eta_y F_y at the same point, tau times; then both are averaged. FedAvg-S adds "y first":
    x's gradient sees the projection of the y just made."""
    x, y, out = project_x(np.array(x0, float)), project_y(np.array(y0, float)), []
    for _ in range(rounds):
        xs, ys = [], []
        for i in range(len(fx)):
            x_i, y_i = x, y
            for _ in range(tau[i]):
                x_at, y_at = project_x(x_i), project_y(y_i)
                y_i = y_at + eta_y * fy[i](x_at, y_at)
                x_i = x_at - eta_x * fx[i](x_at, project_y(y_i) if order == "y first" else y_at)
            xs.append(project_x(x_i) if project_first else x_i)
            ys.append(project_y(y_i) if project_first else y_i)
        x, y = project_x(mean(xs)), project_y(mean(ys))
        out.append((x, y))
    return out


def sgda(fx, fy, x0, y0, eta_x, eta_y, rounds, project_x=same, project_y=same):
    """Descent ascent on the whole objective."""
    x, y, out = project_x(np.array(x0, float)), project_y(np.array(y0, float)), []
    for _ in range(rounds):
        gx, gy = mean([g(x, y) for g in fx]), mean([g(x, y) for g in fy])
        x, y = project_x(x - eta_x * gx), project_y(y + eta_y * gy)
        out.append((x, y))
    return out


def fedgda_gt(fx, fy, x0, y0, eta, K, rounds, tracking=True, project_x=same, project_y=same, project_first=False):
    """K local steps along own gradient - own gradient at the round's point + global gradient there. `tracking=False` (WRONG) drops both."""
    m, x, y, out = len(fx), project_x(np.array(x0, float)), project_y(np.array(y0, float)), []
    for _ in range(rounds):
        gx, gy = mean([g(x, y) for g in fx]), mean([g(x, y) for g in fy])
        xs, ys = [], []
        for i in range(m):
            x_i, y_i = x, y
            cx, cy = (gx - fx[i](x, y), gy - fy[i](x, y)) if tracking else (0, 0)
            for _ in range(K):
                x_i, y_i = project_x(x_i), project_y(y_i)
                x_i, y_i = x_i - eta * (fx[i](x_i, y_i) + cx), y_i + eta * (fy[i](x_i, y_i) + cy)
            xs.append(project_x(x_i) if project_first else x_i)
            ys.append(project_y(y_i) if project_first else y_i)
        x, y = project_x(mean(xs)), project_y(mean(ys))
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
