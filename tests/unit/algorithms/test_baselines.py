"""The single-level baselines and the one-machine conditional methods: twins, identities, what their papers state, parameter rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
import twins_baselines as twins
from torch import Tensor

from rookery import (
    BSGD,
    FCSG,
    FCSGM,
    AccFCSGM,
    Batch,
    BSpiderBoost,
    Conditional,
    Data,
    Epochs,
    FedAvg,
    FedDRO,
    Federation,
    FedLin,
    FedNest,
    FedNova,
    FedOpt,
    FedProx,
    FedSVRG,
    LocalSGDM,
    Minimization,
    as_bilevel,
    box,
    theory,
)
from rookery.algorithms.minimization.fedopt import SERVERS
from rookery.data import Stored
from rookery.errors import AlgorithmError, ProblemError
from rookery.federation.program import Schedule
from rookery.objectives import with_weight_decay
from rookery.problems import testproblems as known
from rookery.problems.testproblems import TestProblem

LR, Q, ROUNDS = 0.1, 3, 10
LOW, HIGH = 0.05, 0.3  # a box in which the constraint is active


def gradients(data: Data) -> list[Any]:
    """The clients' full gradients in NumPy."""
    parts = [{name: field.numpy() for name, field in data.views(i).items()} for i in range(len(data.names))]
    return [lambda x, p=p: p["a"].T @ (p["a"] @ x - p["b"]) / len(p["b"]) + 0.5 * x for p in parts]


def alike(k: TestProblem) -> TestProblem:
    """Every client's rows all alike: batches do not matter, and epochs give unequal numbers of steps."""
    data = Data.from_parts({n: {f: v.mean(0, keepdim=True).repeat(len(v), *[1] * (v.dim() - 1)) for f, v in k.data.views(i).items()}
                            for i, n in enumerate(k.data.names)})
    return replace(k, data=data)


def run(algorithm: Any, fed: Federation, x: Tensor, rounds: int = ROUNDS) -> list[Tensor]:
    state, out = algorithm.init(fed, x), []
    for _ in range(rounds):
        state = algorithm.round(fed, state)
        out.append(state.x)
    return out


def same(ours: list[Tensor], theirs: list[Any]) -> None:
    assert len(ours) == len(theirs) > 1
    np.testing.assert_allclose(torch.stack(ours).numpy(), np.asarray(theirs), rtol=1e-9, atol=1e-11)


def different(ours: list[Tensor], theirs: list[Any]) -> None:
    assert np.abs(torch.stack(ours).numpy() - np.asarray(theirs)).max() > 1e-3


# twins

OPT = {"server_lr": 0.3, "beta1": 0.6, "beta2": 0.8, "tau": 0.05}
TWINS: dict[str, tuple[Any, Any, Any]] = {
    "FedProx": (FedProx(LR, Q, mu=0.7), lambda *a, **o: twins.fedprox(*a, LR, Q, ROUNDS, 0.7, **o),
                lambda *a: twins.broken_fedprox(*a, LR, Q, ROUNDS, 0.7)),
    "FedLin": (FedLin(LR, Q), lambda *a, **o: twins.fedlin(*a, LR, [Q] * 4, ROUNDS, **o),
               lambda *a: twins.broken_fedlin(*a, LR, [Q] * 4, ROUNDS)),
    "LocalSGDM": (LocalSGDM(LR, Q, momentum=0.8), lambda *a, **o: twins.local_sgdm(*a, LR, Q, ROUNDS, 0.8, **o),
                  lambda *a: twins.broken_local_sgdm(*a, LR, Q, ROUNDS, 0.8)),
    **{f"FedOpt/{server}": (FedOpt(LR, Q, None, server, **OPT),  # type: ignore[arg-type]
                            lambda *a, server=server, **o: twins.fedopt(*a, LR, Q, ROUNDS, server, *OPT.values(), **o),
                            lambda *a, server=server: twins.broken_fedopt(*a, LR, Q, ROUNDS, server, *OPT.values()))
       for server in SERVERS}}


