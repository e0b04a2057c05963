"""Batch norm in a federation: frozen, replaced, or with moments that are summed over the clients."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from norms import SHAPES, WAYS, clients, federation, net, norms, train
from torch import nn

from rookery import Model
from rookery.errors import ModuleError
from rookery.models import FrozenNorm, federated_norm, freeze_norm, sum_moments, to_group_norm


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("way", WAYS)
def test_one_row_is_predicted_as_in_a_batch(way, kind):
    model, data = Model(WAYS[way](net(kind))), clients(kind)
    fed = federation(model, data)
    x = train(fed, model.vector())
    assert (x - model.vector()).abs().max() > 1e-3
    if way == "federated":
        sum_moments(fed, model, x, batch=4)
    rows = data.fields["inputs"]
    together = model.predict(x, rows)
    alone = torch.cat([model.predict(x, row[None]) for row in rows])
    assert torch.allclose(together, alone, atol=1e-5)
    assert torch.allclose(model.module(x)(rows), together, atol=1e-6)
    assert together.std() > 1e-3  # not a constant


@pytest.mark.parametrize("kind", SHAPES)
def test_frozen_norm_is_the_net_in_inference(kind):
    module, rows = net(kind), clients(kind).fields["inputs"]
    frozen = freeze_norm(module)
    expected = module.eval()(rows)
    assert torch.equal(frozen.train()(rows), expected)
    before = [b.clone() for b in frozen.buffers()]
    model = Model(frozen)
    train(federation(model, clients(kind)), model.vector())
    assert all(torch.equal(a, b) for a, b in zip(before, frozen.buffers(), strict=True))


def test_frozen_norm_trains_weight_and_bias():
    model = Model(freeze_norm(nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 1).requires_grad_(False))))
    assert model.size == 10
    x = train(federation(model, clients("mlp")), model.vector())
    assert ((x - model.vector()).abs() > 0).all()


def test_group_norm_takes_over_weight_and_bias():
    module, rows = net("conv"), clients("conv").fields["inputs"]
    old, new = norms(module, nn.BatchNorm2d), norms(to_group_norm(module), nn.GroupNorm)
    assert [(n.num_groups, n.num_channels, n.eps) for n in new] == [(2, 4, 1e-3), (2, 6, 1e-5)]
    assert all(torch.equal(o.weight, n.weight) and torch.equal(o.bias, n.bias) for o, n in zip(old, new, strict=True))
    value = module[0](rows)
    halves = value.unflatten(1, (2, 2))
    mean, var = halves.mean((2, 3, 4), keepdim=True), halves.var((2, 3, 4), unbiased=False, keepdim=True)
    scaled = ((halves - mean) / (var + 1e-3).sqrt()).flatten(1, 2) * old[0].weight[:, None, None] + old[0].bias[:, None, None]
    assert torch.allclose(new[0](value), scaled, atol=1e-5)


@pytest.mark.parametrize(("groups", "channels", "expected"), [(8, 12, 4), (32, 64, 32), (2, 7, 1), (5, 5, 5)])
def test_the_number_of_groups_divides_the_channels(groups, channels, expected):
    assert to_group_norm(nn.BatchNorm2d(channels), groups).num_groups == expected
    assert to_group_norm(nn.BatchNorm1d(channels), groups).num_groups == 1


def test_group_norm_refuses_what_would_be_constant():
    with pytest.raises(ModuleError, match=r"BatchNorm1d of one channel.*freeze_norm\(module\) or federated_norm\(module\)"):
        to_group_norm(nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 1)))
    with pytest.raises(ModuleError, match="groups must be at least 1; got 0"):
        to_group_norm(net("conv"), 0)


@pytest.mark.parametrize("kind", SHAPES)
def test_federated_norm_is_the_net_in_training_and_in_inference(kind):
    module, rows = net(kind), clients(kind).fields["inputs"]
    new = federated_norm(module)
    before = [b.clone() for b in new.buffers()]
    assert torch.equal(new.train()(rows), copy.deepcopy(module).train()(rows))
    assert all(torch.equal(a, b) for a, b in zip(before, new.buffers(), strict=True))
    assert torch.equal(new.eval()(rows), module.eval()(rows))


def test_a_module_with_batch_norm_is_refused_with_three_remedies():
    with pytest.raises(ModuleError, match=r"'1' is BatchNorm1d.*freeze_norm\(module\).*to_group_norm\(module\).*federated_norm\(module\)"):
        Model(net("mlp"))


@pytest.mark.parametrize("way", WAYS)
def test_the_given_module_is_left_alone(way):
    module = net("mlp")
    before = {name: value.clone() for name, value in module.state_dict().items()}
    new = WAYS[way](module)
    assert len(norms(module, nn.BatchNorm1d)) == 2
    assert not norms(new, nn.modules.batchnorm._BatchNorm)
    for value in (*new.parameters(), *new.buffers()):
        value.data.add_(1)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


@pytest.mark.parametrize("way", WAYS)
def test_what_is_shared_frozen_nested_or_in_inference_stays_so(way):
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.BatchNorm2d(4)
            self.block = nn.ModuleDict({"inner": nn.Sequential(self.first, nn.BatchNorm2d(4))})
            self.again = self.first
            self.block["inner"][1].weight = self.first.weight  # tied
            self.first.bias.requires_grad_(False)
            self.block["inner"].eval()

    new = WAYS[way](Net())
    inner = new.block["inner"]
    assert new.first is inner[0]
    assert new.first is new.again
    assert inner[1].weight is new.first.weight
    assert not new.first.bias.requires_grad
    assert inner[1].bias.requires_grad
    assert not new.first.training
    assert new.training
    assert Model(new).size == 8  # the tied weight, one bias


@pytest.mark.parametrize("way", WAYS)
def test_a_lone_layer_becomes_the_new_layer(way):
    assert isinstance(WAYS[way](nn.BatchNorm3d(4)), FrozenNorm | nn.GroupNorm)


@pytest.mark.parametrize("way", WAYS)
def test_a_layer_without_weights(way):
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, affine=False), nn.Flatten(), nn.Linear(64, 1))
    new, rows = WAYS[way](module), torch.randn(3, 1, 6, 6)
    assert new[1].weight is None
    assert new[1].bias is None
    model = Model(new)
    assert model.size == sum(p.numel() for p in module.parameters())
    assert torch.isfinite(model(model.vector(), rows)).all()


def test_a_layer_without_running_statistics():
    module = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 1)).double()
    rows = torch.randn(9, 5).double()
    with pytest.raises(ModuleError, match=r"BatchNorm1d without running statistics.*to_group_norm\(module\) or federated_norm\(module\)"):
        freeze_norm(module)
    new = federated_norm(module)
    assert torch.equal(new(rows), module(rows))
    assert new.eval()(rows).dtype == torch.float64
    assert isinstance(to_group_norm(module)[1], nn.GroupNorm)


@pytest.mark.parametrize("way", WAYS)
def test_sync_batch_norm_is_replaced_and_a_lazy_one_refused(way):
    module = nn.SyncBatchNorm.convert_sync_batchnorm(net("conv"))
    new = WAYS[way](module)
    assert not norms(new, nn.SyncBatchNorm)
    assert torch.isfinite(new(clients("conv").fields["inputs"])).all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lazy = nn.Sequential(nn.Conv2d(1, 4, 3), nn.LazyBatchNorm2d())
    with pytest.raises(ModuleError, match=r"'1' is LazyBatchNorm2d.*run the module once on an example batch"):
        WAYS[way](lazy)
    lazy(torch.randn(2, 1, 6, 6))
    assert not norms(WAYS[way](lazy), nn.BatchNorm2d)
