"""Hyper-parameters as the papers' theorems set them: functions of the horizon and the problem's constants, which give keyword arguments.

>>> from rookery import FCSG
>>> FCSG(outer=1, inner=16, **fcsg(T=10_000, N=4, S_F=2.0)).local_steps
4

T is the number of iterations at a client, not of rounds: a run has T/local_steps rounds. Whole numbers are rounded and at least 1,
shares at most 1; after such a cut T is too small for the theorem, and the numbers are only a start. Constants that hide in the
theorems' O(·) are 1 here.
"""

from __future__ import annotations

import math
from typing import Any

from .base import check_positive


def conditional_smoothness(S_f: float, L_f: float, S_g: float, L_g: float) -> float:
    """S_F = S_g·L_f + S_f·L_g², the smoothness of F = E f(E g) from those (S) and the Lipschitz constants (L) of f and g."""
    return S_g * L_f + S_f * L_g**2


def fcsg(T: int, N: int, S_F: float) -> dict[str, Any]:
    """FCSG over N clients: α = √(N/T)/(6 S_F), q = (T/N³)^¼; α ≤ 1/(6 q S_F). Wu et al. 2023, Theorem 4.1 and Corollary 4.2.

    T/q = (NT)^¾ exchanges. The inner batch is m = O(ε⁻²) for a gradient of norm ε, the outer ones O(1).
    """
    check_positive(T=T, N=N, S_F=S_F)
    q = _whole((T / N**3) ** 0.25)
    return {"lr": min(math.sqrt(N / T), 1 / q) / (6 * S_F), "local_steps": q}


def fcsg_m(T: int, N: int, S_F: float) -> dict[str, Any]:
    """FCSG-M: lr and q as `fcsg`, β = 5 S_F α. Wu et al. 2023, Theorem 4.4 (which prints η for α) and Corollary 4.5."""
    chosen = fcsg(T, N, S_F)
    return {**chosen, "beta": min(1.0, 5 * S_F * chosen["lr"])}


def acc_fcsg_m(T: int, N: int, S_F: float, b: int = 1) -> dict[str, Any]:
    """Acc-FCSG-M with outer batches b: q = (T/N²)^⅓, α = N^⅔/(12 S_F T^⅓) ≤ 1/(12 q S_F), β = 30 S_F² α²/(bN) = 5 N^⅓/(24 T^⅔ b).

    The first batch is B = T^⅓/N^⅔, at least b. Wu et al. 2023, Corollary 4.8 and Lemma D.3; Theorem 4.7 prints β = 5 S_F α, which
    contradicts both.

    T/q = (NT)^⅔ exchanges. The inner batch is m = O(ε⁻²).
    """
    check_positive(T=T, N=N, S_F=S_F, b=b)
    q = _whole((T / N**2) ** (1 / 3))
    lr = min(N ** (2 / 3) / T ** (1 / 3), 1 / q) / (12 * S_F)
    return {"lr": lr, "local_steps": q, "outer": b, "first": max(b, _whole(T ** (1 / 3) / N ** (2 / 3))),
            "beta": min(1.0, 30 * S_F**2 * lr**2 / (b * N))}


def feddro(T: int, K: int, B_g: float, L_f: float, b: int = 1) -> dict[str, Any]:
    """FedDRO over K clients with batches b: η = √(bK/T), β = 4 B_g⁴ L_f² η, I = T^¼/(bK)^¾.

    Khanduri et al. 2023, Theorem 5.1 and Corollary 5.2, which bounds I from above: it is rounded down. B_g bounds ∇g_k, L_f is the
    smoothness of f. The theorem holds from some T on, which keeps η below a bound; it is not checked here.
    """
    check_positive(T=T, K=K, B_g=B_g, L_f=L_f, b=b)
    lr = math.sqrt(b * K / T)
    return {"lr": lr, "beta": min(1.0, 4 * B_g**4 * L_f**2 * lr), "local_steps": _below(T**0.25 / (b * K) ** 0.75), "batch": b}


