"""The parameter rules of the theorems: their exponents, the printed formulas, and bounds where they are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rookery import FCSG, FCSGM, AccFCSGM, FedDRO, Federation, theory
from rookery.problems import testproblems as known


def exponent(values: list[float], sizes: list[int]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


T, FAR = [10**12, 10**13, 10**14, 10**15], 10**15
RULES: dict[str, tuple[Any, dict[str, tuple[float, float]]]] = {  # the exponents of T, and of the number of clients
    "FCSG": (lambda t, n: theory.fcsg(t, n, 2.0), {"lr": (-1 / 2, 1 / 2), "local_steps": (1 / 4, -3 / 4)}),
    "FCSG-M": (lambda t, n: theory.fcsg_m(t, n, 2.0), {"lr": (-1 / 2, 1 / 2), "local_steps": (1 / 4, -3 / 4), "beta": (-1 / 2, 1 / 2)}),
    "Acc-FCSG-M": (lambda t, n: theory.acc_fcsg_m(t, n, 2.0, b=3), {"lr": (-1 / 3, 2 / 3), "local_steps": (1 / 3, -2 / 3),
                                                                     "beta": (-2 / 3, 1 / 3), "first": (1 / 3, -2 / 3)}),
    "FedDRO": (lambda t, n: theory.feddro(t, n, 1.5, 0.5), {"lr": (-1 / 2, 1 / 2), "local_steps": (1 / 4, -3 / 4),
                                                            "beta": (-1 / 2, 1 / 2)})}


@pytest.mark.parametrize("name", RULES)
def test_exponents_of_the_rules(name: str) -> None:
    rule, exponents = RULES[name]
    for parameter, (in_t, in_n) in exponents.items():
        assert exponent([rule(t, 2)[parameter] for t in T], T) == pytest.approx(in_t, abs=0.01)
        clients = [1, 2, 4, 8]
        assert exponent([rule(FAR, n)[parameter] for n in clients], clients) == pytest.approx(in_n, abs=0.01)


def test_rules_are_the_printed_formulas() -> None:
    t, n, s = 10**8, 4, 2.0
    assert theory.conditional_smoothness(S_f=2.0, L_f=3.0, S_g=5.0, L_g=7.0) == 5 * 3 + 2 * 49
    plain, accelerated, dro = theory.fcsg_m(t, n, s), theory.acc_fcsg_m(t, n, s, b=3), theory.feddro(t, n, 0.8, 0.5, b=2)
    assert plain["lr"] == pytest.approx(np.sqrt(n / t) / (6 * s))
    assert plain["local_steps"] == round((t / n**3) ** 0.25) == 35
    assert plain["beta"] == pytest.approx(5 * s * plain["lr"])
    assert accelerated["local_steps"] == round((t / n**2) ** (1 / 3)) == 184
    assert accelerated["lr"] == pytest.approx(n ** (2 / 3) / (12 * s * t ** (1 / 3)), rel=2e-3)  # q is a whole number, and α q ≤ 1/(12 S_F)
    assert accelerated["beta"] == pytest.approx(5 * n ** (1 / 3) / (24 * t ** (2 / 3) * 3), rel=4e-3)
    assert accelerated["first"] == round(t ** (1 / 3) / n ** (2 / 3)) == 184
    assert dro["lr"] == pytest.approx(np.sqrt(2 * n / t))
    assert dro["beta"] == pytest.approx(4 * 0.8**4 * 0.5**2 * dro["lr"])
    assert dro["local_steps"] == int(t**0.25 / (2 * n) ** 0.75) == 21
    assert theory.feddro(10**8, 1, 1.0, 1.0)["local_steps"] == 100  # an exact fourth root is not rounded below itself
    for chosen, power in ((plain, 3 / 4), (accelerated, 2 / 3)):  # the numbers of exchanges
        assert t / chosen["local_steps"] == pytest.approx((n * t) ** power, rel=0.02)
    assert t / dro["local_steps"] == pytest.approx((2 * n * t) ** 0.75, rel=0.05)


def test_rules_keep_their_bounds_where_they_are_cut_and_give_keyword_arguments() -> None:
    for t in (1, 10, 1000, 10**6):
        for n in (1, 3, 50, 1000):
            plain, accelerated, dro = theory.fcsg_m(t, n, 0.7), theory.acc_fcsg_m(t, n, 0.7, b=2), theory.feddro(t, n, 2.0, 3.0, b=2)
            assert plain["lr"] * 6 * plain["local_steps"] * 0.7 <= 1 + 1e-12
            assert accelerated["lr"] * 12 * accelerated["local_steps"] * 0.7 <= 1 + 1e-12
            assert accelerated["first"] >= accelerated["outer"]
            assert dro["local_steps"] <= max(1.0, t**0.25 / (2 * n) ** 0.75)
            for chosen in (plain, accelerated, dro):
                assert chosen["local_steps"] >= 1
                assert 0 < chosen["beta"] <= 1
            FCSG(inner=4, **theory.fcsg(t, n, 0.7))
            FCSGM(inner=4, **plain)
            AccFCSGM(inner=4, **accelerated)
            FedDRO(**dro)
    k = known.conditional()
    FCSG(outer=1, inner=2, **theory.fcsg(100, 4, 2.0)).init(Federation(k.problem, k.data), k.x0)
