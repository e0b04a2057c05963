"""Modules that take keywords or several inputs, and put out more than a tensor, as models of one flat vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rookery import Data, FedAvg, Federation, Minimization, Model
from rookery.errors import ModuleError, ProblemError
from rookery.objectives import cross_entropy


@dataclass
class Output:
    logits: Tensor
    hidden: Tensor


class Classifier(nn.Module):
    """In the manner of Hugging Face's: keywords in, an object out."""

    def __init__(self, words: int = 11, width: int = 4, classes: int = 3) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(words, width), nn.Linear(width, classes)

    def forward(self, *, input_ids: Tensor, attention_mask: Tensor | None = None) -> Output:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        hidden = (self.embed(input_ids) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return Output(self.head(hidden), hidden)


def sentences(n: int, seed: int) -> dict[str, Tensor]:
    r = torch.Generator().manual_seed(seed)
    length = torch.randint(1, 6, (n, 1), generator=r)
    return {"ids": torch.randint(11, (n, 6), generator=r), "mask": (torch.arange(6) < length).long(),
            "labels": torch.randint(3, (n,), generator=r)}


def trained(problem: Minimization, x: Tensor, engine: str, rows: Data) -> Tensor:
    fed, algorithm = Federation(problem, rows, engine=engine), FedAvg(0.5, 3, 4)
    state = algorithm.init(fed, x)
    for _ in range(3):
        state = algorithm.round(fed, state)
    return state.x


def by_hand(net: Classifier, rows: Data) -> Tensor:
    """The same training without Model: keyword calls by `functional_call`."""
    names, shapes = zip(*((n, p.shape) for n, p in net.named_parameters()), strict=True)

    def f(x: Tensor, b: Any) -> Tensor:
        parts = torch.split(x, [s.numel() for s in shapes])
        parameters = {n: p.view(s) for n, p, s in zip(names, parts, shapes, strict=True)}
        out = torch.func.functional_call(net, parameters, (), {"input_ids": b.ids, "attention_mask": b.mask})
        return nn.functional.cross_entropy(out.logits, b.labels)

    return trained(Minimization(f), torch.cat([p.detach().reshape(-1) for p in net.parameters()]), "loop", rows)


FORMS: dict[str, tuple[Any, Any]] = {
    "several inputs": (lambda module, ids, mask: module(input_ids=ids, attention_mask=mask).logits,
                       lambda model, x, b: model(x, b.ids, b.mask)),
    "a dict": (lambda module, inputs: module(**inputs).logits,
               lambda model, x, b: model(x, {"input_ids": b.ids, "attention_mask": b.mask}))}


@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire", "auto"])
@pytest.mark.parametrize("form", FORMS)
def test_a_module_of_keywords_trains_as_by_hand(form: str, engine: str) -> None:
    torch.manual_seed(0)
    forward, call = FORMS[form]
    net, rows = Classifier(), Data.from_parts({name: sentences(7 + k, k) for k, name in enumerate("abc")})
    model = Model(net, forward=forward)
    problem = Minimization(lambda x, b: nn.functional.cross_entropy(call(model, x, b), b.labels), model=model)
    x = trained(problem, model.vector(), engine, rows)
    torch.testing.assert_close(x, by_hand(net, rows))

    fields = rows.fields
    inputs = (fields["ids"], fields["mask"]) if form == "several inputs" else {"input_ids": fields["ids"], "attention_mask": fields["mask"]}
    exported = model.module(x)
    expected = exported(input_ids=fields["ids"], attention_mask=fields["mask"]).logits
    torch.testing.assert_close(model.predict(x, inputs, batch=5), expected)
    torch.testing.assert_close(model.predict(x, inputs), expected)
    torch.testing.assert_close(model(x, *inputs) if isinstance(inputs, tuple) else model(x, inputs), expected)


def test_objectives_by_name_run_on_one_field_of_inputs() -> None:
    torch.manual_seed(0)
    net, parts = Classifier(), {name: sentences(7 + k, k) for k, name in enumerate("abc")}
    model = Model(net, forward=lambda module, inputs: module(input_ids=inputs[:, 0], attention_mask=inputs[:, 1]).logits)
    rows = Data.from_parts({name: {"inputs": torch.stack([p["ids"], p["mask"]], 1), "labels": p["labels"]} for name, p in parts.items()})
    torch.testing.assert_close(trained(cross_entropy(model), model.vector(), "vectorised", rows), by_hand(net, Data.from_parts(parts)))


def test_an_output_that_is_no_tensor_is_refused_with_the_remedy() -> None:
    class Pair(nn.Linear):
        def forward(self, input: Tensor) -> Any:
            return super().forward(input), input

    model, rows = Model(Pair(2, 3)), torch.ones(4, 2)
    with pytest.raises(ModuleError, match=r"put out tuple.*forward="):
        model.predict(model.vector(), rows)
    data = Data.from_parts({"a": {"inputs": rows, "labels": torch.zeros(4, dtype=torch.long)}})
    with pytest.raises(ProblemError, match=r"gave tuple.*forward="):
        trained(cross_entropy(model), model.vector(), "loop", data)


def test_no_rows_have_no_predictions() -> None:
    model = Model(nn.Linear(2, 3))
    assert model.predict(model.vector(), torch.ones(0, 2)).shape == (0, 3)
