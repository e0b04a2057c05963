"""The quadratic saddle of the FedNest paper: who reaches the exact saddle point over unlike clients, and where the others stop.

    f_i(x, y) = −[½‖y‖² − b_i·y + t_i y·x] + (λ/2)‖x‖²,  b_i ~ N(0, s_i²), s_i ~ U(0, 2s), t_i ~ U(0, 0.1), d = 10
    x* = t̄b̄/(λ + t̄²), y* = b̄ − t̄x*

    python experiments/minimax-quadratic/run.py            all settings, the plot, results.json
    python experiments/minimax-quadratic/run.py --quick    one seed and few rounds, written to --out only

Tarzanagh, Li, Thrampoulidis, Oymak, "FedNest: Federated bilevel, minimax, and compositional optimization", ICML 2022.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from rookery import Bilevel, FedAvgS, Federation, FedGDAGT, FedNest, LFedNest, as_bilevel
from rookery.problems.testproblems import quadratic_saddle
from rookery.studies.statistics import groups, mean_std
from rookery.studies.trials import Result, Results, Trial, announce, arguments, record, study, trials

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


def work(trial: Trial) -> Result:
    begun = time.process_time()
    clients, mode = CLIENTS[trial["mode"]], trial["mode"]
    k = quadratic_saddle(trial["seed"], clients, lam=trial["lam"], s=trial["s"])
    drawn = np.random.default_rng(trial["seed"]).choice((1, 5, 9), clients).tolist()
    steps = tuple(drawn) if mode == "full, unequal τ" else STEPS
    method = algorithm(trial["method"], trial["lam"], steps)
    problem = as_bilevel(k.problem) if method.solves is Bilevel else k.problem
    fed = Federation(problem, k.data, seed=trial["seed"], clients_per_round=50 if mode == "50 of 1000" else None, engine="vectorised")
    t, b = k.data.fields["t"].mean(), k.data.fields["b"].mean(0)
    assert k.y_star is not None
    state, errors = method.init(fed, k.x0, k.y0), []
    for _ in range(trial["rounds"]):
        state = method.round(fed, state)
        ends = (state.x, k.x_star), (state.y, k.y_star), (state.y, b - t * state.x)
        errors.append([float((z - goal).square().sum()) for z, goal in ends])
    x, y, inner = np.asarray(errors).T
    tail = slice(-max(1, trial["rounds"] // 4), None)  # sampled clients make the end noisy
    reached = np.flatnonzero(x <= GOAL)
    return {"x": float(x[tail].mean()), "y": float(y[tail].mean()), "inner": float(inner[tail].mean()),
            "rounds to 1e-20": int(reached[0]) + 1 if len(reached) else None, "exchanges": fed.ledger["train"].exchanges / trial["rounds"],
            "x curve": x.tolist(), "inner curve": inner.tolist(), "seconds": time.process_time() - begun}


PAPER_SAYS = {"x": "tail of ‖x − x*‖²", "y": "tail of ‖y − y*‖²", "inner": "tail of ‖y − y*(x)‖²",
              "rounds to 1e-20": "rounds until ‖x − x*‖² ≤ 1e-20", "exchanges": "exchanges a round"}


def table(done: Results) -> tuple[list[dict[str, Any]], list[str]]:
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
            rows.append({"method": method, "setting": {"clients": mode, "lam": lam, "s": s}, "metric": name, "mean": found.mean,
                         "std": found.std, "seeds": found.seeds, "paper": None})
        lines.append(f"| {mode} | {lam:g} | {s:g} | {method} | " + " | ".join(cells) + " |")
    return rows, lines


def plot(done: Results, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    settings = [("full", 10.0, 1.0), ("full", 0.1, 1.0), ("full, unequal τ", 0.1, 1.0), ("50 of 1000", 0.1, 1.0), ("50 of 1000", 0.1, 0.0)]
    figure, axes = plt.subplots(1, 5, figsize=(19, 3.9), sharey=True)
    for axis, (mode, lam, s) in zip(axes, settings, strict=True):
        for method in METHODS:
            curves = np.asarray([r["x curve"] for t, r in done if (t["mode"], t["lam"], t["s"], t["method"]) == (mode, lam, s, method)])
            if len(curves):
                middle = np.exp(np.log(np.maximum(curves, 1e-35)).mean(0))
                axis.semilogy(middle, label=method, lw=1.8, ls="--" if method == "LFedNest" else "-")
        axis.axhline(GOAL, color="grey", lw=0.7, ls=":")
        axis.set(title=f"{mode}, λ = {lam:g}, s = {s:g}", xlabel="round")
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("‖x − x*‖²")
    axes[3].legend(frameon=False, fontsize=9, loc="center")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    args = arguments(__doc__, "minimax-quadratic", "one seed, 60 rounds, and only the clients that all take part").parse_args()
    modes = ("full",) if args.quick else tuple(CLIENTS)
    todo = trials(mode=modes, lam=(10.0, 0.1), s=(1.0, 10.0), method=METHODS, rounds=(60 if args.quick else ROUNDS,),
                  seed=range(1 if args.quick else SEEDS))
    if not args.quick:  # b = 0, which is what the authors' notebook runs FedNest on
        todo += trials(mode=("50 of 1000",), lam=(0.1,), s=(0.0,), method=METHODS, rounds=(ROUNDS,), seed=range(SEEDS))
    done = study(work, todo, args.out / "trials.jsonl", args.jobs, announce)
    rows, lines = table(done)
    print("\n".join(lines))
    where = args.out if args.quick else HERE
    plot(done, where / "saddle.png")
    record(where / "results.json", rows, sum(r["seconds"] for _, r in done) / 60 / args.jobs,
           None if args.quick else "python experiments/minimax-quadratic/run.py")


if __name__ == "__main__":
    main()
