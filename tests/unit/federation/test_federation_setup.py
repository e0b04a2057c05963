"""What a federation is made of: weights, data, participation, engine and algorithm that do not fit are refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from verbs import engines, federation, ones, rows, work

from rookery import SCAFFOLD, Bilevel, Cohort, Compositional, Conditional, Data, FedAvg, FedDRO, Federation, FedNest, Minimax, Minimization
from rookery.errors import AlgorithmError, DataError, EngineError, ProblemError, WeightError


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
    with pytest.raises(EngineError, match="the engines are auto, loop, vectorised, wire, ray; 'quantum' is not one of them"):
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
