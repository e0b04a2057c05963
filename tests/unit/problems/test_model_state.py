"""State that a module keeps outside x: refused where a forward pass changes it, in every engine."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import prune

from rookery import Data, FedAvg, Federation, Minimization, Model
from rookery.errors import ModuleError
from rookery.models import federated_norm, freeze_norm

ENGINES = ("loop", "vectorised", "wire", "auto")


class WithBuffer(nn.Module):
    """A linear layer, and a buffer that `change` may change in training."""

    def __init__(self, change: str = "") -> None:
        super().__init__()
        self.linear, self.change, self.steps = nn.Linear(3, 1), change, 0
        self.register_buffer("kept", torch.ones(3))
        self.register_buffer("mask", torch.tensor([1.0, float("nan"), 0.0]))

    def forward(self, u: Tensor) -> Tensor:
        if self.training:
            match self.change:
                case "in place":
                    self.kept.mul_(0.9).add_(u.detach().mean(0), alpha=0.1)
                case "replaced":
                    self.kept = self.kept + 1
                case "uncounted":  # torch counts no change of a tensor here
                    F.batch_norm(u, self.kept, torch.ones(3), training=True)
                case "registered":
                    self.register_buffer("late", u.mean(0).detach())
                case "from the second pass on":
                    self.steps += 1
                    if self.steps > 1:
                        self.kept.add_(1)
        return self.linear(u * self.kept)


def run(model: Model, engine: str, rounds: int = 2) -> Tensor:
    r = torch.Generator().manual_seed(0)
    data = Data.from_parts({name: {"inputs": torch.randn(4, 3, generator=r), "targets": torch.randn(4, generator=r)} for name in "abc"})
    problem = Minimization(lambda x, b: (model(x, b.inputs)[:, 0] - b.targets).square().mean())  # model= is left out on purpose
    fed = Federation(problem, data, engine=engine)
    algorithm = FedAvg(lr=0.1, local_steps=2, batch=2)
    state = algorithm.init(fed, model.vector())
    for _ in range(rounds):
        state = algorithm.round(fed, state)
    return state.x


@pytest.mark.parametrize(("change", "name", "engine"), [
    *((change, name, engine) for change, name in [("in place", "kept"), ("replaced", "kept"), ("uncounted", "kept"), ("registered", "late")]
      for engine in ENGINES), ("from the second pass on", "kept", "loop"), ("from the second pass on", "kept", "wire")])
def test_a_buffer_that_a_pass_changes_is_refused_by_its_name(change: str, name: str, engine: str) -> None:
    with pytest.raises(ModuleError, match=f"changes the buffer '0.{name}'.*state outside x"):
        run(Model(nn.Sequential(WithBuffer(change))), engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_constant_buffer_is_a_constant(engine: str) -> None:
    torch.manual_seed(0)
    torch.testing.assert_close(run(Model(net := WithBuffer()), engine), run(Model(net.linear), "loop"))


def test_the_power_iteration_of_an_old_spectral_norm_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        net = nn.utils.spectral_norm(nn.Linear(3, 1))
    with pytest.raises(ModuleError, match="'weight_u'"):
        run(Model(net), "loop")


def test_a_buffer_that_changes_in_inference_only_is_refused_too_and_a_layer_in_eval_passes() -> None:
    class Counts(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            if not self.training:
                self.seen += 1
            return super().forward(input)

    net = Counts(3, 1)
    net.register_buffer("seen", torch.zeros(()))
    model = Model(net)
    rows = torch.ones(2, 3)
    model(model.vector(), rows)
    with pytest.raises(ModuleError, match="'seen'"):
        model.predict(model.vector(), rows)

    still = nn.Sequential(WithBuffer("in place"))
    still[0].eval()
    model = Model(still)
    model(model.vector(), rows)


@pytest.mark.parametrize("ready", [freeze_norm, federated_norm])
def test_norms_made_for_a_federation_pass(ready: object) -> None:
    run(Model(ready(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)))), "loop")  # type: ignore[operator]


def test_a_module_that_stands_twice_has_its_buffers_once() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = self.b = WithBuffer()

        def forward(self, u: Tensor) -> Tensor:
            return self.a(u) + self.b(u)

    run(Model(Twice()), "loop")


@pytest.mark.parametrize("kind", ["old weight norm", "pruning", "kept activations"])
@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_pass_leaves_in_attributes_does_not_hinder_the_export(kind: str, engine: str) -> None:
    class Keeps(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            self.last = super().forward(input)
            return self.last

    net: nn.Module = Keeps(3, 1)
    if kind == "old weight norm":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            net = nn.utils.weight_norm(nn.Linear(3, 1))
    elif kind == "pruning":
        net = prune.l1_unstructured(nn.Linear(3, 1), "weight", 1)
    model = Model(net)
    x, rows = run(model, engine), torch.randn(4, 3)
    assert torch.equal(model.module(x)(rows), model(x, rows))


@pytest.mark.parametrize("module", [lambda u: u, torch.ones(3), Model(nn.Linear(1, 1))])
def test_a_model_is_of_a_module(module: object) -> None:
    with pytest.raises(ModuleError, match=r"takes a torch.nn.Module; got (function|Tensor|Model)"):
        Model(module)  # type: ignore[arg-type]
