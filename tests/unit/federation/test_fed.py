"""The verbs: their laws, and the errors for what they refuse."""

from __future__ import annotations

import gc
import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rookery import (
    SCAFFOLD,
    Bilevel,
    Cohort,
    Compositional,
    Conditional,
    Data,
    Epochs,
    FedAvg,
    FedDRO,
    Federation,
    FedNest,
    Minimax,
    Minimization,
    Placed,
    Program,
)
from rookery.data.sampling import Draw, Request
from rookery.errors import AlgorithmError, DataError, EngineError, PlacementError, ProblemError, RookeryError, UploadError, WeightError
from rookery.federation.client import Setting
from rookery.federation.ledger import Ledger
from rookery.federation.oracles import Client

ENGINES = ["loop", "vectorised", "wire"]
engines = pytest.mark.parametrize("engine", ENGINES)
NAMES = ("a", "b", "c", "d")
LEVEL = (1.0, 10.0, 100.0, 1000.0)  # what client k's rows hold
CALLS: list[str] = []
GLOBAL = torch.ones(2)
scale = torch.full((2,), 3.0)  # a global tensor that has the name of a field


def rows() -> Data:
    """Clients of 4, 5, 6 and 7 rows; u is the client's level, row the row's number, scale 2."""
    return Data.from_parts({name: {"u": torch.full((4 + k, 2), LEVEL[k], dtype=torch.float64), "row": torch.arange(4 + k),
                                   "scale": torch.full((4 + k,), 2.0, dtype=torch.float64)} for k, name in enumerate(NAMES)})


def federation(engine: str = "loop", **options: Any) -> Federation:
    return Federation(Minimization(lambda x, b: 0.5 * (x - b.u).square().sum(-1).mean()), rows(), engine=engine, **options)


def ones(value: float = 1.0) -> Tensor:
    return torch.full((2,), value, dtype=torch.float64)


