"""Arguments in the wrong place or of the wrong kind: a sentence, where there was an error of Python's or torch's, or none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from rookery import Compositional, Data, FedAvg, Federation, FedNest, Minimization, Model, ball, box
from rookery.data import Shuffled, Stored, hold_out, split
from rookery.errors import AlgorithmError, DataError, ProblemError
from rookery.federation import Client
from rookery.objectives import ap_surrogate, cross_entropy, cross_entropy_losses, cvar, fair, invariant_logistic, kl_dro, loss_tuning

DATA = Data.from_parts({name: {"inputs": torch.ones(4, 3), "labels": torch.arange(4) % 2} for name in "ab"})
MODEL = Model(nn.Linear(3, 2))
PROBLEM = cross_entropy(MODEL)


def loss(x: Any, b: Any) -> Any:
    return (x - b.inputs).square().mean()


def trained(problem: Minimization) -> Any:
    fed, algorithm = Federation(problem, DATA), FedAvg(0.1, 1, 2)
    return algorithm.round(fed, algorithm.init(fed, torch.ones(3)))


@dataclass(frozen=True)
class Asks(FedAvg):
    title: ClassVar[str] = ""  # not the FedAvg that a file names
    how: str = ""

    def step(self, c: Client, x: Tensor, lr: float) -> Tensor:
        match self.how:
            case "exchanged":
                return c.gradient(c.draw(2), x)
            case "nothing":
                return c.gradient()
        return c.gradient(x, c.draw({"zero": 0, "negative": -3, "a fraction": 2.5}[self.how]))  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
@pytest.mark.parametrize(("how", "text"), [("exchanged", "'gradient' takes a vector first"), ("nothing", r"got \[\]"), ("zero", "got 0"),
                                           ("negative", "got -3"), ("a fraction", "got 2.5")])
def test_oracles_and_draws_say_what_they_take(how: str, text: str, engine: str) -> None:
    fed, algorithm = Federation(Minimization(loss), DATA, engine=engine), Asks(0.1, how=how)
    with pytest.raises(AlgorithmError, match=text):
        algorithm.round(fed, algorithm.init(fed, torch.ones(3)))


def test_a_client_without_training_rows_is_named() -> None:
    algorithm = FedNest(lr=0.1, inner_lr=0.1, inner_rounds=1, terms=2, smoothness=9.0)
    half = torch.arange(4) % 2
    for a, b, text in ((half, half * 0 + 1, "client 'b': it has 4 validation and 0 training rows"),
                       (half[:, None], half[:, None], "client 'a': the field `validation` holds one number a row")):
        data = Data.from_parts({name: {"inputs": torch.ones(4, 3), "labels": half, "validation": v} for name, v in (("a", a), ("b", b))})
        fed = Federation(loss_tuning(MODEL, 2, torch.ones(2)), data, engine="loop")
        with pytest.raises(DataError, match=text):
            algorithm.round(fed, algorithm.init(fed, torch.zeros(4), MODEL.vector()))


MISUSES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "problem and data exchanged": (lambda: Federation(DATA, PROBLEM), AlgorithmError, r"write Federation\(problem, data\)"),  # type: ignore[arg-type]
    "parts and no Data": (lambda: Federation(PROBLEM, {"a": {}}), AlgorithmError, "got Minimization and dict"),  # type: ignore[arg-type]
    "a seed that is no whole number": (lambda: Federation(PROBLEM, DATA, seed=1.5), AlgorithmError, "whole number; got 1.5"),  # type: ignore[arg-type]
    "precision by name": (lambda: Federation(PROBLEM, DATA, precision="bf16"), AlgorithmError, "torch.bfloat16"),  # type: ignore[arg-type]
    "precision that is whole": (lambda: Federation(PROBLEM, DATA, precision=torch.int8), AlgorithmError, "floating dtype"),
    "no function": (lambda: Minimization(None), ProblemError, "f of a Minimization is a function; got NoneType"),  # type: ignore[arg-type]
    "a tensor for g": (lambda: Compositional(loss, torch.ones(3)), ProblemError, "g of a Compositional"),  # type: ignore[arg-type]
    "a module for a model": (lambda: cross_entropy(nn.Linear(3, 2)), ProblemError, r"write Model\(module\)"),  # type: ignore[arg-type]
    "losses for a model": (lambda: cross_entropy(cross_entropy_losses(MODEL)), ProblemError, "is a Model; got function"),  # type: ignore[arg-type]
    "a model for losses": (lambda: kl_dro(MODEL), ProblemError, "write cross_entropy_losses"),
    "a module for losses": (lambda: cvar(nn.Linear(3, 2), 0.5), ProblemError, "got a Linear"),
    "a module for scores": (lambda: ap_surrogate(nn.Linear(3, 1)), ProblemError, r"ap_surrogate\(Model\(module\)\)"),
    "a module for fair scores": (lambda: fair(loss, nn.Linear(3, 1), 2), ProblemError, "scores are a function"),
    "a sampler's class": (lambda: Minimization(loss, sampling=Shuffled), ProblemError, r"such as Shuffled\(\)"),  # type: ignore[arg-type]
    "a sampler's name": (lambda: Minimization(loss, sampling="shuffled"), ProblemError, "'shuffled'"),  # type: ignore[arg-type]
    "one stored sample a row": (lambda: trained(Minimization(loss, sampling=Stored("labels"))), DataError, "a single number a row"),
    "a number of streams": (lambda: Data.streams(3), DataError, "list of clients' names; got 3"),  # type: ignore[arg-type]
    "one stream by name": (lambda: Data.streams("north"), DataError, "got 'north'"),
    "groups that are not there": (lambda: hold_out(DATA, 0.5, groups="patient"), DataError, "no field 'patient'"),
    "a truth that is a list": (lambda: invariant_logistic([1.0]), ProblemError, "flat floating vector.*got list"),  # type: ignore[arg-type]
    "an objective without its own coordinate": (lambda: cvar(cross_entropy_losses(MODEL), 0.5).f(MODEL.vector(), DATA), ProblemError,
                                                r"got 7. An objective with a coordinate of its own begins with torch.cat"),
    "a box upside down": (lambda: box(1.0, 0.0), ProblemError, "got 1.0 and 0.0"),
    "a box without an end": (lambda: box(float("nan"), 0.0), ProblemError, "got nan"),
    "a ball without an end": (lambda: ball(float("inf")), ProblemError, "finite")}


@pytest.mark.parametrize("misuse", MISUSES)
def test_a_misuse_is_answered_by_a_sentence(misuse: str) -> None:
    act, error, text = MISUSES[misuse]
    with pytest.raises(error, match=text):
        act()


def test_labels_of_a_graph_are_split_as_labels() -> None:
    labels = torch.arange(40.0) % 2
    assert all((a == b).all() for a, b in zip(split(labels.clone().requires_grad_()), split(labels), strict=True))