def local_scgdam(T: int, K: int, mu: float, L_f: float, L_g: float, C_f: float, C_g: float, alpha: float = 1.0, beta_x: float = 1.0,
                 beta_y: float = 1.0, constant: float = 1.0) -> dict[str, Any]:
    """LocalSCGDAM over K clients: η = constant·√(K/T), p = T^¼/K^¾ rounded down, and the largest γ_y, γ_x and η that Theorem 1 allows.

    Zhang et al. 2023, Theorem 1 and Remark 1. f is mu-strongly concave in y; L_f and L_g are the smoothness of f and g, C_f and C_g bound
    the second moments of ∂z f and ∇g. `alpha`, `beta_x` and `beta_y` are free, and `constant` is what hides in η = O(√(K/T)); 1 stands
    for what hides in p. With L_Φ = 2C_g²L_f²/mu + C_f·L_g

        γ_y ≤ 1/(6L_f), 3·mu·β_y²/(400L_f²), 3β_x²/(16·mu)
        γ_x ≤ α·mu/(100C_g²L_f√(1+6L_f²)), β_x/(32√(C_g⁴L_f²+C_f²L_g²)), β_y·mu/(144C_g²L_f²), √α·mu/(24C_g√(100C_g²L_f⁴+2C_g²mu²)),
              γ_y·mu²/(20C_g²L_f²)
        η ≤ 1/(2γ_x·L_Φ), 1/(10p²γ_y·L_f), 1/α, 1/β_x, 1/β_y, 1

    T/p = (KT)^¾ exchanges, as the remark says; the T^¾/K^¾ of the paper's introduction is a slip. The theorem leaves out that clients
    average ∇g_kᵀ∂z f_k where ∇Φ has the product of the two averages: where both differ together, no step size closes that gap.
    """
    check_positive(T=T, K=K, mu=mu, L_f=L_f, L_g=L_g, C_f=C_f, C_g=C_g, alpha=alpha, beta_x=beta_x, beta_y=beta_y, constant=constant)
    L_phi = 2 * C_g**2 * L_f**2 / mu + C_f * L_g
    gamma_y = min(1 / (6 * L_f), 3 * mu * beta_y**2 / (400 * L_f**2), 3 * beta_x**2 / (16 * mu))
    gamma_x = min(alpha * mu / (100 * C_g**2 * L_f * math.sqrt(1 + 6 * L_f**2)),
                  beta_x / (32 * math.sqrt(C_g**4 * L_f**2 + C_f**2 * L_g**2)),
                  beta_y * mu / (144 * C_g**2 * L_f**2),
                  math.sqrt(alpha) * mu / (24 * C_g * math.sqrt(100 * C_g**2 * L_f**4 + 2 * C_g**2 * mu**2)),
                  gamma_y * mu**2 / (20 * C_g**2 * L_f**2))
    p = _below(T**0.25 / K**0.75)
    eta = min(constant * math.sqrt(K / T), 1 / (2 * gamma_x * L_phi), 1 / (10 * p**2 * gamma_y * L_f),
              1 / alpha, 1 / beta_x, 1 / beta_y, 1.0)
    return {"lr": gamma_x * eta, "inner_lr": gamma_y * eta, "tracking": min(1.0, alpha * eta), "beta": min(1.0, beta_x * eta),
            "inner_beta": min(1.0, beta_y * eta), "local_steps": p}


def sgda(l: float, mu: float) -> dict[str, Any]:
    """SGDA on an l-smooth f that is mu-strongly concave in y: η_y = 1/l, η_x = 1/(κ²l), κ = l/mu.

    Lin, Jin, Jordan 2020, Theorem 4.5, with 1 for the constant that hides in η_x = Θ(1/(κ²l)).
    """
    check_positive(l=l, mu=mu)
    return {"lr": mu**2 / l**3, "inner_lr": 1 / l}


def _whole(number: float) -> int:
    return max(1, round(number))


def _below(number: float) -> int:
    """Rounded down, and at least 1; an exact root is not rounded below itself."""
    return max(1, math.floor(number * (1 + 1e-12)))
