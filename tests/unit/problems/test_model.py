"""A module as a function of one flat vector: parameters, gradients, modes, what cannot be a vector."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from small_nets import dropped, mlp
from torch import Tensor, nn

from rookery import Model, grad
from rookery.errors import ModuleError


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
