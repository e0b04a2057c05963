"""The seam from modules to flat vectors: parameters, gradients, modes, projections, dropout, precision."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from rookery import Data, FedAvg, Federation, Minimization, Model, Program, ball, box, grad, simplex
from rookery.errors import EngineError, ModuleError


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def dropped() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 16), nn.Dropout(0.5), nn.Linear(16, 1))


def table(rows: int = 6, clients: int = 1, equal: bool = False) -> Data:
    g = torch.Generator().manual_seed(1)
    parts = {}
    for k in range(clients):
        fields = {"inputs": torch.randn(rows + k, 3, generator=g), "labels": torch.randn(rows + k, generator=g)}
        parts[f"c{k}"] = {name: field[:1].expand_as(field) if equal else field for name, field in fields.items()}
    return Data.from_parts(parts)


def regression(model: Model) -> Minimization:
    return Minimization(lambda x, b: (model(x, b.inputs)[:, 0] - b.labels).square().mean(), model=model)


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


# a module as a function of a vector


def test_vector_and_module_are_inverse():
    module = mlp()
    model = Model(module)
    expected = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    assert torch.equal(model.vector(), expected)
    assert model.size == expected.numel() == 26
    x = torch.randn(26)
    fresh = model.module(x)
    assert not fresh.training
    assert torch.equal(Model(fresh).vector(), x)
    assert torch.equal(model.vector(), expected)  # the module given is not touched
    model.vector().add_(1)
    assert torch.equal(model.vector(), expected)


def test_the_value_at_x_is_that_of_the_module_with_x_in_it():
    model, x, rows = Model(mlp()), torch.randn(26), torch.randn(5, 3)
    other = mlp()
    torch.nn.utils.vector_to_parameters(x, other.parameters())
    assert torch.allclose(model(x, rows), other(rows))
    assert torch.allclose(model.predict(x, rows, batch=2), other(rows))
    assert torch.allclose(model.module(x)(rows), other(rows))


def test_the_gradient_is_that_of_backward():
    module, rows = mlp(), torch.randn(5, 3)
    model = Model(module)
    module(rows).square().sum().backward()
    expected = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
    assert torch.allclose(grad(lambda x: model(x, rows).square().sum(), model.vector()), expected)


def test_frozen_parameters_stay_constant():
    module, rows = mlp(), torch.randn(5, 3)
    module[0].requires_grad_(False)
    model = Model(module)
    assert model.size == 10
    assert torch.equal(model.vector(), torch.cat([p.detach().reshape(-1) for p in module[2].parameters()]))
    before = copy.deepcopy(module[0].state_dict())
    x = torch.randn(10)
    fresh = model.module(x)
    assert all(torch.equal(fresh[0].state_dict()[name], value) for name, value in before.items())
    hidden = torch.tanh(module[0](rows))
    assert torch.allclose(model(x, rows), hidden @ x[:8].view(2, 4).T + x[8:])


def test_tied_parameters_are_one():
    module = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    module[2].weight = module[0].weight
    model, rows = Model(module), torch.randn(5, 3)
    assert model.size == 9 + 3 + 3
    x = torch.randn(15)
    weight, first, second = x[:9].view(3, 3), x[9:12], x[12:]
    assert torch.allclose(model(x, rows), torch.tanh(rows @ weight.T + first) @ weight.T + second, atol=1e-6)
    fresh = model.module(x)
    assert fresh[0].weight is fresh[2].weight
    assert torch.allclose(fresh(rows), model(x, rows))
    assert torch.allclose(model.predict(x, rows), model(x, rows))
    module(rows).sum().backward()
    expected = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
    assert torch.allclose(grad(lambda z: model(z, rows).sum(), model.vector()), expected)


def test_coordinates_beyond_the_model_are_the_callers():
    model, rows = Model(mlp()), torch.randn(5, 3)
    x = torch.cat([model.vector(), torch.tensor([2.0, 3.0])])
    assert torch.equal(model(x, rows), model(model.vector(), rows))
    assert torch.equal(model.predict(x, rows), model.predict(model.vector(), rows))
    assert torch.equal(Model(model.module(x)).vector(), model.vector())
    gradient = grad(lambda z: z[-1] * model(z, rows).sum(), x)
    assert gradient[-2] == 0
    assert torch.allclose(gradient[-1], model(x, rows).sum())


@pytest.mark.parametrize("x", [torch.zeros(25), torch.zeros(26, 1), torch.zeros(())])
def test_a_vector_that_does_not_fit_is_refused(x):
    with pytest.raises(ModuleError, match=r"26 trainable parameters; the vector has shape"):
        Model(mlp())(x, torch.zeros(1, 3))


def lazy() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.Sequential(nn.Linear(3, 3), nn.LazyLinear(2))


@pytest.mark.parametrize(("module", "sentence"), [
    (mlp().requires_grad_(False), r"no trainable parameters; set requires_grad=True"),
    (nn.ReLU(), r"no trainable parameters"),
    (lazy(), r"'1.weight' has no shape yet; run the module once on an example batch"),
    (nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2).double()), r"one floating dtype; found .*float32.*float64.*module.float\(\)"),
])
def test_what_cannot_be_a_vector_is_refused(module, sentence):
    with pytest.raises(ModuleError, match=sentence):
        Model(module)


def test_a_frozen_part_may_have_another_dtype():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Linear(3, 3).double().requires_grad_(False), nn.Linear(3, 1)

        def forward(self, rows: Tensor) -> Tensor:
            return self.head(self.table(rows.double()).float())

    assert Model(Net()).size == 4


@pytest.mark.parametrize("training", [True, False])
def test_predict_leaves_the_mode_as_it_was(training):
    module, rows = dropped(), torch.randn(5, 3)
    model = Model(module)
    module.train(training)
    first = model.predict(model.vector(), rows)
    assert [layer.training for layer in module.modules()] == [training] * 4
    assert torch.equal(first, model.predict(model.vector(), rows))  # no dropout
    with pytest.raises(RuntimeError):
        model.predict(model.vector(), torch.randn(5, 7))
    assert [layer.training for layer in module.modules()] == [training] * 4


def test_predict_leaves_the_mode_of_each_layer_as_it_was():
    module = dropped()
    module[1].eval()
    model = Model(module)
    model.predict(model.vector(), torch.randn(5, 3))
    assert [layer.training for layer in module.modules()] == [True, True, False, True]


def test_a_module_given_in_inference_mode_is_trained_in_training_mode():
    model, rows = Model(dropped().eval()), torch.randn(5, 3)
    assert not torch.equal(model(model.vector(), rows), model.predict(model.vector(), rows))


def test_what_the_model_says_of_its_layers():
    assert not Model(mlp()).stochastic
    assert Model(mlp()).heavy is None
    assert Model(dropped()).stochastic
    assert Model(nn.Conv2d(1, 2, 3)).heavy == "Conv2d"
    assert Model(nn.LSTM(3, 3)).heavy == "LSTM"


@pytest.mark.parametrize("module", [nn.LSTM(3, 3, 2, dropout=0.5), nn.MultiheadAttention(4, 2, dropout=0.5)], ids=["lstm", "attention"])
def test_dropout_inside_a_layer_is_seen(module):
    assert Model(module).stochastic


def test_no_layer_keeps_state_outside_x():
    module = nn.Sequential(nn.Conv1d(1, 2, 1), nn.InstanceNorm1d(2, track_running_stats=True))
    with pytest.raises(ModuleError):
        Model(module)


# projections


def points(of: str, g: torch.Generator) -> Tensor:
    """Feasible points, not by projection."""
    if of == "ball":
        z = torch.randn(200, 5, generator=g, dtype=torch.float64)
        return 1.5 * z / z.norm(dim=1, keepdim=True) * torch.rand(200, 1, generator=g, dtype=torch.float64)
    if of == "box":
        return torch.rand(200, 5, generator=g, dtype=torch.float64) * 2 - 0.5
    z = -torch.rand(200, 5, generator=g, dtype=torch.float64).log()
    return torch.cat([z / z.sum(1, keepdim=True), torch.eye(5, dtype=torch.float64)])


@pytest.mark.parametrize(("of", "project"), [("ball", ball(1.5)), ("box", box(-0.5, 1.5)), ("simplex", simplex)])
@pytest.mark.parametrize("scale", [0.1, 1.0, 100.0])
def test_a_projection_is_the_nearest_feasible_point(of, project, scale):
    """p is the projection of v onto a convex set if and only if ⟨v − p, z − p⟩ ≤ 0 for all z of the set."""
    g = torch.Generator().manual_seed(0)
    feasible = points(of, g)
    for v in scale * torch.randn(50, 5, generator=g, dtype=torch.float64):
        p = project(v)
        assert ((feasible - p) @ (v - p)).max() <= 1e-12 * max(1.0, scale**2)
        assert torch.allclose(project(p), p, atol=1e-14)
    inside = feasible[0]
    assert torch.allclose(project(inside), inside, atol=1e-14)


def test_the_projections_are_feasible():
    for v in 3 * torch.randn(50, 7, generator=torch.Generator().manual_seed(0)):
        assert ball(2.0)(v).norm() <= 2 * (1 + 1e-6)
        assert box(-1.0, 0.5)(v).min() >= -1
        assert box(-1.0, 0.5)(v).max() <= 0.5
        assert simplex(v).min() >= 0
        assert abs(simplex(v).sum() - 1) < 1e-5


@pytest.mark.parametrize("v", [[5.0], [1.0, 1.0, 1.0], [-7.0, -7.0], [0.0, 0.0, 100.0], [0.3, 0.3, 0.4]])
def test_the_simplex_satisfies_its_optimality_conditions(v):
    """v − p is one number τ where p > 0, and at most τ where p = 0."""
    v = torch.tensor(v, dtype=torch.float64)
    p = simplex(v)
    tau = (v - p)[p > 0]
    assert abs(p.sum() - 1) < 1e-12
    assert torch.allclose(tau, tau[:1].expand_as(tau), atol=1e-12)
    assert ((v - p)[p == 0] <= tau[0] + 1e-12).all()


def test_projections_stand_under_vmap():
    v = 3 * torch.randn(6, 5)
    for project in (ball(1.0), box(0.0, 1.0), simplex):
        assert torch.allclose(torch.func.vmap(project)(v), torch.stack([project(row) for row in v]))


# dropout


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


# precision


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