@dataclass(frozen=True)
class Work(Program):
    """Client functions of every shape."""

    factor: float = 1.0

    def add(self, c: Client, x: Tensor, y: Any) -> Tensor:
        CALLS.append("add")
        return x + y

    def increment(self, c: Client, x: Tensor) -> Tensor:
        CALLS.append("increment")
        return x + 1

    def level(self, c: Client, x: Tensor) -> Tensor:
        """The client's own number, from its data."""
        return x * 0 + c.draw(1).u[0]

    def both(self, c: Client, x: Tensor) -> tuple[Tensor, Tensor]:
        CALLS.append("both")
        return x + 1, x + 2

    def divide(self, c: Client, x: Tensor, by: float) -> Tensor:
        return x / by

    def multiply(self, c: Client, x: Tensor, by: Any) -> Tensor:
        return x * by

    def second(self, c: Client, x: Tensor, numbers: Any) -> Tensor:
        return x * numbers[1]

    def halves(self, c: Client, x: Tensor, by: float) -> tuple[Tensor, Tensor]:
        return x / by, x + 1

    def drawn(self, c: Client, k: float) -> Tensor:
        """Three row numbers in row k of a table."""
        return (torch.arange(4) == k).double()[:, None] * c.draw(3).row

    def drawn_twice(self, c: Client, k: float) -> Tensor:
        first, second = c.draw(3).row, c.draw(3).row
        return (torch.arange(4) == k).double()[:, None] * torch.cat([first, second])

    def descend(self, c: Client, x: Tensor, lr: float) -> Tensor:
        return x - lr * c.gradient(x, c.draw(2))

    def several(self, c: Client, x: Tensor, steps: int) -> Tensor:
        b = c.draw(2)
        for _ in range(steps):
            x = x - 0.1 * c.gradient(x, b)
        return x

    def times(self, c: Client, x: Tensor) -> Tensor:
        return x + c.steps

    def ragged(self, c: Client, x: Tensor) -> Tensor:
        return x.new_zeros(2 if len(c.draw().u) < 6 else 3)

    def mixed(self, c: Client, x: Tensor) -> Tensor:
        return x if len(c.draw().u) < 6 else x.float()

    def whole(self, c: Client, x: Tensor) -> Tensor:
        return (x * 0 + c.draw(1).u[0]).long()

    def positive(self, c: Client, x: Tensor) -> Tensor:
        return x > 0

    def in_place(self, c: Client, x: Tensor) -> Tensor:
        return x.add_(1)

    def unknown(self, c: Client, x: Tensor) -> Tensor:
        return c.hessian(x, c.draw(1))

    def no_annotation(self, c: Client, x: Tensor):  # type: ignore[no-untyped-def]
        return x

    def not_c(self, client: Client, x: Tensor) -> Tensor:
        return x

    def nothing_at_all(self) -> Tensor:
        return torch.zeros(1)

    def takes_global(self, c: Client, x: Tensor) -> Tensor:
        return x + GLOBAL

    def takes_global_inside(self, c: Client, x: Tensor) -> Tensor:
        return sum((GLOBAL * i for i in range(2)), x)

    def takes_default(self, c: Client, x: Tensor, y: Tensor = torch.ones(2)) -> Tensor:  # noqa: B008
        return x + y

    def takes_field(self, c: Client, x: Tensor) -> Tensor:
        """`scale` is a field of the batch here, not the global tensor."""
        return x * c.draw(1).scale[0]

    def wrong_number(self, c: Client, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x, x  # type: ignore[return-value]

    def no_tensor(self, c: Client, x: Tensor) -> Tensor:
        return 1.0  # type: ignore[return-value]


work = Work()


def outcome(run: Any) -> Any:
    """A result with its dtype, or the kind of the error, which must be one of the library's."""
    try:
        result = run()
    except RookeryError as error:
        return type(error).__name__
    return [(str(value.dtype), value.tolist()) for value in (result if isinstance(result, tuple) else (result,))]


# what may run at clients

def test_a_tensor_captured_from_a_function_is_refused() -> None:
    captured = torch.ones(2)

    @dataclass(frozen=True)
    class Capture(Program):
        def add(self, c: Client, x: Tensor) -> Tensor:
            return x + captured

    fed = federation()
    with pytest.raises(PlacementError, match=r"Capture\.add captures a tensor from the function around it; pass it as fed\.broadcast"):
        fed.map(Capture().add, fed.broadcast(ones()))


def test_a_tensor_captured_by_a_function_inside_is_refused() -> None:
    captured = torch.ones(2)

    @dataclass(frozen=True)
    class Capture(Program):
        def add(self, c: Client, x: Tensor) -> Tensor:
            return sum((captured * i for i in range(2)), x)

    fed = federation()
    with pytest.raises(PlacementError, match="captures a tensor"):
        fed.map(Capture().add, fed.broadcast(ones()))


@pytest.mark.parametrize("method", ["takes_global", "takes_global_inside"])
def test_a_global_tensor_is_refused_by_name(method: str) -> None:
    fed = federation()
    with pytest.raises(PlacementError, match=rf"Work\.{method} captures the global tensor 'GLOBAL'; pass it as fed\.broadcast\(GLOBAL\)"):
        fed.map(getattr(work, method), fed.broadcast(ones()))


def test_a_tensor_as_a_default_is_refused() -> None:
    fed = federation()
    with pytest.raises(PlacementError, match="takes_default"):
        fed.map(work.takes_default, fed.broadcast(ones()))


def test_a_field_may_have_the_name_of_a_global_tensor() -> None:
    fed = federation()
    assert scale.tolist() == [3.0, 3.0]
    assert fed.mean(fed.map(work.takes_field, fed.broadcast(ones()))).tolist() == [2.0, 2.0]


def test_a_tensor_as_a_hyper_parameter_is_refused() -> None:
    @dataclass(frozen=True)
    class Holds(Program):
        weight: Tensor

        def add(self, c: Client, x: Tensor) -> Tensor:
            return x + self.weight

    fed = federation()
    with pytest.raises(PlacementError, match=r"Holds\.weight is a tensor: hyper-parameters are numbers"):
        fed.map(Holds(torch.ones(2)).add, fed.broadcast(ones()))


def free(c: Client, x: Tensor) -> Tensor:
    return x


class NoProgram:
    def method(self, c: Client, x: Tensor) -> Tensor:
        return x


STRANGERS = {"lambda": lambda c, x: x, "function": free, "method": NoProgram().method, "unbound": Work.increment, "builtin": print}


@pytest.mark.parametrize("function", STRANGERS.values(), ids=STRANGERS)
def test_only_methods_of_programs_run_at_clients(function: Any) -> None:
    fed = federation()
    with pytest.raises(PlacementError, match="map takes a method of an algorithm"):
        fed.map(function, fed.broadcast(ones()))


def test_a_program_is_a_frozen_dataclass() -> None:
    @dataclass
    class Thawed(Program):
        def same(self, c: Client, x: Tensor) -> Tensor:
            return x

    class Bare(Program):
        def same(self, c: Client, x: Tensor) -> Tensor:
            return x

    fed = federation()
    for owner in (Thawed(), Bare()):
        with pytest.raises(PlacementError, match=rf"{type(owner).__name__} must be a frozen dataclass: write @dataclass\(frozen=True\)"):
            fed.map(owner.same, fed.broadcast(ones()))


def test_a_return_annotation_is_needed() -> None:
    fed = federation()
    with pytest.raises(PlacementError, match=r"Work\.no_annotation needs a return annotation, -> Tensor or -> tuple"):
        fed.map(work.no_annotation, fed.broadcast(ones()))


def test_the_client_may_have_any_name_but_must_be_there() -> None:
    fed = federation()
    torch.testing.assert_close(fed.mean(fed.map(work.not_c, fed.broadcast(ones()))), ones())
    with pytest.raises(PlacementError, match=r"first parameter of a client function is the client; Work\.nothing_at_all takes none"):
        fed.map(work.nothing_at_all)


@engines
@pytest.mark.parametrize(("method", "words"), [("wrong_number", r"promises 2 tensor\(s\).*\['Tensor', 'Tensor', 'Tensor'\]"),
                                               ("no_tensor", r"promises 1 tensor\(s\).*\['float'\]")])
def test_results_must_be_what_the_annotation_promises(engine: str, method: str, words: str) -> None:
    fed = federation(engine)
    made = fed.map(getattr(work, method), fed.broadcast(ones()))
    with pytest.raises(EngineError, match=words):
        fed.mean(*(made if isinstance(made, tuple) else (made,)))


# values at the clients stay there

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


# uploads

@engines
@pytest.mark.parametrize("bad", [0.0, float("nan")])
def test_a_non_finite_upload_is_refused_by_name(engine: str, bad: float) -> None:
    fed = federation(engine, weights=[1, 2, 3, 4])
    x = fed.broadcast(torch.tensor([1.0, -1.0]))
    if bad != bad:  # 0 / 0
        x = fed.broadcast(torch.tensor([1.0, 0.0]))
    with pytest.raises(UploadError, match=r"^client 'c': its upload holds a non-finite value") as caught:
        fed.mean(fed.map(work.divide, x, np.asarray([1.0, 1.0, 0.0, 0.0])))
    assert caught.value.client == "c"
    assert fed.ledger["train"].exchanges == 0


@engines
def test_a_non_finite_second_value_is_refused_by_name(engine: str) -> None:
    fed = federation(engine)
    bad, good = fed.map(work.halves, fed.broadcast(ones()), np.asarray([1.0, 0.0, 1.0, 1.0]))
    with pytest.raises(UploadError, match=r"^client 'b'") as caught:
        fed.sum(good, bad)
    assert caught.value.client == "b"


@engines
def test_a_non_finite_value_that_nobody_brings_over_is_not_refused(engine: str) -> None:
    fed = federation(engine)
    bad, good = fed.map(work.halves, fed.broadcast(ones()), np.asarray([1.0, 0.0, 1.0, 1.0]))
    assert fed.mean(good).tolist() == [2.0, 2.0]
    assert isinstance(bad, Placed)


@engines
def test_a_large_finite_upload_passes(engine: str) -> None:
    """Its entries add up to infinity; each of them is finite."""
    fed = federation(engine)
    assert fed.mean(fed.broadcast(torch.tensor([3e38, 3e38, -1.0]))).tolist() == torch.tensor([3e38, 3e38, -1.0]).tolist()


@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_an_upload_of_another_shape_is_refused_by_name(engine: str) -> None:
    fed = federation(engine)
    with pytest.raises(UploadError, match=r"client 'c': its upload has shape \(3,\), the clients before it sent \(2,\)") as caught:
        fed.mean(fed.map(work.ragged, fed.broadcast(ones())))
    assert caught.value.client == "c"


@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_an_upload_of_another_dtype_is_refused_by_name(engine: str) -> None:
    fed = federation(engine)
    with pytest.raises(UploadError, match=r"client 'c': its upload is torch\.float32, the clients before it sent torch\.float64") as caught:
        fed.mean(fed.map(work.mixed, fed.broadcast(ones())))
    assert caught.value.client == "c"


@engines
def test_whole_numbers_have_a_sum_and_no_mean(engine: str) -> None:
    fed = federation(engine)
    total = fed.sum(fed.map(work.whole, fed.broadcast(ones())))
    assert total.dtype == torch.int64
    assert total.tolist() == [1111, 1111]
    with pytest.raises(UploadError, match=r"client 'a': a mean needs floating-point values, it sent torch\.int64; return value\.double"):
        fed.mean(fed.map(work.whole, fed.broadcast(ones())))


def test_truth_values_add_up_or_are_refused_alike_on_every_engine() -> None:
    seen = []
    for engine in ENGINES:
        fed = federation(engine)
        seen.append(outcome(lambda fed=fed: fed.sum(fed.map(work.positive, fed.broadcast(ones())))))
    assert seen[0] in ("UploadError", [("torch.int64", [4, 4])])
    assert seen == [seen[0]] * 3


@engines
def test_after_a_refused_upload_the_federation_still_works(engine: str) -> None:
    fed = federation(engine)
    x = fed.broadcast(ones())
    with pytest.raises(UploadError):
        fed.mean(fed.map(work.divide, x, np.asarray([1.0, 1.0, 0.0, 1.0])))
    assert fed.mean(fed.map(work.increment, x)).tolist() == [2.0, 2.0]
    assert fed.mean(fed.map(work.increment, fed.broadcast(ones(2.0)))).tolist() == [3.0, 3.0]


@engines
def test_after_a_refused_upload_another_value_of_that_exchange_is_there_or_refused_by_name(engine: str) -> None:
    fed = federation(engine)
    x = fed.broadcast(ones())
    good, bad = fed.map(work.increment, x), fed.map(work.divide, x, np.asarray([1.0, 1.0, 0.0, 1.0]))
    with pytest.raises(UploadError):
        fed.mean(bad)
    assert outcome(lambda: fed.mean(good)) in ("PlacementError", [("torch.float64", [2.0, 2.0])])


# set-up errors

@pytest.mark.parametrize(("weights", "words"), [
    ([1, 1, -1, 1], "finite and not negative; client 'c' has -1.0"),
    ([1, float("nan"), 1, 1], "finite and not negative; client 'b' has nan"),
    ([float("inf"), 1, 1, 1], "finite and not negative; client 'a' has inf"),
    ([1, 1, 1], r"one weight per client is needed: 4 clients, weights of shape \(3,\)"),
    ([[1, 1, 1, 1]], r"4 clients, weights of shape \(1, 4\)"),
    ([0, 0, 0, 0], "all 0"),
    ("size", "\"equal\", \"samples\" or one number per client; got 'size'"),
], ids=str)
def test_bad_weights_are_refused(weights: Any, words: str) -> None:
    with pytest.raises(WeightError, match=words):
        federation(weights=weights)


def test_a_cohort_without_weight_is_refused() -> None:
    fed = federation(weights=[1, 0, 0, 0], clients_per_round=1)
    assert all(fed.cohort().names == ["a"] for _ in range(20))  # those without weight are not drawn
    S = Cohort(fed, np.asarray([2]))
    with pytest.raises(WeightError, match="weights of this cohort of 1 add up to 0"):
        S.mean(S.broadcast(ones()))


def test_an_empty_client_is_refused() -> None:
    with pytest.raises(DataError, match="client 'b' has no rows; leave it out"):
        Data.from_parts({"a": {"u": [1.0]}, "b": {"u": []}, "c": {"u": [2.0]}})


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_data_are_named_by_field_client_and_row(bad: float) -> None:
    own = torch.ones(5, 3)
    own[3, 1] = bad
    with pytest.raises(DataError, match="field 'v' of client 'b' holds a non-finite value in row 3;"):
        Data.from_parts({"a": {"u": torch.ones(4), "v": torch.ones(4, 3)}, "b": {"u": torch.ones(5), "v": own}})
    with pytest.raises(DataError, match="field 'v' of client 'b' holds a non-finite value in row 1;"):
        Data.by_site({"v": [1.0, 1.0, 1.0, bad, 1.0]}, ["b", "a", "a", "b", "c"])


def test_data_that_are_large_and_finite_pass() -> None:
    assert Data.from_parts({"a": {"u": torch.full((4,), 3e38)}}).sizes.tolist() == [4]


def test_client_names_are_distinct() -> None:
    with pytest.raises(DataError, match="names must be distinct, but 'a' stands twice"):
        Data({"u": torch.ones(3)}, ("a", "b", "a"), np.asarray([1, 1, 1]))
    with pytest.raises(DataError, match="names must be distinct, but 'b' stands twice"):
        Data.streams(["a", "b", "b"])


@pytest.mark.parametrize(("make", "words"), [
    (lambda: Data.from_parts({}), "at least one client"),
    (lambda: Data.from_parts({"a": {"u": [1.0]}, "b": {"v": [1.0]}}), r"needs the same fields: \['u'\]; client 'b' has \['v'\]"),
    (lambda: Data.from_parts({"a": {"u": [1.0, 2.0], "v": [1.0]}}), "fields of client 'a' have unequal lengths"),
    (lambda: Data.from_parts({"a": {"inner": [1.0]}}), "'inner' is a word a batch uses itself"),
    (lambda: Data({"u": torch.ones(3)}, ("a",), np.asarray([2])), "field 'u' has 3 rows, the clients' sizes add up to 2"),
    (lambda: Data({"u": torch.ones(3)}, ("a",), np.asarray([2, 1])), "one size per client"),
    (lambda: Data.by_site({"u": [1.0, 2.0]}, ["a"]), "field 'u' has 2 rows, the site column 1"),
    (lambda: Data.from_parts({"a": {"u": torch.ones(2, 1)}, "b": {"u": torch.ones(2, 3)}}), "'u'.*'b'"),
], ids=["nobody", "fields", "lengths", "reserved", "sizes", "one size", "site column", "shapes"])
def test_data_that_do_not_fit_together_are_refused(make: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        make()


@pytest.mark.parametrize("number", [0, 5, -1])
def test_participation_out_of_range_is_refused(number: int) -> None:
    with pytest.raises(AlgorithmError, match=f"clients_per_round lies between 1 and the number of clients, 4; got {number}"):
        federation(clients_per_round=number)
    with pytest.raises(AlgorithmError, match=f"between 1 and 4 clients .*; {number} were asked for"):
        federation().cohort(number)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(EngineError, match="the engines are auto, loop, vectorised, wire; 'quantum' is not one of them"):
        federation("quantum")


@engines
def test_an_unknown_oracle_lists_those_there_are(engine: str) -> None:
    fed = federation(engine)
    with pytest.raises(ProblemError, match="Minimization has no oracle 'hessian'; it has value, gradient"):
        fed.mean(fed.map(work.unknown, fed.broadcast(ones())))


KINDS = {
    "minimization": (Minimization(lambda x, b: x.sum()), {"FedAvg", "SCAFFOLD"}),
    "compositional": (Compositional(lambda z: z.sum(), lambda x, b: x), {"FedDRO"}),
    "conditional": (Conditional(lambda u, b: u.sum(1), lambda x, b, i: i), {"FCSG", "FCSG-M", "Acc-FCSG-M"}),
    "bilevel": (Bilevel(lambda x, y, b: x.sum(), lambda x, y, b: y.sum()), {"FedNest"}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("algorithm", [FedAvg(lr=0.1), SCAFFOLD(lr=0.1), FedDRO(lr=0.1), FedNest(lr=0.1)], ids=lambda a: a.title)
def test_an_algorithm_for_another_kind_lists_those_that_fit(algorithm: Any, kind: str) -> None:
    problem, fitting = KINDS[kind]
    fed = Federation(problem, rows(), engine="loop")
    if algorithm.title in fitting:
        assert torch.equal(algorithm.validate(fed, ones()), ones())
        return
    with pytest.raises(AlgorithmError) as caught:
        algorithm.init(fed, ones())
    message = str(caught.value)
    assert message.startswith(f"{algorithm.title} solves {algorithm.solves.__name__} problems, this is {type(problem).__name__}. ")
    listed = re.search(r"Algorithms that fit: (.*)\. Reductions", message)
    assert listed is not None
    names = set(listed[1].split(", "))
    assert fitting <= names
    assert not names & set().union(*(other for name, (_, other) in KINDS.items() if name != kind))
    assert "rookery.problems" in message


def test_a_kind_without_algorithms_says_none_or_names_other_ones() -> None:
    fed = Federation(Minimax(lambda x, y, b: (x * y).sum()), rows(), engine="loop")
    with pytest.raises(AlgorithmError, match=r"FedAvg solves Minimization problems, this is Minimax\. Algorithms that fit: ") as caught:
        FedAvg(lr=0.1).init(fed, ones())
    assert "SCAFFOLD" not in str(caught.value)


def test_an_unknown_phase_is_refused() -> None:
    fed = federation()
    with pytest.raises(KeyError, match="the phases are setup, train, output, evaluation; 'party' is not one of them"), fed.phase("party"):
        pass


# laws

@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_a_result_is_computed_once(engine: str) -> None:
    fed = federation(engine)
    del CALLS[:]
    y = fed.map(work.increment, fed.broadcast(ones()))
    z = fed.map(work.add, y, y)
    w = fed.map(work.add, y, z)
    assert fed.mean(z).tolist() == [4.0, 4.0]
    assert fed.mean(w).tolist() == [6.0, 6.0]
    assert fed.mean(y).tolist() == [2.0, 2.0]
    assert sorted(CALLS) == ["add"] * 8 + ["increment"] * 4


@engines
def test_map_is_lazy(engine: str) -> None:
    fed = federation(engine)
    del CALLS[:]
    y = fed.map(work.increment, fed.broadcast(ones()))
    both = fed.map(work.both, y)
    assert CALLS == []
    assert fed.ledger == Ledger()
    fed.mean(*both)
    assert set(CALLS) == {"increment", "both"}


@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_what_nobody_reads_is_not_computed(engine: str) -> None:
    fed = federation(engine)
    del CALLS[:]
    x = fed.broadcast(ones())
    unread = fed.map(work.both, fed.map(work.increment, x))
    del unread
    gc.collect()
    fed.mean(fed.map(work.add, x, 1.0))
    assert CALLS == ["add"] * 4
    fed.mean(fed.map(work.add, x, 1.0))
    assert CALLS == ["add"] * 8


@engines
def test_what_nobody_reads_costs_nothing(engine: str) -> None:
    fed = federation(engine)
    x = fed.broadcast(ones())
    fed.map(work.descend, fed.broadcast(ones()), 0.1)
    fed.mean(fed.map(work.increment, x))
    account = fed.ledger["train"]
    assert (account.samples, account.calls.total(), account.floats_down) == (0, 0, 8)


@engines
def test_several_values_in_one_mean_are_one_exchange(engine: str) -> None:
    fed = federation(engine)
    x = fed.broadcast(ones())
    first, second = fed.map(work.both, x)
    third = fed.map(work.increment, fed.broadcast(torch.zeros(3)))
    got = fed.mean(first, second, third)
    assert [value.tolist() for value in got] == [[2.0, 2.0], [3.0, 3.0], [1.0, 1.0, 1.0]]
    account = fed.ledger["train"]
    assert account.exchanges == 1
    assert account.floats_up == 4 * (2 + 2 + 3)
    assert account.bytes_up == 4 * (2 * 8 + 2 * 8 + 3 * 4)
    assert account.floats_down == 4 * (2 + 3)
    assert account.bytes_down == 4 * (2 * 8 + 3 * 4)
    assert fed.ledger["evaluation"].exchanges == 0


@engines
def test_a_broadcast_value_used_twice_costs_once(engine: str) -> None:
    fed = federation(engine)
    x = fed.broadcast(ones())
    fed.mean(fed.map(work.increment, x), fed.map(work.add, x, x))
    assert fed.ledger["train"].floats_down == 8
    fed.mean(fed.map(work.add, x, 3.0))
    assert fed.ledger["train"].floats_down == 8
    fed.mean(fed.map(work.increment, fed.broadcast(ones())))
    assert fed.ledger["train"].floats_down == 16


@engines
def test_a_broadcast_value_that_is_never_used_costs_nothing(engine: str) -> None:
    fed = federation(engine)
    unused = fed.broadcast(ones())
    fed.mean(fed.map(work.increment, fed.broadcast(torch.zeros(3))))
    assert fed.ledger["train"].floats_down == 12
    assert isinstance(unused, Placed)


@engines
def test_a_new_member_of_a_cohort_pays(engine: str) -> None:
    fed = federation(engine, clients_per_round=2, seed=1)
    x = fed.broadcast(ones())
    reached: set[str] = set()
    for _ in range(6):
        S = fed.cohort()
        reached |= set(S.names)
        assert S.mean(S.map(work.increment, x)).tolist() == [2.0, 2.0]
        assert fed.ledger["train"].floats_down == 2 * len(reached)
    assert reached == set(NAMES)


@engines
def test_a_broadcast_value_is_what_it_was_when_it_was_broadcast(engine: str) -> None:
    fed = federation(engine)
    x = ones()
    y = fed.map(work.increment, fed.broadcast(x))
    x += 5
    assert fed.mean(y).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_a_client_function_that_works_in_place_changes_nobody_else(engine: str) -> None:
    fed = federation(engine)
    x = ones()
    assert outcome(lambda: fed.mean(fed.map(work.in_place, fed.broadcast(x)))) == "PlacementError"
    assert x.tolist() == [1.0, 1.0]


@engines
def test_evaluation_does_not_shift_the_draws_of_training(engine: str) -> None:
    def table(fed: Federation) -> list[Any]:
        drawn: list[Any] = fed.sum(fed.map(work.drawn, np.arange(4))).tolist()
        return drawn

    plain, other = federation(engine, clients_per_round=2), federation(engine, clients_per_round=2)
    tables, evaluations, cohorts = [], [], []
    for _ in range(3):
        tables.append((table(plain), table(other)))
        cohorts.append((plain.cohort().names, other.cohort().names))
        with other.phase("evaluation"):
            evaluations.append(table(other))
            other.cohort()
            other.integer(9)
    assert all(a == b for a, b in tables)
    assert all(a == b for a, b in cohorts)
    everything = [str(a) for a, _ in tables] + [str(e) for e in evaluations]
    assert len(set(everything)) == 6
    assert (other.ledger["train"].exchanges, other.ledger["evaluation"].exchanges) == (3, 3)
    assert (other.ledger["train"].samples, other.ledger["evaluation"].samples) == (36, 36)
    assert plain.ledger["train"] == other.ledger["train"]
    assert plain.integer(1000) == other.integer(1000)


@engines
def test_work_is_booked_under_the_phase_that_asked_for_it(engine: str) -> None:
    """Also where it runs only with an exchange of another phase."""
    fed = federation(engine)
    trained = fed.map(work.descend, fed.broadcast(ones()), 0.1)
    with fed.phase("evaluation"):
        fed.mean(fed.map(work.level, fed.broadcast(ones())))
    fed.mean(trained)
    assert (fed.ledger["train"].samples, fed.ledger["evaluation"].samples) == (8, 4)
    assert (fed.ledger["train"].calls["gradient"], fed.ledger["evaluation"].calls["gradient"]) == (4, 0)


def test_unread_work_at_past_cohorts_does_not_pile_up() -> None:
    fed = federation(clients_per_round=2)
    for _ in range(30):
        S = fed.cohort()
        S.map(work.increment, S.broadcast(ones()))
        fed.mean(fed.broadcast(ones()))
    assert len(fed.pending.queue) <= 1
    assert len(fed.pending.values) <= 2


def test_a_phase_ends_with_its_block() -> None:
    fed = federation()
    with pytest.raises(ZeroDivisionError), fed.phase("evaluation"):
        raise ZeroDivisionError
    fed.mean(fed.broadcast(ones()))
    assert (fed.ledger["train"].exchanges, fed.ledger["evaluation"].exchanges) == (1, 0)


@engines
@pytest.mark.parametrize(("weights", "numbers"), [("equal", [1, 1, 1, 1]), ("samples", [4, 5, 6, 7]), ([0.1, 0, 7, 0.2],) * 2], ids=str)
def test_weights_are_renormalised_in_a_cohort(engine: str, weights: Any, numbers: list[float]) -> None:
    fed = federation(engine, weights=weights, seed=3)
    seen = set()
    for size in (4, 3, 3, 2, 2, 4):
        S = fed.cohort(size)
        members = [NAMES.index(name) for name in S.names]
        assert len(members) == size
        seen.add(tuple(members))
        total = sum(numbers[k] for k in members)
        expected = sum(numbers[k] * LEVEL[k] for k in members) / total
        got = S.mean(S.map(work.level, S.broadcast(ones())))
        assert got.tolist() == pytest.approx([expected, expected], rel=1e-12)
    assert len(seen) >= 3


@engines
def test_a_sum_is_unweighted(engine: str) -> None:
    fed = federation(engine, weights=[0.1, 0, 7, 0.2])
    assert fed.sum(fed.map(work.level, fed.broadcast(ones()))).tolist() == [1111.0, 1111.0]
    S = fed.cohort(2)
    expected = sum(LEVEL[NAMES.index(name)] for name in S.names)
    assert S.sum(S.map(work.level, S.broadcast(ones()))).tolist() == [expected, expected]


@engines
def test_a_mean_keeps_the_dtype(engine: str) -> None:
    fed = federation(engine, weights="samples")
    for dtype in (torch.float32, torch.float64):
        assert fed.mean(fed.map(work.increment, fed.broadcast(torch.ones(3, dtype=dtype)))).dtype == dtype


@engines
def test_a_value_may_be_a_number(engine: str) -> None:
    fed = federation(engine)
    got = fed.mean(fed.map(work.add, fed.broadcast(torch.tensor(1.0)), np.asarray([1.0, 2.0, 3.0, 6.0])))
    assert got.shape == ()
    assert float(got) == 4.0


def test_the_same_value_twice_in_a_mean_is_alike_on_every_engine() -> None:
    seen = []
    for engine in ENGINES:
        fed = federation(engine)
        y = fed.map(work.increment, fed.broadcast(ones()))
        seen.append(outcome(lambda fed=fed, y=y: fed.mean(y, y)))
        assert fed.mean(fed.map(work.increment, fed.broadcast(ones()))).tolist() == [2.0, 2.0], engine
    assert seen[0] in ("PlacementError", [("torch.float64", [2.0, 2.0])] * 2)
    assert seen == [seen[0]] * 3


# the population's state

@engines
def test_values_persist_per_client_across_cohorts(engine: str) -> None:
    """Each cohort adds its round's number to its members' values; the others keep theirs, and the unseen have the default."""
    fed = federation(engine, clients_per_round=2, seed=4)
    expected: dict[str, float] = {}
    state = None
    for t in range(6):
        S = fed.cohort()
        zero = S.broadcast(ones(-5.0))
        old = zero if state is None else S.take(state, zero)
        new = S.map(work.add, old, float(10**t))
        state = fed.put(state, S, new)
        for name in S.names:
            expected[name] = expected.get(name, -5.0) + 10**t
        total = S.sum(S.map(work.increment, new))
        assert total.tolist() == [sum(expected[name] + 1 for name in S.names)] * 2
        if t == 0:
            everyone = fed.sum(fed.take(state, fed.broadcast(ones(-70.0))))
            assert everyone.tolist() == [sum(expected.get(name, -70.0) for name in NAMES)] * 2
            assert len(expected) == 2
    assert set(expected) == set(NAMES)
    everyone = fed.take(state, fed.broadcast(ones(-70.0)))
    each = fed.sum(*(fed.map(work.multiply, everyone, np.eye(4)[k]) for k in range(4)))
    assert [value.tolist() for value in each] == [[expected[name]] * 2 for name in NAMES]


@engines
@pytest.mark.parametrize("pool", [True, False], ids=["population", "cohort"])
def test_each_client_takes_its_own_value(engine: str, pool: bool) -> None:
    fed = federation(engine, seed=6)
    S = fed.cohort(3)
    value = S.map(work.level, S.broadcast(ones()))
    state = fed.put(None, S, value) if pool else value
    taken = fed.take(state, fed.broadcast(ones(-1.0)))
    each = fed.sum(*(fed.map(work.multiply, taken, np.eye(4)[k]) for k in range(4)))
    assert [value.tolist() for value in each] == [[LEVEL[k] if name in S.names else -1.0] * 2 for k, name in enumerate(NAMES)]


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
def test_state_without_a_handle_is_freed(engine: str) -> None:
    fed = federation(engine, clients_per_round=2)
    algorithm = SCAFFOLD(lr=0.1, local_steps=2, batch=2)
    state = algorithm.init(fed, ones())
    held: Any = fed.engine
    for _ in range(20):
        state = algorithm.round(fed, state)
        assert len(held.pools) == 1
        assert len(held.store) <= 6
    del state
    gc.collect()
    for _ in range(2):
        fed.mean(fed.map(work.increment, fed.broadcast(ones())))
    assert held.pools == {}
    assert held.store == {}


@engines
def test_the_old_handle_is_spent_after_put(engine: str) -> None:
    fed = federation(engine, clients_per_round=2)
    S = fed.cohort()
    first = fed.put(None, S, S.map(work.level, S.broadcast(ones())))
    second = fed.put(first, S, S.map(work.increment, S.broadcast(ones())))
    for use in (lambda f: S.take(f, S.broadcast(ones())), lambda f: fed.put(f, S, S.broadcast(ones())),
                lambda f: fed.map(work.increment, f), fed.mean):
        with pytest.raises(PlacementError, match="was replaced by put, which returned the new handle"):
            use(first)
    first = None
    gc.collect()
    assert S.sum(S.take(second, S.broadcast(ones()))).tolist() == [4.0, 4.0]


def test_put_writes_into_population_state_only() -> None:
    fed = federation(clients_per_round=2)
    S = fed.cohort()
    value = S.map(work.increment, S.broadcast(ones()))
    with pytest.raises(PlacementError, match=r"put writes into population state, made by put\(None, cohort, value\)"):
        fed.put(value, S, S.map(work.increment, S.broadcast(ones())))


@engines
def test_put_takes_a_value_of_that_cohort(engine: str) -> None:
    fed = federation(engine)
    S, T = fed.cohort(2), fed.cohort(3)
    with pytest.raises(PlacementError):
        T.sum(T.take(fed.put(None, S, T.map(work.increment, T.broadcast(ones()))), T.broadcast(ones())))


@engines
def test_take_of_another_cohort_s_value(engine: str) -> None:
    fed = federation(engine, seed=2)
    S, T = fed.cohort(2), fed.cohort(3)
    common = set(S.names) & set(T.names)
    assert 0 < len(common) < 3
    value = S.map(work.level, S.broadcast(ones()))
    got = T.sum(T.take(value, T.broadcast(ones(-1.0))))
    assert got.tolist() == [sum(LEVEL[NAMES.index(n)] for n in common) - (3 - len(common))] * 2
    assert S.take(value, S.broadcast(ones())) is value
    assert S.sum(value).tolist() == [sum(LEVEL[NAMES.index(n)] for n in S.names)] * 2


def test_take_of_another_cohort_s_broadcast_value_is_alike_on_every_engine() -> None:
    seen = []
    for engine in ENGINES:
        fed = federation(engine, seed=2)
        S, T = fed.cohort(2), fed.cohort(3)
        value = S.broadcast(ones(7.0))
        assert S.sum(S.map(work.increment, value)).tolist() == [16.0, 16.0]
        seen.append(outcome(lambda T=T, value=value: T.sum(T.take(value, T.broadcast(ones(-1.0))))))
    assert seen == [seen[0]] * 3


@engines
def test_a_take_reads_what_was_there_before_a_later_put(engine: str) -> None:
    fed = federation(engine, seed=2)
    S, T = fed.cohort(2), fed.cohort(3)
    common = len(set(S.names) & set(T.names))
    state = fed.put(None, S, S.map(work.increment, S.broadcast(ones(0.0))))
    before = T.take(state, T.broadcast(ones(0.0)))
    state = fed.put(state, S, S.map(work.increment, S.broadcast(ones(99.0))))
    S.mean(S.map(work.increment, S.broadcast(ones())))
    assert common > 0
    assert T.sum(before).tolist() == [common] * 2
    assert T.sum(T.take(state, T.broadcast(ones(0.0)))).tolist() == [100.0 * common] * 2


@engines
def test_the_later_put_wins_whichever_cohort_is_reached_first(engine: str) -> None:
    fed = federation(engine, seed=2)
    S, T = fed.cohort(3), fed.cohort(3)
    state = fed.put(None, S, S.map(work.increment, S.broadcast(ones(0.0))))
    state = fed.put(state, T, T.map(work.increment, T.broadcast(ones(99.0))))
    T.mean(T.map(work.increment, T.broadcast(ones())))
    only = len(set(S.names) - set(T.names))
    assert fed.sum(fed.take(state, fed.broadcast(ones(0.0)))).tolist() == [300.0 + only] * 2


@engines
def test_cohorts_that_stay_unread_do_not_disturb_each_other(engine: str) -> None:
    fed = federation(engine, seed=2)
    S, T = fed.cohort(2), fed.cohort(3)
    first = S.map(work.level, S.broadcast(ones()))
    second = T.map(work.add, T.map(work.level, T.broadcast(ones())), 1.0)
    assert T.sum(second).tolist() == [sum(LEVEL[NAMES.index(n)] + 1 for n in T.names)] * 2
    assert S.sum(first).tolist() == [sum(LEVEL[NAMES.index(n)] for n in S.names)] * 2


# drawing alike

@engines
def test_like_draws_the_same_samples(engine: str) -> None:
    fed = federation(engine)
    first = fed.map(work.drawn, np.arange(4))
    a = fed.sum(first)
    same = fed.sum(fed.map(work.drawn, np.arange(4), same_draws_as=first))
    other = fed.sum(fed.map(work.drawn, np.arange(4)))
    assert torch.equal(a, same)
    assert not torch.equal(a, other)
    assert fed.ledger["train"].samples == 2 * 4 * 3  # the second call drew nothing new


@engines
def test_like_counts_the_draws_that_are_new(engine: str) -> None:
    fed = federation(engine)
    first = fed.map(work.drawn, np.arange(4))
    a = fed.sum(first)
    twice = fed.sum(fed.map(work.drawn_twice, np.arange(4), same_draws_as=first))
    assert torch.equal(twice[:, :3], a)
    assert not torch.equal(twice[:, 3:], a)
    assert fed.ledger["train"].samples == 4 * 3 + 4 * 3


@engines
def test_like_counts_once_within_one_exchange(engine: str) -> None:
    fed = federation(engine)
    first = fed.map(work.drawn, np.arange(4))
    a, same = fed.sum(first, fed.map(work.drawn, np.arange(4), same_draws_as=first))
    assert torch.equal(a, same)
    assert fed.ledger["train"].samples == 4 * 3


@engines
def test_like_counts_once_with_another_exchange_between(engine: str) -> None:
    fed = federation(engine)
    first = fed.map(work.drawn, np.arange(4))
    a = fed.sum(first)
    fed.mean(fed.map(work.increment, fed.broadcast(ones())))
    same = fed.sum(fed.map(work.drawn, np.arange(4), same_draws_as=first))
    assert torch.equal(a, same)
    assert fed.ledger["train"].samples == 4 * 3


@engines
def test_like_draws_as_then_also_in_another_phase(engine: str) -> None:
    fed = federation(engine)
    first = fed.map(work.drawn, np.arange(4))
    a = fed.sum(first)
    with fed.phase("evaluation"):
        assert torch.equal(a, fed.sum(fed.map(work.drawn, np.arange(4), same_draws_as=first)))


def test_like_takes_a_value_made_by_map() -> None:
    fed = federation()
    with pytest.raises(PlacementError, match="same_draws_as= takes a value made by map or iterate; this one was broadcast or taken"):
        fed.map(work.drawn, np.arange(4), same_draws_as=fed.broadcast(ones()))


# repetition

@engines
def test_times_repeats(engine: str) -> None:
    fed = federation(engine)
    assert fed.mean(fed.iterate(work.increment, fed.broadcast(ones()), steps=5)).tolist() == [6.0, 6.0]
    assert fed.mean(fed.iterate(work.add, fed.broadcast(ones()), 2.0, steps=3)).tolist() == [7.0, 7.0]
    assert fed.sum(fed.iterate(work.increment, fed.broadcast(ones(0.0)), steps=np.asarray([0, 1, 2, 40]))).tolist() == [43.0, 43.0]


@engines
def test_times_per_client_and_c_times(engine: str) -> None:
    fed = federation(engine)
    times = np.asarray([1, 3, 3, 2])
    # each repetition adds the number of repetitions
    assert fed.sum(fed.iterate(work.times, fed.broadcast(ones(0.0)), steps=times)).tolist() == [float((times**2).sum())] * 2
    fed.sum(fed.iterate(work.descend, fed.broadcast(ones()), 0.1, steps=times))
    assert fed.ledger["train"].calls["gradient"] == 9
    assert fed.ledger["train"].samples == 18


@engines
def test_repetitions_draw_anew(engine: str) -> None:
    """Descent by hand, on the very rows that were drawn."""
    data = Data.from_parts({name: {"u": torch.arange(n, dtype=torch.float64)[:, None]} for name, n in {"a": 10, "b": 20}.items()})
    problem = Minimization(lambda x, b: 0.5 * (x - b.u).square().sum(-1).mean())
    fed = Federation(problem, data, engine=engine)
    setting = Setting(problem, data, 0)
    clients = np.arange(2)
    index = problem.sampling.select(Draw(data, clients, setting.keys(clients, "train", 1), 0, np.arange(4)), Request(2))["index"]
    expected = torch.zeros(2, dtype=torch.float64)
    for step in range(4):
        expected = expected - 0.1 * (expected - index[:, step].double().mean(1))
    got = fed.sum(fed.iterate(work.descend, fed.broadcast(torch.zeros(1, dtype=torch.float64)), 0.1, steps=4))
    torch.testing.assert_close(got, expected.sum()[None], rtol=1e-12, atol=0)
    assert len({tuple(i) for i in index[1].tolist()}) == 4


@engines
def test_no_repetition_passes_arguments_through(engine: str) -> None:
    fed = federation(engine)
    x = fed.broadcast(ones(3.0))
    assert fed.mean(fed.iterate(work.descend, x, 0.1, steps=0)).tolist() == [3.0, 3.0]
    assert fed.mean(fed.iterate(work.increment, fed.map(work.level, x), steps=np.zeros(4, dtype=np.int64))).tolist() == [1111 / 4] * 2
    account = fed.ledger["train"]
    assert account.calls["gradient"] == 0
    assert account.samples == 4  # of `level`


def test_times_of_the_wrong_length_is_refused() -> None:
    fed = federation()
    with pytest.raises(PlacementError, match="steps is one number, or one for each of the 4 clients; got shape \\(3,\\)"):
        fed.iterate(work.increment, fed.broadcast(ones()), steps=np.asarray([1, 2, 3]))


def test_repeated_results_need_a_place_among_the_arguments() -> None:
    fed = federation()
    for times in (0, 2, np.asarray([1, 1, 1, 1])):
        with pytest.raises(PlacementError, match=r"Work\.both returns 2 values, which its next step takes: the carry is as many values"):
            fed.iterate(work.both, fed.broadcast(ones()), steps=times)


@engines
def test_times_may_be_a_number_of_numpy(engine: str) -> None:
    fed = federation(engine)
    assert fed.mean(fed.iterate(work.increment, fed.broadcast(ones()), steps=np.int64(3))).tolist() == [4.0, 4.0]  # type: ignore[arg-type]


@engines
@pytest.mark.parametrize("times", [-1, np.asarray([1, 1, -1, 1])], ids=["one", "per client"])
def test_a_negative_number_of_repetitions_is_refused(engine: str, times: Any) -> None:
    fed = federation(engine)
    with pytest.raises(RookeryError, match=r"times|-1"):
        fed.mean(fed.iterate(work.increment, fed.broadcast(ones()), steps=times))


def test_local_work_in_epochs() -> None:
    fed = federation()
    assert fed.steps(7, 2) == 7
    assert fed.steps(Epochs(2), 3).tolist() == [3, 4, 4, 5]  # type: ignore[union-attr]
    assert fed.steps(Epochs(0.1), 100).tolist() == [1, 1, 1, 1]  # type: ignore[union-attr]
    assert fed.steps(Epochs(2.5), None) == 3
    S = fed.cohort(2)
    sizes = [4 + NAMES.index(name) for name in S.names]
    assert S.steps(Epochs(1), 1).tolist() == sizes  # type: ignore[union-attr]


# numbers of the server

@engines
@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.float32])
def test_an_array_gives_each_client_its_number(engine: str, dtype: Any) -> None:
    fed = federation(engine)
    numbers = np.asarray([1, 2, 3, 40], dtype=dtype)
    got = fed.sum(fed.map(work.multiply, fed.map(work.level, fed.broadcast(ones())), numbers))
    assert got.tolist() == [1 + 20 + 300 + 40_000.0] * 2
    assert got.dtype == torch.float64
    S = fed.cohort(2)
    members = [NAMES.index(name) for name in S.names]
    got = S.sum(S.map(work.multiply, S.map(work.level, S.broadcast(ones())), np.asarray([5, 7], dtype=dtype)))
    assert got.tolist() == [5 * LEVEL[members[0]] + 7 * LEVEL[members[1]]] * 2
    assert fed.ledger["train"].floats_down == 8 + 4  # numbers in headers are not counted


@engines
def test_an_array_repeats_with_its_client(engine: str) -> None:
    fed = federation(engine)
    got = fed.sum(fed.iterate(work.add, fed.broadcast(ones(0.0)), np.asarray([1.0, 2.0, 3.0, 4.0]), steps=np.asarray([1, 2, 2, 3])))
    assert got.tolist() == [1 + 4 + 6 + 12.0] * 2


@pytest.mark.parametrize("shape", [(3,), (5,), (4, 1), ()])
def test_an_array_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    fed = federation()
    words = rf"array passed to Work\.add holds one number for each of the 4 clients; got shape {re.escape(str(shape))}"
    with pytest.raises(PlacementError, match=words):
        fed.map(work.add, fed.broadcast(ones()), np.ones(shape))


@pytest.mark.parametrize("value", [2.5, 3, np.asarray([1, 2, 3, 4]), np.asarray([1.0, 2.0, 3.0, 4.0]), True, float("inf")], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_numbers_mean_the_same_on_every_engine(value: Any, dtype: torch.dtype) -> None:
    if dtype == torch.int64 and np.asarray(value).dtype == np.float64:
        pytest.skip("an integer tensor times a fraction is of the default dtype in a loop and float64 in a graph")
    seen = []
    for engine in ENGINES:
        fed = federation(engine)
        seen.append(outcome(lambda fed=fed: fed.sum(fed.map(work.multiply, fed.broadcast(torch.ones(2, dtype=dtype)), value))))
    assert seen == [seen[0]] * 3


@engines
@pytest.mark.parametrize("value", [(2.0, 3.0), [2.0, 3.0]], ids=str)
def test_a_row_of_numbers_is_an_argument(engine: str, value: Any) -> None:
    fed = federation(engine)
    assert fed.mean(fed.map(work.second, fed.broadcast(ones()), value)).tolist() == [3.0, 3.0]


@engines
def test_the_ledger_counts_the_calls_that_were_made(engine: str) -> None:
    fed = federation(engine)
    fed.mean(fed.map(work.several, fed.broadcast(ones()), 2))
    assert fed.ledger["train"].calls == {"gradient": 8}
    fed.mean(fed.map(work.several, fed.broadcast(ones()), 5))
    assert fed.ledger["train"].calls == {"gradient": 28}
    assert fed.ledger["train"].samples == 16


def test_the_ledger_survives_json() -> None:
    fed = federation()
    with fed.phase("setup"):
        fed.mean(fed.map(work.increment, fed.broadcast(ones())))
    fed.mean(fed.map(work.descend, fed.broadcast(ones()), 0.1))
    saved = json.loads(json.dumps(fed.ledger.to_json()))
    assert saved["train"]["calls"] == {"gradient": 4}
    again = Ledger()
    assert again != fed.ledger
    again.load(saved)
    assert again == fed.ledger
