"""The twins of twins_auc.py, checked without the package: closed-form saddle points, proximal points and identities between methods.

One file, because all of it is about the same quadratics.
"""

from typing import Any

import numpy as np
import pytest
import twins_auc as auc
import twins_minimax as minimax

RNG = np.random.default_rng(7)
CLIENTS = 3


def definite(low: float) -> Any:
    root = 0.4 * RNG.normal(size=(2, 2))
    return root @ root.T + low * np.eye(2)


# f_k = x'Ax/2 + x'By - y'Cy/2 + r'x + q'y
A, C = [definite(1.0) for _ in range(CLIENTS)], [definite(0.8) for _ in range(CLIENTS)]
B = [0.5 * RNG.normal(size=(2, 2)) for _ in range(CLIENTS)]
R, Q = list(RNG.normal(size=(CLIENTS, 2))), list(RNG.normal(size=(CLIENTS, 2)))
FX: list[Any] = [lambda x, y, k=k: A[k] @ x + B[k] @ y + R[k] for k in range(CLIENTS)]
FY: list[Any] = [lambda x, y, k=k: B[k].T @ x - C[k] @ y + Q[k] for k in range(CLIENTS)]
X0, Y0 = np.array([0.9, -0.4]), np.array([0.3, 0.8])
START: tuple[Any, ...] = (FX, FY, X0, Y0)


def saddle(pull: float = 0.0, centre: Any = 0.0) -> tuple[Any, Any]:
    """The saddle of the mean objective + pull/2·|x - centre|²."""
    a, b, c, r, q = (sum(m) / CLIENTS for m in (A, B, C, R, Q))
    z = np.linalg.solve(np.block([[a + pull * np.eye(2), b], [b.T, -c]]), np.concatenate([pull * centre - r, -q]))
    return z[:2], z[2:]


def best_dual(x: Any) -> Any:
    b, c, q = (sum(m) / CLIENTS for m in (B, C, Q))
    return np.linalg.solve(c, b.T @ x + q)


def gap(end: Any, target: Any) -> float:
    return float(max(np.abs(end[0] - target[0]).max(), np.abs(end[1] - target[1]).max()))


def apart(run: Any, other: Any) -> float:
    """The largest difference between two runs' points."""
    assert len(run) == len(other)
    return max(gap(a, b) for a, b in zip(run, other, strict=True))


ONE_STEP: dict[str, Any] = {
    "local_sgdam": lambda: auc.local_sgdam(*START, 0.3, 0.3, 0.5, 1.2, 1, 400),
    "fess_gda": lambda: auc.fess_gda(*START, 0.1, 0.1, 1.5, 1.2, 1, 1.0, 0.5, 800),
    "coda": lambda: auc.coda(*START, 0.3, 30, 1.0, 1, 40, dual=best_dual, growth=1),
    "coda plus": lambda: auc.coda(*START, 0.3, 30, 1.0, 1, 40, plus=True, growth=1),
    "coda plus, mean dual": lambda: auc.coda(*START, 0.3, 30, 1.0, 1, 40, plus=True, growth=1, dual_start="iterates"),
    "coda plus, as the code": lambda: auc.coda(*START, 0.3, 30, 1.0, 1, 40, plus=True, growth=1, go_on=True),
    "codasca": lambda: auc.codasca(*START, 0.2, 1.3, 1.0, 1, 30, 40, growth=1),
}


@pytest.mark.parametrize("name", ONE_STEP)
def test_one_local_step_reaches_the_saddle(name: str) -> None:
    assert gap(ONE_STEP[name]()[-1], saddle()) < 1e-8


READINGS: list[Any] = [{}, {"prox_in_variates": True}, {"centre": "rounds"}, {"go_on": True}, {"centre": "last", "reset": True}]


@pytest.mark.parametrize("options", READINGS)
def test_codasca_reaches_the_saddle_with_many_local_steps(options: Any) -> None:
    assert gap(auc.codasca(*START, 0.1, 1.2, 1.0, 5, 25, 30, growth=1, **options)[-1], saddle()) < 1e-8


def test_codasca_without_variates_does_not() -> None:
    assert gap(auc.codasca(*START, 0.1, 1.2, 1.0, 5, 25, 30, growth=1, variates=False)[-1], saddle()) > 1e-3
    assert gap(auc.coda(*START, 0.1, 125, 1.0, 5, 30, plus=True, growth=1)[-1], saddle()) > 1e-3
    # variates from zero in each stage: the first round's drift stays in the mean of the iterates
    assert 1e-6 < gap(auc.codasca(*START, 0.1, 1.2, 1.0, 5, 25, 30, growth=1, reset=True)[-1], saddle()) < 1e-2