@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize("weights", ["equal", "samples"])
def test_twin(name: str, weights: str) -> None:
    algorithm, twin, broken = TWINS[name]
    k = known.minimization()
    given = None if weights == "equal" else k.data.sizes
    ours = run(algorithm, Federation(k.problem, k.data, weights=weights), k.x0)
    same(ours, twin(gradients(k.data), k.x0.numpy(), weights=given))
    if weights == "equal":
        different(ours, broken(gradients(k.data), k.x0.numpy()))


@pytest.mark.parametrize("name", TWINS)
def test_twin_under_an_active_constraint(name: str) -> None:
    algorithm, twin, _ = TWINS[name]
    k = known.minimization()
    ours = run(algorithm, Federation(replace(k.problem, project_x=box(LOW, HIGH)), k.data), k.x0)
    same(ours, twin(gradients(k.data), k.x0.numpy(), project=lambda x: np.clip(x, LOW, HIGH)))
    different(ours, twin(gradients(k.data), k.x0.numpy()))


@pytest.mark.parametrize("rho", [0.0, 0.6])
@pytest.mark.parametrize("weights", ["equal", "samples"])
def test_fednova_with_unequal_local_steps(rho: float, weights: str) -> None:
    k = alike(known.minimization())
    tau = [int(np.ceil(n / 2)) for n in k.data.sizes]
    assert len(set(tau)) > 1
    given = None if weights == "equal" else k.data.sizes
    ours = run(FedNova(LR, Epochs(1), 2, rho=rho), Federation(k.problem, k.data, weights=weights), k.x0)
    same(ours, twins.fednova(gradients(k.data), k.x0.numpy(), LR, tau, ROUNDS, rho, given))
    if rho:
        different(ours, twins.broken_fednova(gradients(k.data), k.x0.numpy(), LR, tau, ROUNDS, rho, given))
    else:
        different(ours, run(FedAvg(LR, Epochs(1), 2), Federation(k.problem, k.data, weights=weights), k.x0))


@pytest.mark.parametrize("algorithm", [FedSVRG(LR, Q), FedSVRG(LR, Epochs(1), 2)], ids=["equal", "unequal"])
def test_fedsvrg(algorithm: FedSVRG) -> None:
    k = alike(known.minimization())
    tau = [Q] * 4 if algorithm.batch is None else [int(np.ceil(n / 2)) for n in k.data.sizes]
    ours = run(algorithm, Federation(k.problem, k.data), k.x0)
    same(ours, twins.fedsvrg(gradients(k.data), k.x0.numpy(), LR, tau, ROUNDS))
    different(ours, twins.broken_fedsvrg(gradients(k.data), k.x0.numpy(), LR, tau, ROUNDS))


def test_fedlin_with_unequal_local_steps() -> None:
    k = alike(known.minimization())
    tau = [int(np.ceil(n / 2)) for n in k.data.sizes]
    ours = run(FedLin(LR, Epochs(1), 2), Federation(k.problem, k.data), k.x0)
    same(ours, twins.fedlin(gradients(k.data), k.x0.numpy(), LR, tau, ROUNDS))
    different(ours, twins.broken_fedlin(gradients(k.data), k.x0.numpy(), LR, tau, ROUNDS))


class Recording(Stored):
    """Conditional samples, and the gradient on each batch that was drawn, in NumPy."""

    def fetch(self, data: Data, selection: dict[str, Tensor]) -> Batch:
        batch = super().fetch(data, selection)
        assert batch.inner is not None
        eta, b = batch.inner.eta.mean(1).numpy(), batch.b.numpy()
        self.__dict__.setdefault("drawn", []).append(lambda x: eta.T @ (eta @ x - b) / len(b) + 0.5 * x)
        return batch


