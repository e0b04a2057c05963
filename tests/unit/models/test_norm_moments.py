"""The moments of norms, summed over the clients: exact in any pieces, booked once, on every engine."""

from __future__ import annotations

import pytest
import torch
from norms import SHAPES, SIZES, clients, expected_statistics, federation, inputs_of_norms, net, statistics, train
from torch import Tensor, nn

from rookery import Data, Federation, Minimization, Model
from rookery.errors import AlgorithmError, ModuleError, ProblemError
from rookery.models import federated_norm, sum_moments


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


@pytest.mark.parametrize("batch", [2, 3, 6])
def test_no_piece_has_fewer_rows_than_min_batch(batch):
    seen = []

    class Seen(nn.Module):
        def forward(self, rows: Tensor) -> Tensor:
            seen.append(len(rows))
            return rows

    model, data = Model(federated_norm(nn.Sequential(Seen(), *net("mlp")))), clients("mlp", (3, 7, 18))
    fed = Federation(Minimization(lambda x, b: model(x, b.inputs).mean(), model=model), data, min_batch=6, engine="loop")
    sum_moments(fed, model, model.vector(), batch=batch)
    assert seen == [7, 6, 6, 6]
    used = torch.cat([data.part(k).fields["inputs"] for k in (1, 2)])
    assert torch.allclose(statistics(model)[0], model.net[1](used).mean(0), rtol=1e-5, atol=1e-6)


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
