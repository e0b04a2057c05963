"""Hyper-parameters and starting points that do not fit are refused with a sentence."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rookery import ALSET, GCIVR, Epochs, FedAvg, FedBiOAcc, FedDRO, Federation, FedNest, LFedNest, LocalSGDA, SimFBO, as_bilevel
from rookery.errors import AlgorithmError
from rookery.problems import testproblems as known
from rookery.training import Decay


@pytest.mark.parametrize("algorithm", [SimFBO(0.1), FedBiOAcc(0.1), ALSET(0.1)], ids=lambda a: a.title)
def test_an_embedded_problem_is_refused_where_there_is_no_hessian_to_invert(algorithm: Any) -> None:
    k = known.minimax(sizes=(4,))
    with pytest.raises(AlgorithmError, match=r"inverts ∇²yy g, and this Bilevel problem has inverse='none': run FedNest on it"):
        algorithm.init(Federation(as_bilevel(k.problem), k.data), k.x0, k.y0)


@pytest.mark.parametrize(("make", "text"), [
    (lambda: FedNest(0.1, inverse_solver="conjugate"), 'inverse_solver is "random neumann", "neumann" or "cg"; got \'conjugate\''),
    (lambda: LFedNest(0.1, inverse_solver="cg"), "LFedNest sums a Neumann series at each client"),
    (lambda: FedBiOAcc(0.1, decay=9.0), "decay·α_1² must be at most 1"),
    (lambda: SimFBO(0.1, radius=0.0), "radius must be positive"),
    (lambda: ALSET(0.1, inner_steps=0), "inner_steps must be positive")])
def test_numbers_out_of_range(make: Any, text: str) -> None:
    with pytest.raises(AlgorithmError) as caught:
        make()
    assert text in str(caught.value)


@pytest.mark.parametrize(("y", "text"), [(None, "give its starting point, init"), (torch.ones(2, 2), "one flat vector"),
                                         ([1.0], "got list")])
def test_the_second_starting_point_is_checked(y: Any, text: str) -> None:
    k = known.bilevel()
    for algorithm in (FedNest(0.1), SimFBO(0.1), FedBiOAcc(0.1)):
        with pytest.raises(AlgorithmError, match=text):
            algorithm.init(Federation(k.problem, k.data), k.x0, y)


@pytest.mark.parametrize("x", [torch.ones(3, 1), torch.ones(3, dtype=torch.int64), [1.0, 2.0]])
def test_a_starting_point_that_is_no_vector(x: Any) -> None:
    k = known.minimization()
    with pytest.raises(AlgorithmError, match="flat vector"):
        FedAvg(0.1).init(Federation(k.problem, k.data), x)


@pytest.mark.parametrize(("algorithm", "text"), [
    (FedDRO(0.1, local_steps=2.5), "local_steps of FedDRO is a whole number; got 2.5"),  # type: ignore[arg-type]
    (FedDRO(0.1, batch=1.5), "batch of FedDRO is a whole number, or None; got 1.5"),  # type: ignore[arg-type]
    (FedDRO(0.1, local_steps=Epochs(1)), "local_steps of FedDRO is a whole number; got Epochs"),  # type: ignore[arg-type]
    (FedDRO("0.1"), "lr of FedDRO is a number or a schedule; got '0.1'"),  # type: ignore[arg-type]
    (GCIVR(0.1, period=1.5), "period of GCIVR is a whole number"),  # type: ignore[arg-type]
    (FedNest(0.1, terms=2.5), "terms of FedNest is a whole number"),  # type: ignore[arg-type]
    (FedNest(0.1, full_anchors="no"), "full_anchors of FedNest is True or False; got 'no'"),  # type: ignore[arg-type]
    (FedBiOAcc(Decay(0.1)), "lr of FedBiOAcc is a number; got Decay")])  # type: ignore[arg-type]
def test_hyper_parameters_of_another_type_get_a_sentence(algorithm: Any, text: str) -> None:
    k = known.bilevel() if isinstance(algorithm, FedNest | FedBiOAcc) else known.compositional()
    with pytest.raises(AlgorithmError, match=text):
        algorithm.init(Federation(k.problem, k.data), k.x0)


def test_what_starts_beside_x_must_fit_it() -> None:
    k = known.bilevel()
    fed = Federation(k.problem, k.data)
    with pytest.raises(AlgorithmError, match=r"x and y start with one dtype; got torch.float64 and torch.float32: write y.to\(x.dtype\)"):
        FedNest(0.1).init(fed, k.x0, k.y0.float())
    for algorithm, name in ((SimFBO(0.1), "v"), (FedBiOAcc(0.1), "u")):
        with pytest.raises(AlgorithmError, match=f"{name} starts as a vector like y"):
            algorithm.init(fed, k.x0, k.y0, torch.zeros(5, dtype=torch.float64))


def test_one_machine_methods_check_their_inner_steps() -> None:
    k = known.bilevel(sizes=(4,))
    with pytest.raises(AlgorithmError, match="inner_steps of ALSET is a whole number"):
        ALSET(0.1, inner_steps=1.5).init(Federation(k.problem, k.data), k.x0, k.y0)  # type: ignore[arg-type]


def test_the_second_variable_of_a_saddle_has_its_firsts_dtype() -> None:
    k = known.minimax()
    with pytest.raises(AlgorithmError, match="one dtype"):
        LocalSGDA(0.1).init(Federation(k.problem, k.data), k.x0, torch.zeros(2))
