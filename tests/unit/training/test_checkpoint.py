"""Checkpoints: going back in a federation in use, and files that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rounds import rounds
from verbs import engines, work

from rookery import SCAFFOLD, AccFCSGM, Data, FedAvg, FedDRO, Federation, Minimization
from rookery.data import Stratified
from rookery.engines import Wire
from rookery.errors import CheckpointError
from rookery.objectives import kl_dro
from rookery.problems import testproblems as known
from rookery.training import load, save


@engines
@pytest.mark.parametrize("clients_per_round", [None, 3])
@pytest.mark.parametrize(("algorithm", "make"), [(SCAFFOLD(0.1, 2, 2), known.minimization), (FedDRO(0.1, 0.3, 2, 2), known.compositional),
                                                 (AccFCSGM(0.1, 2, 2, 2), known.conditional)], ids=["SCAFFOLD", "FedDRO", "Acc-FCSG-M"])
def test_going_back_in_a_federation_in_use(engine: str, clients_per_round: int | None, algorithm: Any, make: Any, tmp_path: Path) -> None:
    """Save, go on, load, load again, exchange something else, and go on: as if nothing had happened after the save."""
    k = make()
    fed = Federation(k.problem, k.data, engine=Wire(tmp_path / "sites") if engine == "wire" else engine,
                     clients_per_round=clients_per_round)
    state = rounds(algorithm, fed, algorithm.init(fed, k.x0), 2)
    save(tmp_path / "ckpt", algorithm, fed, state)
    expected = rounds(algorithm, fed, state, 3)
    again = load(tmp_path / "ckpt", algorithm, fed)
    again = load(tmp_path / "ckpt", algorithm, fed)
    del state
    with fed.phase("evaluation"):
        fed.mean(fed.map(work.add, fed.broadcast(again.x), 0.0))
    assert torch.equal(rounds(algorithm, fed, again, 3).x, expected.x)


def test_checkpoints_of_other_data_another_sampler_or_other_constants_are_refused(tmp_path: Path) -> None:
    k = known.minimization()
    algorithm = FedAvg(0.1)
    fed = Federation(k.problem, k.data)
    save(tmp_path / "ckpt", algorithm, fed, algorithm.init(fed, k.x0))
    moved = Data({n: f + 1 for n, f in k.data.fields.items()}, k.data.names, k.data.sizes)
    other = Minimization(k.problem.f, sampling=Stratified("b", 1))  # type: ignore[attr-defined]
    for elsewhere in (Federation(k.problem, moved), Federation(other, k.data)):
        with pytest.raises(CheckpointError, match="another run"):
            load(tmp_path / "ckpt", algorithm, elsewhere)
    c, dro = known.compositional(), FedDRO(0.1)
    feds = [Federation(kl_dro(lambda x, b: (b.A @ x).square().sum(1)), c.data) for _ in range(3)]
    feds[0].prepare(c.x0)
    feds[1].prepare(2 * c.x0)
    save(tmp_path / "dro", dro, feds[0], dro.init(feds[0], c.x0))
    with pytest.raises(CheckpointError, match="constants"):
        load(tmp_path / "dro", dro, feds[1])
    assert torch.equal(load(tmp_path / "dro", dro, feds[2]).x, c.x0)
    scaffold, old = SCAFFOLD(0.1), Federation(k.problem, k.data)
    first = rounds(scaffold, old, scaffold.init(old, k.x0), 1)
    scaffold.round(old, first)
    with pytest.raises(CheckpointError, match="save the newest state"):
        save(tmp_path / "old", scaffold, old, first)


def test_a_truncated_a_foreign_and_a_missing_checkpoint_are_refused(tmp_path: Path) -> None:
    k = known.minimization()
    fed = Federation(k.problem, k.data, clients_per_round=2)
    algorithm = SCAFFOLD(0.1, 2)
    state = algorithm.round(fed, algorithm.init(fed, k.x0))
    path = tmp_path / "run.ckpt"
    save(path, algorithm, fed, state)
    whole = path.read_bytes()
    for cut in (0, 7, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(CheckpointError, match="not a whole checkpoint"):
            load(path, algorithm, Federation(k.problem, k.data, clients_per_round=2))
    path.write_bytes(whole)
    others: list[tuple[Any, Federation]] = [
        (SCAFFOLD(0.2, 2), Federation(k.problem, k.data, clients_per_round=2)),
        (algorithm, Federation(k.problem, k.data, clients_per_round=2, seed=1)),
        (algorithm, Federation(k.problem, k.data)), (FedAvg(0.1), Federation(k.problem, k.data, clients_per_round=2)),
        (algorithm, Federation(k.problem, known.minimization(sizes=(2, 2, 2)).data, clients_per_round=2))]
    for other, elsewhere in others:
        with pytest.raises(CheckpointError, match="another run"):
            load(path, other, elsewhere)
    with pytest.raises(CheckpointError, match="no checkpoint"):
        load(tmp_path / "nothing", algorithm, fed)
    assert [p.name for p in tmp_path.iterdir()] == ["run.ckpt"]  # nothing is left aside


def test_a_site_without_its_checkpoint_says_state_lost(tmp_path: Path) -> None:
    from rookery.engines import Wire
    from rookery.errors import StateLost
    k = known.minimization()
    wire = Wire(tmp_path / "sites")
    (tmp_path / "sites").mkdir()
    fed = Federation(k.problem, k.data, engine=wire)
    algorithm = SCAFFOLD(0.1, 2)
    save(tmp_path / "run.ckpt", algorithm, fed, algorithm.round(fed, algorithm.init(fed, k.x0)))
    wire.sites[2].file(next(p.name.split("-", 1)[1].removesuffix(".safetensors") for p in (tmp_path / "sites").iterdir())).unlink()
    with pytest.raises(StateLost, match="site-2"):
        load(tmp_path / "run.ckpt", algorithm, fed)
