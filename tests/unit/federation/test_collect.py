"""`collect` brings every client's value by itself, in the clients' order, is booked, and is refused where only sums may leave."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from rookery import Data, Federation, Minimization, Program
from rookery.errors import NonFinite, PlacementError, UploadError
from rookery.federation import Client, MinimizationClient

ENGINES = ["loop", "vectorised", "wire", "auto"]
ROWS = {"north": [1.0, 2.0, 3.0], "south": [10.0], "west": [100.0, 200.0]}


@dataclass(frozen=True)
class Ask(Program):
    def both(self, c: MinimizationClient, x: Tensor) -> tuple[Tensor, Tensor]:
        b = c.draw()
        return x * b.u.sum(), b.u.mean()

    def number(self, c: Client, x: Tensor) -> Tensor:
        return x.new_tensor(c.size)

    def ragged(self, c: Client, x: Tensor) -> Tensor:
        return c.rows().u

    def broken(self, c: Client, x: Tensor) -> Tensor:
        return x / (c.size - 1)


def federation(engine: str = "loop", **options: object) -> Federation:
    data = Data.from_parts({name: {"u": torch.tensor(u, dtype=torch.float64)} for name, u in ROWS.items()})
    return Federation(Minimization(lambda x, b: (x * b.u.mean()).sum()), data, engine=engine, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_row_for_each_client_in_their_order(engine: str) -> None:
    fed = federation(engine)
    x = torch.tensor([1.0, -1.0], dtype=torch.float64)
    sums, means = fed.collect(*fed.map(Ask().both, fed.broadcast(x)))
    assert sums.tolist() == [[6.0, -6.0], [10.0, -10.0], [300.0, -300.0]]
    assert means.tolist() == [2.0, 10.0, 150.0]
    account = fed.ledger["train"]
    assert (account.exchanges, account.floats_up, account.bytes_up, account.floats_down) == (1, 9, 72, 6)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cohort_collects_its_own_clients(engine: str) -> None:
    fed = federation(engine, clients_per_round=2, seed=3)
    S = fed.cohort()
    found = S.collect(S.map(Ask().number, S.broadcast(torch.zeros(1, dtype=torch.float64))))
    assert found.tolist() == [float(fed.data.sizes[k]) for k in S.index]
    assert fed.ledger["train"].floats_up == 2


def test_a_collected_value_has_left_the_clients() -> None:
    fed = federation()
    value = fed.map(Ask().number, fed.broadcast(torch.zeros(1, dtype=torch.float64)))
    fed.collect(value)
    with pytest.raises(PlacementError, match="left the clients"):
        fed.mean(value)


def test_only_sums_refuses_it_by_the_function_s_name_and_loses_nothing() -> None:
    fed = federation(only_sums=True)
    X = fed.broadcast(torch.ones(1, dtype=torch.float64))
    with pytest.raises(PlacementError, match=r"only_sums=True.*Ask.number's result.*take fed.sum"):
        fed.collect(fed.map(Ask().number, X))
    assert fed.ledger["train"].exchanges == 0
    assert float(fed.sum(fed.map(Ask().number, X))) == 6.0


@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_bad_uploads_are_refused_by_name(engine: str) -> None:
    fed = federation(engine)
    X = fed.broadcast(torch.ones(1, dtype=torch.float64))
    with pytest.raises(NonFinite, match="south"):
        fed.collect(fed.map(Ask().broken, X))
    with pytest.raises(UploadError, match=r"south.*shape \(1,\)"):
        fed.collect(fed.map(Ask().ragged, X))


def test_what_is_at_the_server_cannot_be_collected() -> None:
    fed = federation()
    with pytest.raises(PlacementError, match="at the server already"):
        fed.collect(torch.ones(2))  # type: ignore[call-overload]
    with pytest.raises(PlacementError, match="at least one value"):
        fed.collect()  # type: ignore[call-overload]
