"""Batch norm in a federation: frozen, replaced, or summed over the clients."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import Tensor, nn

from rookery import Data, FedAvg, Federation, Minimization, Model
from rookery.errors import AlgorithmError, ModuleError, ProblemError
from rookery.models import FederatedNorm, FrozenNorm, federated_norm, freeze_norm, sum_moments, to_group_norm

WAYS = {"freeze": freeze_norm, "group": to_group_norm, "federated": federated_norm}
SHAPES = {"mlp": (5,), "conv": (1, 6, 6)}
SIZES = (7, 12, 18)


def net(kind: str) -> nn.Module:
    """A net whose batch norms have seen data and have weights and biases of their own."""
    torch.manual_seed(0)
    module = (nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1))
              if kind == "mlp" else
              nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, eps=1e-3), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.ReLU(),
                            nn.Flatten(), nn.Linear(24, 1)))
    for layer in norms(module, nn.modules.batchnorm._BatchNorm):
        nn.init.uniform_(layer.weight, 0.5, 1.5)
        nn.init.normal_(layer.bias)
    for _ in range(5):
        module(torch.randn(16, *SHAPES[kind]) + 1)
    return module


def norms(module: nn.Module, kind: type) -> list:
    return [layer for layer in module.modules() if isinstance(layer, kind)]


def clients(kind: str, sizes: tuple[int, ...] = SIZES) -> Data:
    g = torch.Generator().manual_seed(1)
    return Data.from_parts({f"c{i}": {"inputs": torch.randn(n, *SHAPES[kind], generator=g) * (i + 1) + i,
                                      "labels": torch.randn(n, generator=g)} for i, n in enumerate(sizes)})


def federation(model: Model, data: Data, engine: str = "loop", **options: object) -> Federation:
    def loss(x: Tensor, b: object) -> Tensor:
        return (model(x, b.inputs)[:, 0] - b.labels).square().mean()

    return Federation(Minimization(loss, model=model, **options), data, engine=engine)


def train(fed: Federation, x: Tensor, rounds: int = 3) -> Tensor:
    algorithm = FedAvg(lr=0.05, local_steps=2, batch=4)
    state = algorithm.init(fed, x)
    for _ in range(rounds):
        state = algorithm.round(fed, state)
    return state.x


def statistics(model: Model) -> list[Tensor]:
    return [s for layer in norms(model.net, FederatedNorm) for s in (layer.running_mean.clone(), layer.running_var.clone())]


def inputs_of_norms(module: nn.Module, pieces: list[Tensor]) -> list[Tensor]:
    """By torch's own batch norm in training mode: each layer's inputs over all pieces, as (values, channels)."""
    module = copy.deepcopy(module).train()
    seen = []
    for piece in pieces:
        value, here = piece, []
        for layer in module:
            if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                here.append(value.detach().double().movedim(1, -1).flatten(0, -2))
            value = layer(value)
        seen.append(here)
    return [torch.cat(parts) for parts in zip(*seen, strict=True)]


def expected_statistics(values: list[Tensor]) -> list[Tensor]:
    return [s.float() for v in values for s in (v.mean(0), v.var(0, unbiased=False))]


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


# the three layers


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


# replacing


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


# summing the moments


@pytest.mark.parametrize("kind", SHAPES)
def test_moments_of_one_client_are_those_of_the_layers_inputs(kind):
    module, data = net(kind), clients(kind, (11,))
    model = Model(federated_norm(module))
    sum_moments(federation(model, data), model, model.vector(), batch=None)
    expected = expected_statistics(inputs_of_norms(module, [data.fields["inputs"]]))
    assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(statistics(model), expected, strict=True))


@pytest.mark.parametrize("kind", SHAPES)
def test_moments_of_unequal_clients_in_pieces(kind):
    module, data = net(kind), clients(kind, (1, 2, 5, 9, 17))
    model = Model(federated_norm(module))
    sum_moments(federation(model, data), model, model.vector(), batch=4)
    parts = [data.part(k).fields["inputs"] for k in range(5)]
    twice = parts[0].repeat(2, *[1] * (parts[0].dim() - 1))
    # 1 row cannot be a batch, 2 make one, 5 make one of nearly 4, 9 make two, 17 make four
    pieces = [parts[1], parts[2], *(parts[3][i::2] for i in range(2)), *(parts[4][i::4] for i in range(4))]
    lone, rest = inputs_of_norms(module, [twice]), inputs_of_norms(module, pieces)
    expected = expected_statistics([torch.cat([a[: len(a) // 2], b]) for a, b in zip(lone, rest, strict=True)])
    assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(statistics(model), expected, strict=True))


@pytest.mark.parametrize("batch", [None, 2, 3, 4, 5, 100])
@pytest.mark.parametrize("sizes", [(1,), (1, 1), (2, 3), (4, 5, 6), (7, 13, 21)])
def test_every_row_counts_once_in_any_pieces(batch, sizes):
    """The first layer's inputs do not depend on the pieces."""
    module, data = net("mlp"), clients("mlp", sizes)
    model = Model(federated_norm(module))
    sum_moments(federation(model, data), model, model.vector(), batch=batch)
    value = module[0](data.fields["inputs"]).detach().double()
    mean, var = statistics(model)[:2]
    assert torch.allclose(mean, value.mean(0).float(), rtol=1e-5, atol=1e-6)
    assert torch.allclose(var, value.var(0, unbiased=False).float(), rtol=1e-4, atol=1e-6)


