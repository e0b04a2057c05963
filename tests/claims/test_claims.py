"""Statements of the papers, and identities between algorithms, as measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from rounds import rounds
from torch import Tensor, nn

from rookery import FCSG, FCSGM, SCAFFOLD, AccFCSGM, Batch, Conditional, Data, FedAvg, FedDRO, Federation, FedNest, Model, Program, Schedule
from rookery.data import Normal, Stored
from rookery.objectives import kl_dro
from rookery.problems import testproblems as known

# identities


def test_fcsg_m_with_beta_one_is_fcsg() -> None:
    k = known.conditional()
    a, b = FCSG(0.1, 3, 2, 2), FCSGM(0.1, 3, 2, 2, beta=1.0)
    feds = [Federation(k.problem, k.data, seed=3) for _ in range(2)]
    x, y = rounds(a, feds[0], a.init(feds[0], k.x0), 5), rounds(b, feds[1], b.init(feds[1], k.x0), 5)
    torch.testing.assert_close(x.x, y.x)


def test_one_client_one_step_is_bsgd() -> None:
    """x ← x − α·∇F̂(x; ξ, B) on one machine: the same samples, by hand."""
    k = known.conditional()
    data = Data.from_parts({"only": k.data.views(0)})
    fed = Federation(k.problem, data, seed=5, engine="loop")
    drawn: list[Batch] = []
    fetch = Stored.fetch

    class Recording(Stored):
        def fetch(self, d: Data, selection: dict[str, Tensor]) -> Batch:
            drawn.append(fetch(self, d, selection))
            return drawn[-1]

    p = k.problem
    assert isinstance(p, Conditional)
    fed = Federation(Conditional(p.f, p.g, p.h, sampling=Recording("eta")), data, seed=5, engine="loop")
    algorithm = FCSG(0.1, 1, 2, 3)
    state = rounds(algorithm, fed, algorithm.init(fed, k.x0), 4)
    x = k.x0.clone()
    for batch in drawn:
        assert batch.inner is not None
        eta = batch.inner.eta.mean(1)
        x = x - 0.1 * (eta.T @ (eta @ x - batch.b) / len(batch.b) + 0.5 * x)
    assert len(drawn) == 4
    torch.testing.assert_close(state.x, x)


@pytest.mark.parametrize("algorithm", [FedAvg(0.2), SCAFFOLD(0.2)])
def test_one_local_step_is_centralised(algorithm: Any) -> None:
    k = known.minimization()
    fed = Federation(k.problem, k.data)
    state, x = algorithm.init(fed, k.x0), k.x0
    for _ in range(5):
        state, x = algorithm.round(fed, state), x - 0.2 * k.gradient(x)
        torch.testing.assert_close(state.x, x)


def test_setting_y_k_to_the_mean_or_keeping_it_gives_the_same_under_full_participation() -> None:
    """mean_k of (8) is linear in the clients' previous y, so only their mean matters."""
    k = known.compositional()
    fed = Federation(k.problem, k.data)
    algorithm = FedDRO(0.1, 0.3, 3)
    state = rounds(algorithm, fed, algorithm.init(fed, k.x0), 3)
    parts = [k.data.views(i) for i in range(4)]
    g = [lambda x, p=p: p["A"].mean(0) @ x - p["b"].mean(0) for p in parts]
    X, last, Y = [k.x0] * 4, [k.x0] * 4, [g[i](k.x0) for i in range(4)]
    for t in range(9):
        Y = [0.7 * (Y[i] - g[i](last[i])) + g[i](X[i]) for i in range(4)]  # each keeps its own
        y = torch.stack(Y).mean(0)
        last, X = X, [X[i] - 0.1 * (0.5 * (X[i] - parts[i]["e"].mean(0)) + parts[i]["A"].mean(0).T @ (y - 1)) for i in range(4)]
        if (t + 1) % 3 == 0:
            X = [torch.stack(X).mean(0)] * 4
    torch.testing.assert_close(state.x, X[0])
    torch.testing.assert_close(state.y, y)


# FedNest


def test_random_truncation_is_unbiased_for_the_truncated_series() -> None:
    k = known.bilevel()
    fed, N = Federation(k.problem, k.data), 6
    assert k.y_star is not None
    random = FedNest(0.1, terms=N, smoothness=2.5)
    series = FedNest(0.1, terms=N - 1, smoothness=2.5, inverse_solver="neumann")
    mean = torch.stack([random.fed_ihgp(fed, *fed.broadcast(k.x0, k.y_star), terms=n) for n in range(N)]).mean(0)  # type: ignore[misc]
    torch.testing.assert_close(mean, series.fed_ihgp(fed, *fed.broadcast(k.x0, k.y_star)))
    draws = [fed.integer(N) for _ in range(3000)]
    assert np.bincount(draws, minlength=N).min() > 400  # N' is uniform