@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("algorithm", [BSGD(LR, Q, 2, 3), BSpiderBoost(LR, Q, 2, 3, 5)], ids=lambda a: a.title)
def test_one_machine_twins_on_the_samples_that_were_drawn(algorithm: BSGD, projected: bool) -> None:
    k = known.conditional(sizes=(9,))
    sampling, p = Recording("eta"), k.problem
    low, high = (LOW, HIGH) if projected else (-1e9, 1e9)
    fed = Federation(Conditional(p.f, p.g, p.h, sampling=sampling, project_x=box(low, high)), k.data, engine="loop")  # type: ignore[attr-defined]
    ours = run(algorithm, fed, k.x0)
    batches = sampling.__dict__["drawn"]
    assert len(batches) == Q * ROUNDS

    def clip(x: np.ndarray) -> np.ndarray:
        return np.clip(x, low, high)

    plain, spider = twins.bsgd(batches, k.x0.numpy(), LR, clip), twins.bspiderboost(batches, k.x0.numpy(), LR, Q, clip)
    right, wrong = (spider, plain) if isinstance(algorithm, BSpiderBoost) else (plain, spider)
    same(ours, right[Q - 1::Q])
    different(ours, wrong[Q - 1::Q])
    if isinstance(algorithm, BSpiderBoost) and not projected:
        different(ours, twins.broken_bspiderboost(batches, k.x0.numpy(), LR, Q)[Q - 1::Q])


# identities, sample for sample

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


@pytest.mark.parametrize("steps", [1, Q])
def test_fcsg_of_one_client_is_bsgd(steps: int) -> None:
    k = known.conditional(sizes=(9,))
    fed = Federation(k.problem, k.data, seed=2)
    algorithm, bsgd = BSGD(LR, 1, 2, 3), []
    state = algorithm.init(fed, k.x0)
    for t in range(ROUNDS):
        fed.counters["train"] = 3 * t  # FCSG has three calls in a round, and its first one draws
        state = algorithm.round(fed, state)
        bsgd.append(state.x.numpy())
    same(run(FCSG(LR, 1, 2, 3), Federation(k.problem, k.data, seed=2), k.x0), bsgd)
    full = [run(a, Federation(k.problem, k.data), k.x0) for a in (FCSG(LR, steps), BSGD(LR, steps), BSpiderBoost(LR, steps))]
    same(full[1], [x.numpy() for x in full[0]])
    same(full[2], [x.numpy() for x in full[0]])  # with full batches the corrections are exact


# statements


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


def test_bspiderboost_estimates_better_than_bsgd_from_the_same_batches() -> None:
    """The correction's variance is that of a difference of gradients at near points: with a full anchor, small against a gradient's."""
    k = known.conditional(sizes=(12,))
    moves: dict[str, list[Tensor]] = {"BSGD": [], "BSpiderBoost": []}
    for seed in range(30):
        for algorithm in (BSGD(0.02, 4, 2), BSpiderBoost(0.02, 4, 2)):
            moves[algorithm.title].append(run(algorithm, Federation(k.problem, k.data, seed=seed, engine="loop"), k.x0, 1)[0])
    spread = {name: float(torch.stack(ends).std(0).norm()) for name, ends in moves.items()}
    assert spread["BSpiderBoost"] < 0.2 * spread["BSGD"]


# engines, schedules, cohorts


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


# refusals


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


# parameter rules


