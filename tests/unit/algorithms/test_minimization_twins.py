"""The single-level baselines and their twins, also under an active constraint and with unequal local steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import twins_baselines as twins
from baselines import HIGH, LOW, LR, ROUNDS, Q, alike, different, gradients, run, same

from rookery import Epochs, FedAvg, Federation, FedLin, FedNova, FedOpt, FedProx, FedSVRG, LocalSGDM, box
from rookery.algorithms.minimization.fedopt import SERVERS
from rookery.problems import testproblems as known

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