def test_hypergradient_error_falls_with_the_predicted_exponent() -> None:
    """‖p_N − H⁻¹v‖ = (1 − μ/ℓ)^{N+1}‖H⁻¹v‖ along the flattest direction of H: fit the exponent."""
    k = known.bilevel()
    fed, ell = Federation(k.problem, k.data), 6.0
    H = known.client_means(k.data, lambda p: p["H"].mean(0))
    values, vectors = torch.linalg.eigh(H)
    y = known.client_means(k.data, lambda p: p["t"].mean(0)) + vectors[:, 0]  # so that ∇y f is that direction
    exact = torch.linalg.solve(H, vectors[:, 0])
    terms = np.arange(5, 45, 5)
    X, Y = fed.broadcast(k.x0, y)
    series = [FedNest(0.1, terms=int(n), smoothness=ell, inverse_solver="neumann").fed_ihgp(fed, X, Y) for n in terms]
    errors = [float((p - exact).norm()) for p in series]  # type: ignore[operator]
    assert np.polyfit(terms, np.log(errors), 1)[0] == pytest.approx(np.log(1 - float(values[0]) / ell), rel=1e-6)


def test_fednest_exchanges_are_exactly_2t_plus_n_prime_plus_3() -> None:
    k = known.bilevel()
    fed = Federation(k.problem, k.data)
    algorithm = FedNest(0.1, inner_rounds=3, terms=7, smoothness=2.5)
    state, chosen, draw = algorithm.init(fed, k.x0, k.y0), [], fed.integer
    fed.integer = lambda bound: chosen.append(draw(bound)) or chosen[-1]  # type: ignore[func-returns-value,method-assign]
    for _ in range(8):
        before = fed.ledger["train"].exchanges
        state = algorithm.round(fed, state)
        assert fed.ledger["train"].exchanges - before == 2 * 3 + chosen[-1] + 3
        assert fed.ledger["train"].calls["g_yy"] == 4 * sum(chosen)
    assert len(set(chosen)) > 2


def test_a_fresh_cohort_for_every_term() -> None:
    k = known.bilevel(sizes=(3,) * 12)
    fed = Federation(k.problem, k.data, clients_per_round=2)
    seen: set[tuple[int, ...]] = set()
    cohort = fed.cohort
    fed.cohort = lambda size=None: (c := cohort(size), seen.add(tuple(c.index)))[0]  # type: ignore[func-returns-value,method-assign]
    algorithm = FedNest(0.1, terms=8, smoothness=2.5, inverse_solver="neumann")
    algorithm.round(fed, algorithm.init(fed, k.x0, k.y0))
    assert len(seen) > 4


# conditional problems


def test_bias_of_the_conditional_gradient_falls_as_one_over_m() -> None:
    """For smooth f the norm of the bias is O(1/m): slope −1 in log-log. f = log cosh of a Gaussian inner value."""
    @dataclass(frozen=True)
    class Ask(Program):
        inner: int

        def gradient(self, c: Any, x: Tensor) -> Tensor:
            return c.gradient(x, c.draw(20_000, self.inner))

    x = torch.tensor([0.8, -0.5], dtype=torch.float64)

    def problem(shared: bool) -> Conditional:
        return Conditional(lambda u, xi: torch.log(torch.cosh(u[:, 0] - 0.5)),
                           lambda z, xi, eta: ((xi.xi[:, None] * 0.3 + eta.eta * shared) @ z)[..., None],
                           sampling=Normal((2,), (2,), torch.float64))

    data = Data.streams([f"c{i}" for i in range(16)])

    def mean_gradient(p: Conditional, inner: int, seeds: int = 1) -> Tensor:
        total = []
        for seed in range(seeds):
            fed = Federation(p, data, engine="loop", seed=seed)
            total.append(fed.mean(fed.map(Ask(inner).gradient, fed.broadcast(x))))
        return torch.stack(total).mean(0)

    exact = mean_gradient(problem(False), 1, seeds=4)  # the inner mean without its noise
    m = np.array([1, 2, 4, 8])
    bias = [float((mean_gradient(problem(True), int(i), seeds=3) - exact).norm()) for i in 2 * m]
    assert np.polyfit(np.log(m), np.log(bias), 1)[0] == pytest.approx(-1, abs=0.1)