@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_a_long_stage_ends_at_the_proximal_saddle(gamma: float) -> None:
    target = saddle(1 / gamma, X0)
    assert gap(auc.coda(*START, 0.2, 600, gamma, 1, 1, plus=True)[-1], target) < 1e-8
    assert gap(auc.codasca(*START, 0.05, 1.0, gamma, 4, 600, 1)[-1], target) < 1e-8
    assert gap(auc.codasca(*START, 0.05, 1.0, gamma, 4, 600, 1, prox_in_variates=True)[-1], target) < 1e-8
    assert gap(auc.coda(*START, 0.2, 600, gamma, 1, 1, plus=True, prox=False)[-1], target) > 1e-2


def test_the_stages_of_coda() -> None:
    restarts: list[Any] = []
    run = auc.coda(*START, 0.2, 4, 1.0, 2, 2, dual=best_dual, restarts=restarts)
    assert len(run) == 2 + 6  # T = 4, then 12, in rounds of 2
    ends, point, duals = [], [X0] * CLIENTS, [Y0] * CLIENTS
    for t in range(4):
        moved = [(x - 0.2 * (FX[k](x, y) + x - X0), y + 0.2 * FY[k](x, y)) for k, (x, y) in enumerate(zip(point, duals, strict=True))]
        point, duals = [x for x, _ in moved], [y for _, y in moved]
        ends.append(sum(point) / CLIENTS)
        if t % 2:
            point, duals = [sum(point) / CLIENTS] * CLIENTS, [sum(duals) / CLIENTS] * CLIENTS
            assert gap((point[0], duals[0]), run[t // 2]) < 1e-14
    assert gap(restarts[0], (sum(ends) / 4, best_dual(sum(ends) / 4))) < 1e-14
    second = auc.coda(FX, FY, *restarts[0], 0.2 / 3, 12, 1.0, 2, 1, plus=True)
    assert apart(second, run[2:]) < 1e-14
    assert apart(auc.coda(*START, 0.2, 4, 1.0, 2, 2, plus=True), run) > 1e-3  # the dual carried over


@pytest.mark.parametrize("options", [{}, {"go_on": True}, {"centre": "last"}, {"centre": "rounds"}, {"dual_start": "iterates"}])
def test_codasca_without_variates_and_server_step_is_coda_plus(options: Any) -> None:
    plus = auc.coda(*START, 0.2, 6, 0.7, 3, 3, plus=True, **options)
    bare = auc.codasca(*START, 0.2, 1.0, 0.7, 3, 2, 3, variates=False, **options)
    assert apart(plus, bare) < 1e-14
    assert apart(plus, auc.codasca(*START, 0.2, 1.0, 0.7, 3, 2, 3, **options)) > 1e-3


@pytest.mark.parametrize("whole", [True, False])
def test_the_variates_of_codasca_are_option_two_of_scaffold_with_or_without_the_proximal_term(whole: bool) -> None:
    """c_k - c + (v - v_k)/(I eta) is the mean of the round's gradients, proximal term included; else that term's mean is taken out."""
    I, eta, gamma = 3, 0.1, 0.7
    c, c_a = [np.zeros(2)] * CLIENTS, [np.zeros(2)] * CLIENTS
    x, y, expected = X0, Y0, []
    for _ in range(4):
        m, m_a, ends, pulls = sum(c) / CLIENTS, sum(c_a) / CLIENTS, [], [np.zeros(2) for _ in range(CLIENTS)]
        for k in range(CLIENTS):
            x_k, y_k = x, y
            for _ in range(I):
                pulls[k] += (x_k - X0) / gamma / I
                x_k, y_k = (x_k - eta * (FX[k](x_k, y_k) + (x_k - X0) / gamma - c[k] + m), y_k + eta * (FY[k](x_k, y_k) - c_a[k] + m_a))
            ends.append((x_k, y_k))
        c = [c[k] - m + (x - ends[k][0]) / (I * eta) - (not whole) * pulls[k] for k in range(CLIENTS)]
        c_a = [c_a[k] - m_a + (ends[k][1] - y) / (I * eta) for k in range(CLIENTS)]
        x, y = x + 1.5 * (sum(e[0] for e in ends) / CLIENTS - x), y + 1.5 * (sum(e[1] for e in ends) / CLIENTS - y)
        expected.append((x, y))
    assert apart(auc.codasca(*START, eta, 1.5, gamma, I, 4, 1, prox_in_variates=whole), expected) < 1e-12
    assert apart(auc.codasca(*START, eta, 1.5, gamma, I, 4, 1, prox_in_variates=not whole), expected) > 1e-4


def test_fess_gda() -> None:
    plain = minimax.local_sgda(*START, 0.1, 0.2, [4] * CLIENTS, 10)
    assert apart(auc.fess_gda(*START, 0.1, 0.2, 1.0, 1.0, 4, 0.0, 0.3, 10), plain) < 1e-14
    alone = auc.fess_gda(FX[:1], FY[:1], X0, Y0, 0.1, 0.1, 1.2, 1.1, 4, 2.0, 0.5, 600)[-1]
    assert np.abs(FX[0](alone[0], alone[1])).max() < 1e-8
    assert np.abs(FY[0](alone[0], alone[1])).max() < 1e-8
    assert np.abs(alone[0] - alone[2]).max() < 1e-8


def test_the_pull_of_fess_gda_counts_the_local_steps() -> None:
    """Constant gradients: x_1 = x_0 - G·c and x_2 = x_1 - G (c + p (x_1 - z_1)) with G = eta_xl eta_xg K; y grows by eta_yl eta_yg K."""
    c, G, p, beta = np.array([1.0, 2.0]), 0.1 * 1.5 * 3, 0.8, 0.25
    constant: tuple[Any, ...] = ([lambda x, y: c], [lambda x, y: np.ones(2)], X0, Y0, 0.1, 0.2, 1.5, 1.3, 3, p, beta, 2)
    x_1 = X0 - G * c
    z_1 = X0 + beta * (x_1 - X0)
    x_2 = x_1 - G * (c + p * (x_1 - z_1))
    run = auc.fess_gda(*constant)
    assert gap((run[0][0], run[0][2]), (x_1, z_1)) < 1e-14
    assert gap((run[1][0], run[1][2]), (x_2, z_1 + beta * (x_2 - z_1))) < 1e-14
    assert np.abs(run[1][1] - (Y0 + 2 * 0.2 * 1.3 * 3)).max() < 1e-14
    assert gap(auc.fess_gda(*constant, count_steps=False)[1], run[1]) > 1e-2


# scalars under x <= 0.2 and y <= 0.1: both means point outwards there, one client of each inwards
X_BOUND, Y_BOUND, FAR = 0.2, 0.1, ([0.9], [0.7])


def clip_x(x: Any) -> Any:
    return np.minimum(x, X_BOUND)


def clip_y(y: Any) -> Any:
    return np.minimum(y, Y_BOUND)


def checked(oracle: Any, x_bound: float = X_BOUND) -> Any:
    def at(x: Any, y: Any) -> Any:
        assert np.all(x <= x_bound)
        assert np.all(y <= Y_BOUND)
        return oracle(x, y)
    return at


HELD_X: list[Any] = [lambda x, y, h=h, t=t, c=c: h * (x - t) + c * y for h, t, c in ((1, -1, 2), (2, 0.5, -1), (4, 1, 2))]
HELD_Y: list[Any] = [lambda x, y, c=c, k=k, s=s: c * x - k * (y - s) for c, k, s in ((2, 1, -1), (-1, 2, 1), (2, 1, 2))]
CHECKED: tuple[Any, ...] = ([checked(f) for f in HELD_X], [checked(f) for f in HELD_Y], *FAR)


@pytest.mark.parametrize("p", [1, 3])
def test_the_projected_momentum_methods(p: int) -> None:
    box: Any = {"project_x": clip_x, "project_y": clip_y}
    run = auc.local_sgdam(*CHECKED, 0.1, 0.1, 0.5, 1.0, p, 300, **box)
    eye, fz, fy = [lambda x: np.eye(1)] * 3, CHECKED[0], CHECKED[1]
    comp = auc.local_scgdam([lambda x: x] * 3, eye, fz, fy, *FAR, 0.1, 0.1, 0.5, 2.0, 1.0, 1.0, p, 300, **box)  # alpha·eta = 1: h = x
    one = auc.local_scgdam([lambda x: x] * 3, eye, fz, fy, *FAR, 0.1, 0.1, 0.5, 2.0, 2.0, 2.0, 1, 300, **box)
    assert gap(one[-1], ([X_BOUND], [Y_BOUND])) < 1e-12
    if p == 1:
        assert gap(run[-1], ([X_BOUND], [Y_BOUND])) < 1e-12
        assert gap(comp[-1], ([X_BOUND], [Y_BOUND])) < 1e-12
    # what is sent is the raw move: the first round, by hand
    ends = []
    for k in range(3):
        x, y = np.array([X_BOUND]), np.array([Y_BOUND])
        dx, dy = fz[k](x, y), fy[k](x, y)
        for _ in range(p):
            raw = x - 0.05 * dx, y + 0.05 * dy
            x, y = clip_x(raw[0]), clip_y(raw[1])
            dx, dy = 0.5 * dx + 0.5 * fz[k](x, y), 0.5 * dy + 0.5 * fy[k](x, y)
        ends.append((*raw, dx, dy))
    x, y, dx, dy = (sum(part) / 3 for part in zip(*ends, strict=True))
    assert gap(run[0], (clip_x(x), clip_y(y))) < 1e-14
    assert gap(run[0][2:], (dx, dy)) < 1e-14
    assert apart([(r[0], r[1]) for r in run], comp) < 1e-12
    assert apart([(r[2], r[3]) for r in run], [(r[3], r[4]) for r in comp]) < 1e-12


def test_fess_gda_under_a_bound_on_y() -> None:
    """x solves mean F_x(x, 0.1) = 0. The paper's clients send projected points, and the one that moves inwards outvotes the others."""
    held = [checked(f, np.inf) for f in HELD_X], [checked(f, np.inf) for f in HELD_Y]
    x = (-1 + 1 + 4 - 3 * Y_BOUND) / 7
    assert sum(f(np.array([x]), np.array([Y_BOUND]))[0] for f in HELD_Y) > 0
    house = auc.fess_gda(*held, *FAR, 0.05, 0.3, 1.0, 1.0, 1, 1.0, 0.5, 600, project_y=clip_y, send_projected=False)
    paper = auc.fess_gda(*held, *FAR, 0.05, 0.3, 1.0, 1.0, 1, 1.0, 0.5, 600, project_y=clip_y)
    assert gap(house[-1], ([x], [Y_BOUND])) < 1e-8
    assert gap(paper[-1], ([x], [Y_BOUND])) > 1e-3


def late_sgda(eta_x: float, eta_y: float, p: int, rounds: int) -> list[Any]:
    """Local SGDA but for the first step of each round after the first: there every client takes the mean of all clients' gradients at their
    own ends of the round before, not its own gradient at the averaged point."""
    x, y, first, out = X0, Y0, None, []
    for _ in range(rounds):
        ends = []
        for k in range(CLIENTS):
            x_k, y_k = x, y
            for t in range(p):
                gx, gy = first if first is not None and t == 0 else (FX[k](x_k, y_k), FY[k](x_k, y_k))
                x_k, y_k = x_k - eta_x * gx, y_k + eta_y * gy
            ends.append((x_k, y_k, FX[k](x_k, y_k), FY[k](x_k, y_k)))
        x, y, gx, gy = (sum(part) / CLIENTS for part in zip(*ends, strict=True))
        first = gx, gy
        out.append((x, y))
    return out


IDENTITY: tuple[Any, ...] = ([lambda x: x] * CLIENTS, [lambda x: np.eye(2)] * CLIENTS, FX, FY, X0, Y0)


@pytest.mark.parametrize("p", [1, 4])
def test_whole_momentum_is_local_sgda_with_a_late_first_step(p: int) -> None:
    """beta·alpha = 1, or alpha·eta = beta·eta = 1 and g = id, makes the momentum the newest gradient, whose mean starts a round."""
    run = auc.local_sgdam(*START, 0.2, 0.3, 0.5, 2.0, p, 12)
    late = late_sgda(0.1, 0.15, p, 12)
    assert apart([r[:2] for r in run], late) < 1e-13
    comp = auc.local_scgdam(*IDENTITY, 0.2, 0.3, 0.5, 2.0, 2.0, 2.0, p, 12)
    assert apart(comp, late) < 1e-13
    plain = minimax.local_sgda(*START, 0.1, 0.15, [p] * CLIENTS, 12)
    assert gap(plain[0], late[0]) < 1e-14  # the first round is local SGDA's
    assert apart(plain, late) > 1e-4
    alone = auc.local_sgdam(FX[:1], FY[:1], X0, Y0, 0.2, 0.3, 0.5, 2.0, p, 12)
    assert apart(alone, minimax.local_sgda(FX[:1], FY[:1], X0, Y0, 0.1, 0.15, [p], 12)) < 1e-13
    own = auc.local_sgdam(*START, 0.2, 0.3, 0.5, 2.0, p, 12, average_momenta=False)
    assert apart(own, run) > 1e-4


def test_momenta_left_with_the_clients_are_detected() -> None:
    right = auc.local_sgdam(*START, 0.2, 0.3, 0.5, 1.2, 4, 3, beta_y=0.7)
    comp = auc.local_scgdam(*IDENTITY, 0.2, 0.3, 0.5, 2.0, 1.2, 0.7, 4, 3)
    assert apart([(r[2], r[3]) for r in right], [(r[3], r[4]) for r in comp]) < 1e-13
    assert apart([r[:2] for r in right], comp) < 1e-13
    assert apart(auc.local_sgdam(*START, 0.2, 0.3, 0.5, 1.2, 4, 3, beta_y=0.7, average_momenta=False), right) > 1e-4


# composition: g_k = Jx + d, f_k(z, y) = z'Az/2 + z'By - y'Cy/2 + r'z + q'y
J, D = [np.eye(2) + 0.2 * RNG.normal(size=(2, 2)) for _ in range(CLIENTS)], list(RNG.normal(size=(CLIENTS, 2)))
G: list[Any] = [lambda x, k=k: J[k] @ x + D[k] for k in range(CLIENTS)]
JAC: list[Any] = [lambda x, k=k: J[k] for k in range(CLIENTS)]


def composite_point(theta: float) -> tuple[Any, Any]:
    """Where mean_k J_k'F_z,k(h_k, y) and mean_k F_y,k(h_k, y) vanish with h_k = (1 - theta)·mean g + theta·g_k.

    theta = 0 is the saddle where J_k or F_z,k is the same for all; else the covariance of the two is left.
    """
    def residual(z: Any) -> Any:
        x, y, inner = z[:2], z[2:], [g(z[:2]) for g in G]
        h = [(1 - theta) * sum(inner) / CLIENTS + theta * inner[k] for k in range(CLIENTS)]
        return np.concatenate([sum(JAC[k](x).T @ FX[k](h[k], y) for k in range(CLIENTS)), sum(FY[k](h[k], y) for k in range(CLIENTS))])
    base = residual(np.zeros(4))  # affine
    z = np.linalg.solve(np.stack([residual(e) - base for e in np.eye(4)], axis=1), -base)
    return z[:2], z[2:]


@pytest.mark.parametrize("alpha", [0.4, 1.0])
def test_local_scgdam_with_one_local_step(alpha: float) -> None:
    """After its own update a client's h is (1 - alpha·eta)·mean + alpha·eta·own, so that one local step stops at theta = alpha·eta."""
    run = auc.local_scgdam(G, JAC, FX, FY, X0, Y0, 0.3, 0.3, 0.5, alpha, 1.5, 1.5, 1, 800)
    assert gap(run[-1], composite_point(0.5 * alpha)) < 1e-8
    x, _, h, u, v = run[-1]
    assert np.abs(h - sum(g(x) for g in G) / CLIENTS).max() < 1e-8
    assert max(np.abs(u).max(), np.abs(v).max()) < 1e-8
    wrong = auc.local_scgdam(G, JAC, FX, FY, X0, Y0, 0.3, 0.3, 0.5, alpha, 1.5, 1.5, 1, 800, average_h=False)
    assert gap(wrong[-1], composite_point(1.0)) < 1e-8
    assert gap(composite_point(1.0), composite_point(0.5 * alpha)) > 1e-2


def test_local_scgdam_reaches_the_saddle_of_alike_clients() -> None:
    """With the same J and the same quadratic part the clients' own share of h cancels."""
    fz: list[Any] = [lambda z, y, k=k: A[0] @ z + B[0] @ y + R[k] for k in range(CLIENTS)]
    fy: list[Any] = [lambda z, y, k=k: B[0].T @ z - C[0] @ y + Q[k] for k in range(CLIENTS)]
    g: list[Any] = [lambda x, k=k: J[0] @ x + D[k] for k in range(CLIENTS)]
    x, y = auc.local_scgdam(g, [JAC[0]] * CLIENTS, fz, fy, X0, Y0, 0.3, 0.3, 0.5, 1.0, 1.5, 1.5, 3, 1500)[-1][:2]
    r, q, d = (sum(m) / CLIENTS for m in (R, Q, D))
    z = np.linalg.solve(np.block([[A[0], B[0]], [B[0].T, -C[0]]]), -np.concatenate([r, q]))
    assert gap((x, y), (np.linalg.solve(J[0], z[:2] - d), z[2:])) < 1e-8
