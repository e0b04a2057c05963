"""A client's oracles: dropout that follows the batch, precision that stays inside."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from small_nets import dropped, mlp, regression, table
from torch import Tensor, nn

from rookery import Data, FedAvg, Federation, Minimization, Model, Program, grad
from rookery.errors import EngineError, ProblemError


@dataclass(frozen=True)
class Ask(Program):
    """Client functions that ask the oracle twice."""

    def once(self, c, x) -> Tensor:
        return c.gradient(x, c.draw())

    def same_batch(self, c, x) -> tuple[Tensor, Tensor]:
        b = c.draw(4)
        return c.gradient(x, b), c.gradient(x, b)

    def two_points(self, c, x) -> tuple[Tensor, Tensor]:
        b = c.draw(4)
        return c.gradient(x, b), c.gradient(2 * x + 1, b)

    def two_batches(self, c, x) -> tuple[Tensor, Tensor]:
        return c.gradient(x, c.draw(4)), c.gradient(x, c.draw(4))


def ask(fed: Federation, function: str, x: Tensor):
    made = fed.map(getattr(Ask(), function), fed.broadcast(x))
    return fed.sum(*made) if isinstance(made, tuple) else fed.sum(made)


def test_two_oracle_calls_on_one_batch_see_the_same_masks():
    model = Model(dropped())
    fed = Federation(regression(model), table(), engine="loop")
    first, second = ask(fed, "same_batch", model.vector())
    assert torch.equal(first, second)
    # a loss linear in x: its gradient depends on the masks alone, not on the point
    linear = Model(nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 1)))
    fed = Federation(Minimization(lambda x, b: linear(x, b.inputs).sum(), model=linear), table(), engine="loop")
    first, second = ask(fed, "two_points", linear.vector())
    assert torch.equal(first, second)


def test_two_batches_of_the_same_rows_see_different_masks():
    model = Model(dropped())
    first, second = ask(Federation(regression(model), table(equal=True), engine="loop"), "two_batches", model.vector())
    assert not torch.equal(first, second)
    still = Model(mlp())
    first, second = ask(Federation(regression(still), table(equal=True), engine="loop"), "two_batches", still.vector())
    assert torch.equal(first, second)  # without dropout they are the same


def test_masks_change_from_call_to_call_and_from_client_to_client():
    model = Model(dropped())
    fed = Federation(regression(model), table(equal=True), engine="loop")
    assert not torch.equal(ask(fed, "once", model.vector()), ask(fed, "once", model.vector()))
    row = {"inputs": torch.ones(4, 3), "labels": torch.zeros(4)}
    alone = [ask(Federation(regression(model), Data.from_parts({name: row}), engine="loop"), "once", model.vector())
             for name in ("a", "b", "a")]
    assert [torch.equal(p, q) for p, q in pairwise(alone)] == [False, False]
    assert torch.equal(alone[0], alone[2])


def test_an_oracle_call_leaves_the_generator_as_it_was():
    model = Model(dropped())
    fed = Federation(regression(model), table(), engine="loop")
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = ask(fed, "same_batch", model.vector())[0]
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(6)  # and does not read it
    again = ask(Federation(regression(model), table(), engine="loop"), "same_batch", model.vector())[0]
    assert torch.equal(first, again)


def test_dropout_keeps_the_gradient_in_expectation():
    """For a loss linear in the masks, the mean over many masks is the gradient without dropout."""
    module = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 1))
    model, data = Model(module), table()
    fed = Federation(Minimization(lambda x, b: model(x, b.inputs).mean(), model=model), data, engine="loop")
    mean = torch.stack([ask(fed, "once", model.vector()) for _ in range(400)]).mean(0)
    rows = data.fields["inputs"]
    expected, spread = torch.cat([rows.mean(0), torch.ones(1)]), rows.square().mean(0).sqrt() / (len(rows) * 400) ** 0.5
    assert ((mean - expected).abs() <= torch.cat([5 * spread, torch.tensor([1e-6])])).all()


def run(engine: str, model: Model) -> tuple[Tensor, Federation]:
    fed = Federation(regression(model), table(clients=3), engine=engine)
    algorithm = FedAvg(lr=0.05, local_steps=3, batch=4)
    state = algorithm.init(fed, model.vector())
    for _ in range(2):
        state = algorithm.round(fed, state)
    return state.x, fed


def test_which_engines_run_dropout():
    with pytest.raises(EngineError, match=r'dropout or augmentation.*write engine="loop" or engine="auto"'):
        Federation(regression(Model(dropped())), table(clients=3), engine="vectorised")
    expected, _ = run("loop", Model(dropped()))
    for engine in ("auto", "wire"):
        x, fed = run(engine, Model(dropped()))
        assert torch.equal(x, expected)
    _, fed = run("auto", Model(dropped()))
    assert fed.engine.name == "auto:loop"
    assert "dropout" in fed.engine.reason


@pytest.mark.parametrize("case", ["dropout", "precision"])
def test_a_right_oracle_by_hand_passes_its_check(case):
    model = Model(dropped() if case == "dropout" else mlp())
    problem = regression(model)
    problem = Minimization(problem.f, model=model, oracles={"gradient": lambda x, b: grad(lambda z: problem.f(z, b), x)})
    ask(Federation(problem, table(), engine="loop", precision=torch.bfloat16 if case == "precision" else None), "once", model.vector())


@pytest.mark.parametrize("engine", ["loop", "auto", "wire"])
def test_precision_rounds_inside_the_oracle_only(engine):
    model = Model(mlp())
    full = ask(Federation(regression(model), table(), engine="loop"), "once", model.vector())
    half = ask(Federation(regression(model), table(), engine=engine, precision=torch.bfloat16), "once", model.vector())
    assert half.dtype == torch.float32
    assert not torch.equal(half, full)
    assert (half - full).norm() <= 0.03 * full.norm()  # bfloat16 has 8 bits: a few units of 2⁻⁸


def test_precision_is_refused_where_it_cannot_be_had():
    with pytest.raises(EngineError, match=r'autocast; write engine="loop"'):
        Federation(regression(Model(mlp())), table(), engine="vectorised", precision=torch.bfloat16)


@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_a_variable_is_no_matrix_whose_rows_would_meet_those_of_a_batch(engine):
    problem = Minimization(lambda x, b: (x - b.u).square().sum(-1).mean())
    fed = Federation(problem, Data.from_parts({"a": {"u": torch.arange(5.0)[:, None]}}), engine=engine)
    assert ask(fed, "once", torch.zeros(1)).tolist() == [-4.0]
    with pytest.raises(ProblemError, match=r"x is one flat vector; the oracle 'gradient' was given one of shape \(5, 1\)"):
        ask(fed, "once", torch.zeros(5, 1))