def exponent(values: list[float], sizes: list[int]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


T, FAR = [10**12, 10**13, 10**14, 10**15], 10**15
RULES: dict[str, tuple[Any, dict[str, tuple[float, float]]]] = {  # the exponents of T, and of the number of clients
    "FCSG": (lambda t, n: theory.fcsg(t, n, 2.0), {"lr": (-1 / 2, 1 / 2), "local_steps": (1 / 4, -3 / 4)}),
    "FCSG-M": (lambda t, n: theory.fcsg_m(t, n, 2.0), {"lr": (-1 / 2, 1 / 2), "local_steps": (1 / 4, -3 / 4), "beta": (-1 / 2, 1 / 2)}),
    "Acc-FCSG-M": (lambda t, n: theory.acc_fcsg_m(t, n, 2.0, b=3), {"lr": (-1 / 3, 2 / 3), "local_steps": (1 / 3, -2 / 3),
                                                                     "beta": (-2 / 3, 1 / 3), "first": (1 / 3, -2 / 3)}),
    "FedDRO": (lambda t, n: theory.feddro(t, n, 1.5, 0.5), {"lr": (-1 / 2, 1 / 2), "local_steps": (1 / 4, -3 / 4),
                                                            "beta": (-1 / 2, 1 / 2)})}


@pytest.mark.parametrize("name", RULES)
def test_exponents_of_the_rules(name: str) -> None:
    rule, exponents = RULES[name]
    for parameter, (in_t, in_n) in exponents.items():
        assert exponent([rule(t, 2)[parameter] for t in T], T) == pytest.approx(in_t, abs=0.01)
        clients = [1, 2, 4, 8]
        assert exponent([rule(FAR, n)[parameter] for n in clients], clients) == pytest.approx(in_n, abs=0.01)


def test_rules_are_the_printed_formulas() -> None:
    t, n, s = 10**8, 4, 2.0
    assert theory.conditional_smoothness(S_f=2.0, L_f=3.0, S_g=5.0, L_g=7.0) == 5 * 3 + 2 * 49
    plain, accelerated, dro = theory.fcsg_m(t, n, s), theory.acc_fcsg_m(t, n, s, b=3), theory.feddro(t, n, 0.8, 0.5, b=2)
    assert plain["lr"] == pytest.approx(np.sqrt(n / t) / (6 * s))
    assert plain["local_steps"] == round((t / n**3) ** 0.25) == 35
    assert plain["beta"] == pytest.approx(5 * s * plain["lr"])
    assert accelerated["local_steps"] == round((t / n**2) ** (1 / 3)) == 184
    assert accelerated["lr"] == pytest.approx(n ** (2 / 3) / (12 * s * t ** (1 / 3)), rel=2e-3)  # q is a whole number, and α q ≤ 1/(12 S_F)
    assert accelerated["beta"] == pytest.approx(5 * n ** (1 / 3) / (24 * t ** (2 / 3) * 3), rel=4e-3)
    assert accelerated["first"] == round(t ** (1 / 3) / n ** (2 / 3)) == 184
    assert dro["lr"] == pytest.approx(np.sqrt(2 * n / t))
    assert dro["beta"] == pytest.approx(4 * 0.8**4 * 0.5**2 * dro["lr"])
    assert dro["local_steps"] == int(t**0.25 / (2 * n) ** 0.75) == 21
    assert theory.feddro(10**8, 1, 1.0, 1.0)["local_steps"] == 100  # an exact fourth root is not rounded below itself
    for chosen, power in ((plain, 3 / 4), (accelerated, 2 / 3)):  # the numbers of exchanges
        assert t / chosen["local_steps"] == pytest.approx((n * t) ** power, rel=0.02)
    assert t / dro["local_steps"] == pytest.approx((2 * n * t) ** 0.75, rel=0.05)


def test_rules_keep_their_bounds_where_they_are_cut_and_give_keyword_arguments() -> None:
    for t in (1, 10, 1000, 10**6):
        for n in (1, 3, 50, 1000):
            plain, accelerated, dro = theory.fcsg_m(t, n, 0.7), theory.acc_fcsg_m(t, n, 0.7, b=2), theory.feddro(t, n, 2.0, 3.0, b=2)
            assert plain["lr"] * 6 * plain["local_steps"] * 0.7 <= 1 + 1e-12
            assert accelerated["lr"] * 12 * accelerated["local_steps"] * 0.7 <= 1 + 1e-12
            assert accelerated["first"] >= accelerated["outer"]
            assert dro["local_steps"] <= max(1.0, t**0.25 / (2 * n) ** 0.75)
            for chosen in (plain, accelerated, dro):
                assert chosen["local_steps"] >= 1
                assert 0 < chosen["beta"] <= 1
            FCSG(inner=4, **theory.fcsg(t, n, 0.7))
            FCSGM(inner=4, **plain)
            AccFCSGM(inner=4, **accelerated)
            FedDRO(**dro)
    k = known.conditional()
    FCSG(outer=1, inner=2, **theory.fcsg(100, 4, 2.0)).init(Federation(k.problem, k.data), k.x0)


# weight decay


def test_weight_decay_moves_the_solution_to_the_closed_form() -> None:
    k = known.minimization()
    H = torch.stack([k.gradient(e) - k.gradient(torch.zeros_like(e)) for e in torch.eye(3, dtype=torch.float64)], 1)
    solution = torch.linalg.solve(H + 0.8 * torch.eye(3), -k.gradient(torch.zeros(3, dtype=torch.float64)))
    fed = Federation(with_weight_decay(k.problem, 0.8), k.data)  # type: ignore[arg-type]
    torch.testing.assert_close(run(FedAvg(0.2), fed, k.x0, 200)[-1], solution)
    assert (solution - k.x_star).norm() > 0.05


def test_weight_decay_is_torchs() -> None:
    k = known.minimization()
    x = k.x0.clone().requires_grad_()
    optimiser, theirs = torch.optim.SGD([x], lr=LR, weight_decay=0.8), []
    for _ in range(ROUNDS):
        x.grad = k.gradient(x.detach())
        optimiser.step()
        theirs.append(x.detach().numpy().copy())
    same(run(FedAvg(LR), Federation(with_weight_decay(k.problem, 0.8), k.data), k.x0), theirs)  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire"])
def test_weight_decay_keeps_what_the_problem_has(engine: str) -> None:
    """Hand-written oracles are compared with automatic differentiation on their first use, so that a forgotten term would raise."""
    k, made, limits = known.minimization(), [], box(-1.0, 0.1)

    def problem(slope: float, **sums: Any) -> Minimization:
        def f(x: Tensor, b: Batch) -> Tensor:
            return 0.5 * (b.a @ x - b.b).square().mean() + slope * x.sum()

        def gradient(x: Tensor, b: Batch) -> Tensor:
            return b.a.T @ (b.a @ x - b.b) / len(b.b) + slope

        return Minimization(f, oracles={"value": f, "gradient": gradient}, project_x=limits, **sums)

    def finish(total: Tensor) -> Minimization:
        made.append(float(total))
        return problem(0.3)

    decayed = with_weight_decay(problem(0.0, statistics=lambda x, b: b.b.sum().reshape(1), finish=finish), 0.5)
    fed = Federation(decayed, k.data, engine=engine)
    x = k.x0
    assert decayed.project_x is limits
    batch = Batch(k.data.views(0))
    torch.testing.assert_close(decayed.oracle("value")(x, batch), decayed.value(x, batch))
    torch.testing.assert_close(decayed.oracle("gradient")(x, batch), decayed.gradient(x, batch))
    before = decayed.gradient(x, batch)
    finished = fed.prepare(x)
    assert set(made) == {made[0]}  # on the wire each site finishes it for itself
    assert made[0] == pytest.approx(float(k.data.fields["b"].sum()))
    torch.testing.assert_close(finished.oracle("gradient")(x, batch), before + 0.3)  # the finished problem has the term too
    assert float(run(FedAvg(LR, 2), fed, k.x0, 3)[-1].max()) <= 0.1


def test_weight_decay_refuses_what_it_cannot_do() -> None:
    k = known.minimization()
    with pytest.raises(ProblemError, match="weight must not be negative; got -1"):
        with_weight_decay(k.problem, -1)  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="takes a Minimization; got Conditional"):
        with_weight_decay(known.conditional().problem, 0.1)  # type: ignore[arg-type]
