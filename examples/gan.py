"""A small GAN over clients that keep their points: a linear generator against a quadratic critic, by descent ascent.

    min_(A, m) max_(M, w) mean_k [ E D(u_k) − E D(Az + m) ] − (RHO/2)(‖M‖² + ‖w‖²),   D(u) = ½uᵀMu + w·u,   z ~ N(0, I)

Six clients stand on a ring, each with points of its own place: none sees the whole. With this critic a generator is right when mean and
second moments agree (Feizi, Farnia, Ginart, Tse, "Understanding GANs: the LQG setting", arXiv:1710.10793), so there is a number to look
at: how far the generated moments are from those of all points together. LocalSGDA stops at its drift, FedGDA-GT does not.

    python examples/gan.py          seconds
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rookery import Batch, Data, Federation, FedGDAGT, LocalSGDA, Minimax

CLIENTS, POINTS, RHO, STEPS, LR = 6, 200, 1.0, 5, 0.04


def critic(y: Tensor, u: Tensor) -> Tensor:
    return 0.5 * ((u @ y[:4].view(2, 2)) * u).sum(1) + u @ y[4:]


def generated(x: Tensor, z: Tensor) -> Tensor:
    return z @ x[:4].view(2, 2).T + x[4:]


def loss(x: Tensor, y: Tensor, b: Batch) -> Tensor:
    return critic(y, b.points).mean() - critic(y, generated(x, b.noise)).mean() - 0.5 * RHO * y.square().sum()


def ring(seed: int) -> Data:
    """Each client's points around its own place on an ellipse, and the noise that its generator will use."""
    r = np.random.default_rng(seed)
    parts = {}
    for k, angle in enumerate(np.linspace(0, 2 * np.pi, CLIENTS, endpoint=False)):
        place = np.array([1.0 + 1.2 * np.cos(angle), -0.5 + 0.6 * np.sin(angle)])
        noise = r.standard_normal((POINTS, 2))
        parts[f"client-{k}"] = {"points": place + 0.2 * r.standard_normal((POINTS, 2)), "noise": (noise - noise.mean(0)) / noise.std(0)}
    return Data.from_parts(parts)


def distance(x: Tensor, data: Data) -> float:
    """Largest difference in mean and second moments, of points and generated points."""
    there, here = data.fields["points"], generated(x, data.fields["noise"])
    moments = [torch.cat([u.mean(0), (u.T @ u / len(u)).flatten()]) for u in (there, here)]
    return float((moments[0] - moments[1]).abs().max())


def train(method: Any, data: Data, rounds: int) -> tuple[list[float], Tensor]:
    fed = Federation(Minimax(loss), data)
    x = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    state = method.init(fed, x, torch.zeros(6, dtype=torch.float64))
    far = [distance(state.x, data)]
    for _ in range(rounds):
        state = method.round(fed, state)
        far.append(distance(state.x, data))
    return far, state.x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--out", type=Path, help="a folder for the plot")
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = ring(0)
    runs = {f"{m.title}, {STEPS} local steps": train(m, data, args.rounds) for m in (LocalSGDA(LR, LR, STEPS), FedGDAGT(LR, STEPS))}
    for name, (far, _) in runs.items():
        print(f"{name}: largest difference of moments {far[0]:.3f} at the start, {far[-1]:.2e} after {args.rounds} rounds")
    if args.out is not None:
        plot(runs, data, args.out)


def plot(runs: dict[str, tuple[list[float], Tensor]], data: Data, out: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8))
    for k in range(CLIENTS):
        points = data.views(k)["points"]
        left.scatter(points[:, 0], points[:, 1], s=4, alpha=0.4)
    x = list(runs.values())[-1][1]
    drawn = generated(x, data.fields["noise"][:600])
    left.scatter(drawn[:, 0], drawn[:, 1], s=3, color="black", alpha=0.35, label="generated")
    left.legend(frameon=False)
    left.set(title="points of six clients, and generated ones")
    for name, (far, _) in runs.items():
        right.semilogy(far, label=name)
    right.set(title="largest difference of moments", xlabel="round")
    right.grid(alpha=0.25)
    right.legend(frameon=False)
    out.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(out / "gan.png", dpi=110)


if __name__ == "__main__":
    main()