def test_the_variance_survives_a_large_mean():
    rows = torch.randn(500, 3, generator=torch.Generator().manual_seed(0)) + 1e4
    data = Data.by_site({"inputs": rows, "labels": torch.zeros(500)}, ["a"] * 200 + ["b"] * 300)
    model = Model(federated_norm(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))))
    sum_moments(federation(model, data), model, model.vector(), batch=50)
    assert torch.allclose(statistics(model)[1].double(), rows.double().var(0, unbiased=False), rtol=1e-6)


def test_the_exchange_is_booked_once_as_output():
    model, data = Model(federated_norm(net("mlp"))), clients("mlp")
    fed = federation(model, data)
    sum_moments(fed, model, model.vector(), batch=4)
    account, numbers = fed.ledger["output"], 3 * (2 * 8 + 1 + 2 * 6 + 1)
    assert (account.exchanges, account.floats_up, account.bytes_up, account.floats_down) == (1, numbers, 8 * numbers, 3 * model.size)
    assert account.samples == sum(SIZES)
    for phase in ("setup", "train", "evaluation"):
        assert fed.ledger[phase].exchanges == fed.ledger[phase].floats_down == fed.ledger[phase].samples == 0
    sum_moments(fed, model, model.vector(), batch=4, phase="evaluation")
    assert fed.ledger["evaluation"].exchanges == fed.ledger["output"].exchanges == 1


@pytest.mark.parametrize("kind", SHAPES)
def test_wire_and_loop_sum_the_same(kind):
    found = {}
    for engine in ("loop", "wire"):
        model = Model(federated_norm(net(kind)))
        fed = federation(model, clients(kind), engine)
        sum_moments(fed, model, train(fed, model.vector(), 1), batch=4)
        found[engine] = statistics(model)
    assert all(torch.equal(a, b) for a, b in zip(found["loop"], found["wire"], strict=True))


@pytest.mark.parametrize("engine", ["auto", "vectorised"])
def test_one_graph_over_clients_sums_the_same(engine):
    found = {}
    for name in ("loop", engine):
        model = Model(federated_norm(net("mlp")))
        fed = federation(model, clients("mlp", (9, 9, 4)), name)
        sum_moments(fed, model, model.vector(), batch=4)
        found[name] = statistics(model)
    assert fed.engine.name.endswith("vectorised")
    assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(found["loop"], found[engine], strict=True))


def test_summing_does_not_shift_training():
    model = Model(federated_norm(net("mlp")))
    plain, summed = federation(model, clients("mlp")), federation(model, clients("mlp"))
    x = train(summed, model.vector(), 1)
    sum_moments(summed, model, x, batch=4)
    assert torch.equal(train(summed, x, 1), train(plain, train(plain, model.vector(), 1), 1))


def test_summing_leaves_the_module_and_the_generator_as_they_were():
    module = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 1))
    model = Model(federated_norm(module))
    fed = federation(model, clients("mlp"))
    model.net.eval()
    state = torch.get_rng_state()
    sum_moments(fed, model, model.vector() + 1, batch=4)
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(layer.training or layer._forward_pre_hooks for layer in model.net.modules())
    assert torch.equal(model.vector(), Model(federated_norm(module)).vector())
    # dropout was on: it doubles what it keeps
    value = nn.functional.linear(fed.data.fields["inputs"], module[0].weight + 1, module[0].bias + 1).detach()
    assert (statistics(model)[1] > 1.2 * value.var(0, unbiased=False)).all()


def test_a_layer_that_is_called_twice_or_never():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused, self.head = nn.BatchNorm1d(5), nn.BatchNorm1d(5), nn.Linear(5, 1)

        def forward(self, rows: Tensor) -> Tensor:
            return self.head(self.used(rows) + self.used(3 * rows))

    model, data = Model(federated_norm(Net())), clients("mlp")
    model.net.unused.running_mean.fill_(7)
    sum_moments(federation(model, data), model, model.vector(), batch=4)
    rows = data.fields["inputs"]
    assert torch.allclose(model.net.used.running_mean, torch.cat([rows, 3 * rows]).mean(0), rtol=1e-5, atol=1e-6)
    assert model.net.unused.running_mean.tolist() == [7] * 5


# refusals


def test_sum_moments_says_what_is_missing():
    model, data = Model(federated_norm(net("mlp"))), clients("mlp")
    x = model.vector()
    fed = federation(model, data)
    with pytest.raises(AlgorithmError, match=r"batch must be at least 2.*got 1"):
        sum_moments(fed, model, x, batch=1)
    with pytest.raises(ProblemError, match=r"fields \['inputs', 'labels'\]; 'pictures' is not one of them.*inputs="):
        sum_moments(fed, model, x, batch=4, inputs="pictures")
    with pytest.raises(ModuleError, match=r"no FederatedNorm layer.*Model\(federated_norm\(module\)\)"):
        sum_moments(fed, Model(nn.Linear(5, 1)), x, batch=4)
    with pytest.raises(ProblemError, match=r"sent 30 moments, this model's layers have 7.*fed.problem.model"):
        sum_moments(fed, Model(federated_norm(nn.BatchNorm1d(3))), x, batch=4)
    for engine in ("loop", "wire", "auto"):
        without = Federation(Minimization(lambda x, b: x.sum()), data, engine=engine)
        with pytest.raises(ProblemError, match=r"has none; write model=Model\(module\)"):
            sum_moments(without, model, x, batch=4)
    assert fed.ledger["train"].exchanges == 0
