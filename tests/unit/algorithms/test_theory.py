"""The parameter rules of the theorems: their exponents, the printed formulas, and bounds where they are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rookery import FCSG, FCSGM, AccFCSGM, FedDRO, Federation, LocalSCGDAM, theory
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
                                                            "beta": (-1 / 2, 1 / 2)}),
    "LocalSCGDAM": (lambda t, n: theory.local_scgdam(t, n, 0.5, 2.0, 1.0, 1.0, 1.5), {
        "local_steps": (1 / 4, -3 / 4), **dict.fromkeys(("lr", "inner_lr", "tracking", "beta", "inner_beta"), (-1 / 2, 1 / 2))})}


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


def test_the_rule_of_local_scgdam_keeps_the_theorems_bounds() -> None:
    """For random constants: all the printed bounds hold, and γ_x, γ_y and η each meet the smallest of theirs."""
    r = np.random.default_rng(0)
    cut = 0
    for _ in range(300):
        mu, L_f, L_g, C_f, C_g, a, bx, by, c = np.exp(r.uniform(-2, 2, 9)).tolist()
        t, n = int(10 ** r.uniform(0, 9)), int(r.integers(1, 100))
        chosen = theory.local_scgdam(t, n, mu, L_f, L_g, C_f, C_g, a, bx, by, c)
        p, eta = chosen["local_steps"], chosen["tracking"] / a
        gx, gy = chosen["lr"] / eta, chosen["inner_lr"] / eta
        assert chosen["beta"] == pytest.approx(bx * eta)
        assert chosen["inner_beta"] == pytest.approx(by * eta)
        on_y = np.array([1 / (6 * L_f), 3 * mu * by**2 / 400 / L_f**2, 3 * bx**2 / 16 / mu]) / gy
        on_x = np.array([a * mu / (100 * C_g**2 * L_f * np.sqrt(1 + 6 * L_f**2)), bx / 32 / np.hypot(C_g**2 * L_f, C_f * L_g),
                         by * mu / (12 * C_g * L_f) ** 2, np.sqrt(a) * mu / (24 * C_g**2 * np.hypot(10 * L_f**2, np.sqrt(2) * mu)),
                         gy * (mu / (C_g * L_f)) ** 2 / 20]) / gx
        bounds = np.array([c * np.sqrt(n / t), 1 / (2 * gx * (2 * (C_g * L_f) ** 2 / mu + C_f * L_g)), 1 / (10 * p**2 * gy * L_f),
                           1 / a, 1 / bx, 1 / by, 1]) / eta
        assert [on_y.min(), on_x.min(), bounds.min()] == pytest.approx([1, 1, 1])
        cut += int(bounds.argmin() > 0)
        assert p == max(1, int(t**0.25 / n**0.75 * (1 + 1e-12)))
        LocalSCGDAM(**chosen)
    assert 30 < cut < 270  # both happen


def test_exchanges_of_local_scgdam_grow_with_the_clients() -> None:
    """T/p = (KT)^¾, Remark 1; the introduction of the paper prints T^¾/K^¾."""
    for t, n in ((10**12, 1), (10**12, 16), (10**14, 81)):
        assert t / theory.local_scgdam(t, n, 1.0, 1.0, 1.0, 1.0, 1.0)["local_steps"] == pytest.approx((n * t) ** 0.75, rel=0.02)
    assert theory.local_scgdam(10**8, 1, 1.0, 1.0, 1.0, 1.0, 1.0)["local_steps"] == 100  # an exact root is not rounded below itself
    assert theory.local_scgdam(10**4, 50, 1.0, 1.0, 1.0, 1.0, 1.0)["local_steps"] == 1
