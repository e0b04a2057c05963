"""Values at the clients stay there: they do not mix with tensors of the server or with those of another cohort."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from verbs import engines, federation, ones, work

from rookery.errors import PlacementError

MIXES = {
    "tensor + clients": lambda x, X: x + X, "clients + tensor": lambda x, X: X + x, "tensor - clients": lambda x, X: x - X,
    "clients - tensor": lambda x, X: X - x, "tensor * clients": lambda x, X: x * X, "clients * tensor": lambda x, X: X * x,
    "tensor / clients": lambda x, X: x / X, "clients / tensor": lambda x, X: X / x, "tensor @ clients": lambda x, X: x @ X,
    "clients @ tensor": lambda x, X: X @ x, "clients + clients": lambda x, X: X + X, "2 * clients": lambda x, X: 2 * X,
    "clients / 2": lambda x, X: X / 2, "2 / clients": lambda x, X: 2 / X, "1 - clients": lambda x, X: 1 - X,
    "clients ** 2": lambda x, X: X**2, "-clients": lambda x, X: -X, "clients[0]": lambda x, X: X[0], "len": lambda x, X: len(X),
    "iter": lambda x, X: list(X), "float": lambda x, X: float(X), "bool": lambda x, X: bool(X), "numpy": lambda x, X: np.asarray(X),
    "array + clients": lambda x, X: np.ones(2) + X, "torch.stack": lambda x, X: torch.stack([X, X]),
    "torch.cat": lambda x, X: torch.cat([x, X]), "torch.add": lambda x, X: torch.add(x, X), "torch.dot": lambda x, X: torch.dot(X, x),
    "torch.where": lambda x, X: torch.where(x > 0, X, x), "torch.tensor": lambda x, X: torch.tensor(X),
    "add_": lambda x, X: x.clone().add_(X), "index": lambda x, X: x[X], "equal": lambda x, X: x == X,
}


@pytest.mark.parametrize("mix", MIXES)
def test_values_at_clients_and_at_the_server_do_not_mix(mix: str) -> None:
    fed = federation()
    with pytest.raises(PlacementError, match=r"value at the clients cannot be used at the server.*fed\.map.*fed\.mean"):
        MIXES[mix](ones(), fed.broadcast(ones()))


def test_a_tensor_of_the_server_is_not_passed_to_map() -> None:
    fed = federation()
    with pytest.raises(PlacementError, match=r"Work\.increment was given a tensor of the server; write fed\.broadcast\(tensor\)"):
        fed.map(work.increment, ones())


@pytest.mark.parametrize(("value", "words"), [("clients", "a value already at the clients"), (1.0, "float"), ([1.0], "list")])
def test_broadcast_takes_tensors(value: Any, words: str) -> None:
    fed = federation()
    with pytest.raises(PlacementError, match=f"broadcast takes tensors at the server; got {words}"):
        fed.broadcast(fed.broadcast(ones()) if value == "clients" else value)


@pytest.mark.parametrize("verb", ["mean", "sum"])
def test_mean_and_sum_take_values_at_the_clients(verb: str) -> None:
    fed = federation()
    with pytest.raises(PlacementError, match="take values at the clients; got Tensor, which is at the server already"):
        getattr(fed, verb)(ones())
    with pytest.raises(PlacementError, match="at least one value"):
        getattr(fed, verb)()


@engines
def test_an_averaged_value_has_left_the_clients(engine: str) -> None:
    fed = federation(engine)
    y = fed.map(work.increment, fed.broadcast(ones()))
    assert fed.mean(y).tolist() == [2.0, 2.0]
    for again in (lambda: fed.mean(y), lambda: fed.sum(y), lambda: fed.map(work.increment, y), lambda: fed.put(None, fed, y)):
        with pytest.raises(PlacementError, match=r"this value was averaged, and left the clients.*return it twice"):
            again()


def test_a_value_of_another_cohort_is_refused() -> None:
    fed = federation(clients_per_round=2)
    first, second = fed.cohort(), fed.cohort()
    x = first.broadcast(ones())
    y = first.map(work.increment, x)
    for value in (x, y):
        with pytest.raises(PlacementError, match=r"Work\.increment runs at another cohort than this value lives at; write S\.take"):
            second.map(work.increment, value)
        with pytest.raises(PlacementError, match="over the cohort its values live at"):
            second.mean(value)
        with pytest.raises(PlacementError, match="over the cohort its values live at"):
            fed.mean(value)
    with pytest.raises(PlacementError, match=r"default of take must be placed at the same cohort"):
        second.take(y, x)