def test_acc_fcsg_m_with_dropout_sees_the_same_masks_twice() -> None:
    """At x_t = x_{t−1} the correction is (1−β)u + β∇: only if both gradients are under the same masks."""
    torch.manual_seed(0)
    model = Model(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1)))
    data = Data.from_parts({f"c{i}": {"a": torch.randn(6, 3), "eta": torch.randn(6, 4, 3)} for i in range(2)})
    problem = Conditional(lambda u, xi: u[:, 0].square(), lambda x, xi, eta: model(x, xi.a[:, None] + eta.eta),
                          sampling=Stored("eta"), model=model)
    fed = Federation(problem, data, engine="auto")
    algorithm = AccFCSGM(0.1, 1, 3, 2, beta=1e-9)
    x, u = model.vector(), torch.randn(model.size)
    X, U = fed.broadcast(x, u)
    torch.testing.assert_close(fed.mean(fed.map(algorithm.correct, X, U, X)), u)
    assert fed.engine.name == "auto:loop"
    one, two = (fed.mean(fed.map(algorithm.first_estimate, fed.broadcast(x))) for _ in range(2))
    assert (one - two).norm() > 1e-3  # and other batches are under other masks


# DRO


def test_kl_dro_over_unequal_clients_is_the_pooled_brute_force() -> None:
    torch.manual_seed(0)
    parts = {f"c{i}": {"a": torch.randn(n, 3, dtype=torch.float64) + i, "b": torch.randn(n, dtype=torch.float64)}
             for i, n in enumerate((2, 5, 11))}
    data = Data.from_parts(parts)
    lam, x = 0.7, torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)
    losses = lambda z, b: (b.a @ z - b.b).square()  # noqa: E731
    fed = Federation(kl_dro(losses, lam), data, weights="samples")
    problem = fed.prepare(x)
    algorithm = FedDRO(0.05, 0.5)
    state = algorithm.init(fed, x)
    pooled = losses(x, Batch(data.fields))
    # the maximum over the weights p, found by ascent on the simplex rather than from the formula
    logits = torch.zeros(18, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([logits], lr=0.05)
    for _ in range(4000):
        p = torch.softmax(logits, 0)
        value = (p * pooled).sum() - lam * (p * torch.log(18 * p)).sum()
        optimiser.zero_grad()
        (-value).backward()
        optimiser.step()
    assert float(problem.f(state.y)) == pytest.approx(float(value.detach()), abs=1e-6)  # type: ignore[attr-defined]
    z = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(lam * torch.logsumexp(losses(z, Batch(data.fields)) / lam - np.log(18), 0), z)
    torch.testing.assert_close((x - algorithm.round(fed, state).x) / 0.05, gradient)
    assert fed.ledger["setup"].exchanges == 1
    equal = Federation(kl_dro(losses, lam, shift=0.0), data)
    assert abs(float(equal.problem.f(algorithm.init(equal, x).y)) - float(value.detach())) > 1e-2  # type: ignore[attr-defined]


def test_prepare_agrees_on_every_engine() -> None:
    data = Data.from_parts({f"c{i}": {"a": torch.randn(n, 3, dtype=torch.float64), "b": torch.randn(n, dtype=torch.float64)}
                            for i, n in enumerate((2, 5, 3))})
    ends = []
    for engine in ("loop", "vectorised", "wire"):
        fed = Federation(kl_dro(lambda z, b: (b.a @ z - b.b).square(), 0.5), data, engine=engine)
        fed.prepare(torch.ones(3, dtype=torch.float64))
        algorithm = FedDRO(0.05, 0.5, 2, 2)
        ends.append(rounds(algorithm, fed, algorithm.init(fed, torch.ones(3, dtype=torch.float64)), 4).x)
        assert fed.setting.constants is not None
    torch.testing.assert_close(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])


# schedules


@dataclass(frozen=True)
class Halving(Schedule):
    start: float

    def at(self, t: int) -> float:
        return self.start / 2**t


@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire"])
def test_a_schedule_is_evaluated_by_the_server(engine: str) -> None:
    k = known.minimization(sizes=(4, 4, 4, 4))
    fed = Federation(k.problem, k.data, engine=engine)
    algorithm = FedAvg(Halving(0.2))
    state, x = algorithm.init(fed, k.x0), k.x0
    for t in range(4):
        state, x = algorithm.round(fed, state), x - 0.2 / 2**t * k.gradient(x)
    torch.testing.assert_close(state.x, x)
