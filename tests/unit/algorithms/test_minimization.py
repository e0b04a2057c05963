"""The single-level baselines: identities between them, what their papers state, engines, refusals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from baselines import HIGH, LOW, LR, ROUNDS, Q, alike, different, run, same
from torch import Tensor

from rookery import (
    BSpiderBoost,
    Data,
    Epochs,
    FedAvg,
    Federation,
    FedLin,
    FedNest,
    FedNova,
    FedOpt,
    FedProx,
    FedSVRG,
    LocalSGDM,
    Schedule,
    as_bilevel,
    box,
    theory,
)
from rookery.errors import AlgorithmError
from rookery.problems import testproblems as known

FEDAVG = {"mu = 0 makes FedProx FedAvg": FedProx(LR, Q, 2, mu=0.0),
          "LocalSGDM without momentum is FedAvg": LocalSGDM(LR, Q, 2, momentum=0.0),
          "FedOpt without momentum, and a server step of 1, is FedAvg": FedOpt(LR, Q, 2, "momentum", server_lr=1.0, beta1=0.0)}


@pytest.mark.parametrize("clients_per_round", [None, 2])
@pytest.mark.parametrize("law", FEDAVG)
def test_identity_with_fedavg(law: str, clients_per_round: int | None) -> None:
    k = known.minimization()
    options: dict[str, Any] = {"weights": "samples", "clients_per_round": clients_per_round, "seed": 4}
    plain = run(FedAvg(LR, Q, 2), Federation(k.problem, k.data, **options), k.x0)
    same(run(FEDAVG[law], Federation(k.problem, k.data, **options), k.x0), [x.numpy() for x in plain])
    changed = {FedProx: {"mu": 1.0}, LocalSGDM: {"momentum": 0.5}, FedOpt: {"beta1": 0.5}}[type(FEDAVG[law])]  # type: ignore[index]
    different(run(replace(FEDAVG[law], **changed), Federation(k.problem, k.data, **options), k.x0), [x.numpy() for x in plain])


@pytest.mark.parametrize(("clients_per_round", "limits"), [(None, None), (2, None), (None, box(LOW, HIGH))])
def test_fednova_with_equal_local_steps_is_fedavg(clients_per_round: int | None, limits: Any) -> None:
    k = known.minimization()
    k = replace(k, problem=replace(k.problem, project_x=limits))
    options: dict[str, Any] = {"weights": "samples", "clients_per_round": clients_per_round, "seed": 4, "engine": "loop"}
    fed = Federation(k.problem, k.data, **options)
    algorithm, plain = FedAvg(LR, Q, 2), []
    state = algorithm.init(fed, k.x0)
    for t in range(ROUNDS):
        fed.counters["train"] = 3 * t + 1  # FedNova's steps are the second of its three calls in a round
        state = algorithm.round(fed, state)
        plain.append(state.x.numpy())
    same(run(FedNova(LR, Q, 2), Federation(k.problem, k.data, **options), k.x0), plain)


@pytest.mark.parametrize("steps", [Q, Epochs(1)], ids=["steps", "epochs"])
@pytest.mark.parametrize(("clients_per_round", "limits"), [(None, None), (2, None), (None, box(LOW, HIGH))])
def test_fedsvrg_is_fednest_on_a_minimisation(clients_per_round: int | None, limits: Any, steps: int | Epochs) -> None:
    k = known.minimization()
    k = replace(k, problem=replace(k.problem, project_x=limits))
    options: dict[str, Any] = {"weights": "samples", "clients_per_round": clients_per_round, "seed": 4, "engine": "loop"}
    nested = run(FedNest(LR, local_steps=steps, batch=2), Federation(as_bilevel(k.problem), k.data, **options), k.x0)
    fed = Federation(k.problem, k.data, **options)
    same(run(FedSVRG(LR, steps, 2), fed, k.x0), [x.numpy() for x in nested])
    different(run(FedLin(LR, steps, 2), Federation(k.problem, k.data, **options), k.x0), [x.numpy() for x in nested])


def test_fedlin_with_full_gradients_is_fedsvrg_with_half_the_gradients() -> None:
    k = known.minimization()
    feds = [Federation(k.problem, k.data) for _ in range(2)]
    same(run(FedLin(LR, Q), feds[0], k.x0), [x.numpy() for x in run(FedSVRG(LR, Q), feds[1], k.x0)])
    assert [fed.ledger["train"].calls["gradient"] for fed in feds] == [4 * ROUNDS * (Q + 1), 4 * ROUNDS * (2 * Q + 1)]


@pytest.mark.parametrize("make", [FedLin, FedSVRG])
def test_of_one_client_the_corrections_cancel(make: Any) -> None:
    """x_i ← x_i − (lr/τ)∇f(x_i), τ times: gradient descent with steps of lr/τ."""
    k = known.minimization(sizes=(6,))
    plain = run(FedAvg(LR / Q, Q), Federation(k.problem, k.data), k.x0)
    same(run(make(LR, Q), Federation(k.problem, k.data), k.x0), [x.numpy() for x in plain])


@pytest.mark.parametrize("algorithm", [FedProx(LR), FedNova(LR, rho=0.5), FedLin(LR), FedSVRG(LR)], ids=lambda a: a.title)
def test_one_local_step_is_centralised(algorithm: Any) -> None:
    k = known.minimization()
    x, theirs = k.x0, []
    for _ in range(ROUNDS):
        x = x - LR * k.gradient(x)
        theirs.append(x.numpy())
    same(run(algorithm, Federation(k.problem, k.data), k.x0), theirs)


def test_one_local_step_of_local_sgdm_is_torchs_momentum() -> None:
    k = known.minimization()
    x = k.x0.clone().requires_grad_()
    optimiser, theirs = torch.optim.SGD([x], lr=LR, momentum=0.8), []
    for _ in range(ROUNDS):
        x.grad = k.gradient(x.detach())
        optimiser.step()
        theirs.append(x.detach().numpy().copy())
    same(run(LocalSGDM(LR, momentum=0.8), Federation(k.problem, k.data), k.x0), theirs)


def test_fednova_has_the_solution_of_the_right_objective_and_fedavg_that_of_another() -> None:
    """With unequal τ_i and small lr FedAvg settles at the minimum of Σ τ_i f_i, FedNova at that of Σ f_i (Wang et al. 2020, Theorem 1)."""
    k = alike(known.minimization())
    tau = torch.tensor([float(np.ceil(n / 2)) for n in k.data.sizes], dtype=torch.float64)

    def solution(weights: Tensor) -> Tensor:
        parts = [k.data.views(i) for i in range(4)]
        H = sum(w * (p["a"].T @ p["a"] / len(p["a"]) + 0.5 * torch.eye(3)) for w, p in zip(weights, parts, strict=True))
        r = sum(w * p["a"].T @ p["b"] / len(p["a"]) for w, p in zip(weights, parts, strict=True))
        return torch.linalg.solve(H, r)  # type: ignore[arg-type]

    right, biased = solution(torch.ones(4)), solution(tau)
    assert (right - biased).norm() > 0.15
    for make, there in ((FedNova, right), (FedAvg, biased)):
        coarse, fine = (run(make(lr, Epochs(1), 2), Federation(k.problem, k.data), there, int(5 / lr))[-1]
                        for lr in (0.08, 0.04))
        assert 1.6 < (coarse - there).norm() / (fine - there).norm() < 2.5  # O(lr): halves with it
        assert (2 * fine - coarse - there).norm() < 0.02  # where lr = 0 would lead, up to O(lr²)


@pytest.mark.parametrize("make", [FedLin, FedSVRG])
def test_unequal_local_steps_leave_the_solution_in_place_and_the_rate_linear(make: Any) -> None:
    k = alike(known.minimization())
    H = known.client_means(k.data, lambda p: p["a"].T @ p["a"] / len(p["a"])) + 0.5 * torch.eye(3, dtype=torch.float64)
    solution = torch.linalg.solve(H, known.client_means(k.data, lambda p: p["a"].T @ p["b"] / len(p["a"])))
    algorithm = make(0.3, Epochs(2), 2)
    torch.testing.assert_close(run(algorithm, Federation(k.problem, k.data), solution, 1)[0], solution, rtol=0, atol=1e-12)
    errors = np.log([float((x - solution).norm()) for x in run(algorithm, Federation(k.problem, k.data), k.x0, 120)])
    assert errors[-1] < np.log(1e-7)
    slopes = [np.polyfit(np.arange(40), part, 1)[0] for part in (errors[40:80], errors[80:])]
    assert slopes[0] == pytest.approx(slopes[1], rel=1e-3)  # log ‖x − x*‖ is a line


@dataclass(frozen=True)
class Halving(Schedule):
    start: float

    def at(self, t: int) -> float:
        return self.start / 2**t


EPOCHS = {"FedProx": FedProx(Halving(LR), Epochs(1), 2), "FedNova": FedNova(Halving(LR), Epochs(1), 2, rho=0.4),
          "FedLin": FedLin(Halving(LR), Epochs(1), 2), "FedSVRG": FedSVRG(Halving(LR), Epochs(1), 2),
          "LocalSGDM": LocalSGDM(Halving(LR), Epochs(1), 2), "FedOpt": FedOpt(Halving(LR), Epochs(1), 2, "yogi", Halving(0.3), tau=0.1)}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["double", "single"])
@pytest.mark.parametrize("name", EPOCHS)
def test_engines_agree_with_unequal_steps_schedules_and_cohorts(name: str, dtype: torch.dtype) -> None:
    k = known.minimization(sizes=(5, 3, 4, 7, 4, 3))
    data = Data.from_parts({n: {f: v.to(dtype) for f, v in k.data.views(i).items()} for i, n in enumerate(k.data.names)})
    feds = {e: Federation(k.problem, data, engine=e, clients_per_round=5, weights="samples") for e in ("loop", "vectorised", "wire")}
    ends = {e: run(EPOCHS[name], fed, k.x0.to(dtype), 3)[-1] for e, fed in feds.items()}
    assert torch.equal(ends["wire"], ends["loop"])
    torch.testing.assert_close(ends["vectorised"], ends["loop"])
    assert ends["vectorised"].dtype == dtype
    assert all(fed.ledger == feds["loop"].ledger for fed in feds.values())
    fed = Federation(k.problem, data, clients_per_round=5, weights="samples")
    assert (run(replace(EPOCHS[name], lr=LR), fed, k.x0.to(dtype), 3)[-1] - ends["loop"]).norm() > 1e-3  # the schedule was followed


@pytest.mark.parametrize(("make", "text"), [
    (lambda: FedProx(LR, mu=-0.1), "mu must not be negative; got -0.1"),
    (lambda: FedNova(LR, rho=1.0), r"rho, the local momentum, must lie in \[0, 1\); got 1.0"),
    (lambda: LocalSGDM(LR, momentum=-0.5), r"momentum must lie in \[0, 1\); got -0.5"),
    (lambda: FedOpt(LR, server="sgd"), "server is one of momentum, adagrad, adam, yogi; got 'sgd'"),  # type: ignore[arg-type]
    (lambda: FedOpt(LR, beta2=1.0), r"beta2 must lie in \[0, 1\); got 1.0"),
    (lambda: FedOpt(LR, tau=0.0), "tau must be positive; got 0.0"),
    (lambda: FedLin(0.0), "lr must be positive; got 0.0"),
    (lambda: FedSVRG(LR, 0), "local_steps must be positive; got 0"),
    (lambda: BSpiderBoost(LR, large=0), "large must be positive; got 0"),
    (lambda: theory.fcsg(0, 4, 1.0), "T must be positive; got 0"),
])
def test_refusals(make: Any, text: str) -> None:
    with pytest.raises(AlgorithmError, match=text):
        make()
