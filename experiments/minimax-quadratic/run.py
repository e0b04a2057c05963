"""The quadratic saddle of the FedNest paper: who reaches the exact saddle point over heterogeneous clients, and where the others stop.

    f_i(x, y) = −[½‖y‖² − b_i·y + t_i y·x] + (λ/2)‖x‖²,  b_i ~ N(0, s_i²), s_i ~ U(0, 2s), t_i ~ U(0, 0.1), d = 10
    x* = t̄b̄/(λ + t̄²), y* = b̄ − t̄x*

    python experiments/minimax-quadratic/run.py            all settings, the plot, results.json
    python experiments/minimax-quadratic/run.py --quick    one seed and few rounds, written to --out only

Tarzanagh, Li, Thrampoulidis, Oymak, "FedNest: Federated bilevel, minimax, and compositional optimization", ICML 2022.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import Experiment, Row, arguments, figure, row, run_to_end, timed

from rookery import Bilevel, FedAvgS, Federation, FedGDAGT, FedNest, LFedNest, as_bilevel
from rookery.problems.testproblems import quadratic_saddle
from rookery.studies.statistics import groups, mean_std
from rookery.studies.trials import Result, Results, Trial, trials

HERE = Path(__file__).resolve().parent
METHODS = ("FedNest", "FedGDA-GT", "LFedNest", "FedAvg-S, at once", "FedAvg-S, y first")
# all clients with equal and with unequal numbers of local steps, and 50 of 1 000 for a round
CLIENTS = {"full": 100, "full, unequal τ": 100, "50 of 1000": 1000}
STEPS, ROUNDS, SEEDS, GOAL = 5, 250, 3, 1e-20


def algorithm(method: str, lam: float, steps: Any) -> Any:
    """Rounds that move x by half of its own curvature, 0.5/λ, and y by 0.5, in steps of a τ-th. FedGDA-GT has one rate for both,
    a quarter of what the larger curvature allows."""
    alpha, beta = 0.5 / lam, 0.5
    plain = {"lr": alpha / STEPS, "inner_lr": beta / STEPS, "local_steps": steps}
    return {"FedNest": lambda: FedNest(alpha, beta, 1, steps), "LFedNest": lambda: LFedNest(alpha, beta, 1, steps),
            "FedAvg-S, at once": lambda: FedAvgS(**plain), "FedAvg-S, y first": lambda: FedAvgS(**plain, order="y first"),
            "FedGDA-GT": lambda: FedGDAGT(0.25 / max(lam, 1.0), steps)}[method]()


@timed
def work(trial: Trial) -> Result:
    clients, mode = CLIENTS[trial["mode"]], trial["mode"]
    k = quadratic_saddle(trial["seed"], clients, lam=trial["lam"], s=trial["s"])
    drawn = np.random.default_rng(trial["seed"]).choice((1, 5, 9), clients).tolist()
    steps = tuple(drawn) if mode == "full, unequal τ" else STEPS
    method = algorithm(trial["method"], trial["lam"], steps)
    problem = as_bilevel(k.problem) if method.solves is Bilevel else k.problem
    fed = Federation(problem, k.data, seed=trial["seed"], clients_per_round=50 if mode == "50 of 1000" else None, engine="vectorised")
    t, b = k.data.fields["t"].mean(), k.data.fields["b"].mean(0)
    assert k.y_star is not None

    def errors(state: Any) -> dict[str, float]:
        ends = {"x": (state.x, k.x_star), "y": (state.y, k.y_star), "inner": (state.y, b - t * state.x)}
        return {name: float((z - goal).square().sum()) for name, (z, goal) in ends.items()}

    done = run_to_end(method, fed, method.init(fed, k.x0, k.y0), trial["rounds"], errors)
    x, y, inner = (np.asarray(done.column(name)[1:]) for name in ("x", "y", "inner"))  # after each round
    tail = slice(-max(1, trial["rounds"] // 4), None)  # sampled clients make the end noisy
    reached = np.flatnonzero(x <= GOAL)
    return {"x": float(x[tail].mean()), "y": float(y[tail].mean()), "inner": float(inner[tail].mean()),
            "rounds to 1e-20": int(reached[0]) + 1 if len(reached) else None, "exchanges": fed.ledger["train"].exchanges / trial["rounds"],
            "x curve": x.tolist(), "inner curve": inner.tolist()}


PAPER_SAYS = {"x": "tail of ‖x − x*‖²", "y": "tail of ‖y − y*‖²", "inner": "tail of ‖y − y*(x)‖²",
              "rounds to 1e-20": "rounds until ‖x − x*‖² ≤ 1e-20", "exchanges": "exchanges a round"}


def table(done: Results) -> tuple[list[Row], list[str]]:
    lines = ["| clients | λ | s | method | ‖x − x*‖² | ‖y − y*‖² | ‖y − y*(x)‖² | rounds to 1e-20 | exchanges a round |",
             "|---|---|---|---|---|---|---|---|---|"]
    rows = []
    for (mode, lam, s, method), results in groups(done, "mode", "lam", "s", "method").items():
        cells = []
        for metric, name in PAPER_SAYS.items():
            values = [r[metric] for r in results if r[metric] is not None]
            if not values:
                cells.append("–")
                continue
            found = mean_std(values)
            cells.append(f"{found.mean:.1e} ± {found.std:.0e}" if metric in ("x", "y", "inner") else f"{found.mean:.0f}")
            rows.append(row(method, {"clients": mode, "lam": lam, "s": s}, name, *found))
        lines.append(f"| {mode} | {lam:g} | {s:g} | {method} | " + " | ".join(cells) + " |")
    return rows, lines


def plot(done: Results, path: Path) -> None:
    settings = [("full", 10.0, 1.0), ("full", 0.1, 1.0), ("full, unequal τ", 0.1, 1.0), ("50 of 1000", 0.1, 1.0), ("50 of 1000", 0.1, 0.0)]
    with figure(path, len(settings), sharey=True) as axes:
        for ax, (mode, lam, s) in zip(axes, settings, strict=True):
            for method in METHODS:
                curves = np.asarray([r["x curve"] for t, r in done if (t["mode"], t["lam"], t["s"], t["method"]) == (mode, lam, s, method)])
                if len(curves):
                    middle = np.exp(np.log(np.maximum(curves, 1e-35)).mean(0))
                    ax.semilogy(middle, label=method, linestyle="--" if method == "LFedNest" else "-")
            ax.axhline(GOAL, color="grey", linewidth=0.7, linestyle=":")
            ax.set(title=f"{mode}, λ = {lam:g}, s = {s:g}", xlabel="round")
        axes[0].set_ylabel("‖x − x*‖²")
        axes[0].legend()


def main() -> None:
    args = arguments(__doc__, "minimax-quadratic", "one seed, 60 rounds, and only the clients that all take part").parse_args()
    modes = ("full",) if args.quick else tuple(CLIENTS)
    todo = trials(mode=modes, lam=(10.0, 0.1), s=(1.0, 10.0), method=METHODS, rounds=(60 if args.quick else ROUNDS,),
                  seed=range(1 if args.quick else SEEDS))
    if not args.quick:  # b = 0, which is what the authors' notebook runs FedNest on
        todo += trials(mode=("50 of 1000",), lam=(0.1,), s=(0.0,), method=METHODS, rounds=(ROUNDS,), seed=range(SEEDS))
    experiment = Experiment(HERE, args, args.quick)
    done = experiment.study(work, todo)
    rows, lines = table(done)
    print("\n".join(lines))
    plot(done, experiment.where / "saddle.png")
    experiment.record(rows)


if __name__ == "__main__":
    main()
