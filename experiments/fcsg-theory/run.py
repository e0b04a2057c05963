"""The theorems of FCSG, FCSG-M and Acc-FCSG-M as measurements: linear speed-up in the clients, and the order of the samples in ε.

    python experiments/fcsg-theory/run.py            both, the plots, results.json
    python experiments/fcsg-theory/run.py --quick    a small version of the speed-up, written to --out only

Wu et al., "Federated conditional stochastic optimization", NeurIPS 2023, Theorems 4.1, 4.4 and 4.7.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import rate
import speedup
from common import Experiment, Row, arguments, figure, row

from rookery.studies.trials import Results

HERE = Path(__file__).resolve().parent
THEORY = {"FCSG": (-0.5, -6), "FCSG-M": (-0.5, -6), "Acc-FCSG-M": (-2 / 3, -5)}  # of ‖∇F‖² over K·T, and of samples over ε


def of_speedup(done: Results) -> tuple[list[Row], list[str]]:
    rows, lines = [], ["\niterations at a client until the mean of ‖∇F‖² is at a level",
                       "| regime | level | method | K: iterations | slope over K | slope of ‖∇F‖² over K·T | theory |",
                       "|---|---|---|---|---|---|---|"]
    for regime, about in speedup.REGIMES.items():
        for method in speedup.METHODS:
            found = speedup.table(done, regime, method)
            fit, order = speedup.fitted(found, about["level"]), speedup.order(found)
            steps = ", ".join(f"{k}: {t:.0f}" for k, t in fit["steps"].items()) or "not reached"
            text = " | ".join("–" if a is None else f"{a:.3f} ± {b:.3f}" for a, b in ((fit["slope"], fit["error"]), order))
            gone = sum(not r["values"] for t, r in done if (t["regime"], t["method"]) == (regime, method))
            steps += f" ({gone} of {sum((t['regime'], t['method']) == (regime, method) for t, _ in done)} runs lost)" if gone else ""
            lines.append(f"| {regime} | {about['level']} | {method} | {steps} | {text} | −1 and {THEORY[method][0]:.2f} |")
            law, of = regime in ("noise", "differ"), {"regime": regime}
            rows += [row(method, of, "slope of iterations over K", fit["slope"], fit["error"], speedup.REPLICAS, -1.0 if law else None),
                     row(method, of, "slope of stationarity over KT", *order, speedup.REPLICAS, THEORY[method][0] if law else None)]
            rows += [row(method, {**of, "clients": t["clients"], "length": t["length"]}, "stationarity", float(np.mean(r["values"])),
                         float(np.std(r["values"], ddof=1)), len(r["values"]))
                     for t, r in done if (t["regime"], t["method"]) == (regime, method) and r["values"]]
    return rows, lines


def of_rate(table: list[dict[str, Any]]) -> tuple[list[Row], list[str]]:
    rows, lines = [], ["\nexponents in ε, every setting tuned for every ε",
                       "| outer function | method | samples | theory | iterations | m | samples at each ε² (lr, factor of β, m) |",
                       "|---|---|---|---|---|---|---|"]
    for entry in table:
        of, method, samples, steps = {"outer function": entry["kind"]}, entry["method"], entry["samples"], entry["steps"]
        points = list(zip(samples["epsilon"], samples["at"], entry["trials"], strict=True))
        at = "; ".join(f"{e**2:.4f}: {n:.3g} ({t['lr']:g}, {t['factor'] or '–'}, {t['inner']})" for e, n, t in points)
        lines.append(f"| {entry['kind']} | {method} | {samples['slope']:.2f} ± {samples['error']:.2f} | {THEORY[method][1]} "
                     f"| {steps['slope']:.2f} ± {steps['error']:.2f} | {entry['inner']:.2f} | {at} |")
        rows += [row(method, of, "exponent of samples in epsilon", samples["slope"], samples["error"], rate.REPLICAS, THEORY[method][1]),
                 row(method, of, "exponent of iterations in epsilon", steps["slope"], steps["error"], rate.REPLICAS, THEORY[method][1] + 2),
                 row(method, of, "exponent of the inner batch in epsilon", entry["inner"], None, rate.REPLICAS, -2)]
        names = ("lr", "factor", "inner")
        rows += [row(method, {**of, "level": e**2, **{name: t[name] for name in names}}, "samples", n, None, rate.REPLICAS)
                 for e, n, t in points]
    return rows, lines


def plot(done: Results, table: list[dict[str, Any]], path: Path) -> None:
    with figure(path, 3) as (left, middle, right):
        for number, method in enumerate(speedup.METHODS):
            for regime, style in (("noise", "o-"), ("differ", "s:"), ("drift", "x--")):
                steps = speedup.fitted(speedup.table(done, regime, method), speedup.REGIMES[regime]["level"], 2)["steps"]
                if steps:
                    left.loglog(list(steps), list(steps.values()), style, color=f"C{number}", label=f"{method}, {regime}")
            for regime, style in (("noise", "o"), ("bias", "^")):
                found = speedup.table(done, regime, method)
                pairs = sorted((k * t, float(v.mean())) for k, (s, values) in found.items() for t, v in zip(s, values, strict=True))
                middle.loglog(*zip(*pairs, strict=True), style, color=f"C{number}", label=f"{method}, {regime}")
            for entry in table:
                if entry["method"] == method:
                    samples, style = entry["samples"], "o-" if entry["kind"] == "smooth" else "s:"
                    right.loglog(samples["epsilon"], samples["at"], style, color=f"C{number}",
                                 label=f"{method}, {entry['kind']}: {samples['slope']:.1f}")
        clients = np.array(speedup.CLIENTS)
        left.loglog(clients, 6000 / clients, color="grey", linewidth=0.8, label="slope −1")
        left.set(xlabel="clients K", ylabel="iterations at a client", title="until the mean of ‖∇F‖² is at the level")
        middle.set(xlabel="K·T", ylabel="mean of ‖∇F‖² over the run", title="noise, and bias (m = 1)")
        right.set(xlabel="ε", ylabel="samples", title="samples until the mean of ‖∇F‖² is ε², tuned")
        left.set_ylim(bottom=4)
        for ax, place in ((left, "lower left"), (middle, "center right"), (right, "upper right")):
            if ax.has_data():
                ax.legend(fontsize=7, loc=place)


def main() -> None:
    args = arguments(__doc__, "fcsg-theory", "few numbers of clients, and no rate order; everything goes to --out").parse_args()
    experiment = Experiment(HERE, args, args.quick)
    done = experiment.study(speedup.work, speedup.todo((2, 8, 32), (4096, 8192)) if args.quick else speedup.todo())
    rows, lines = of_speedup(done)
    print("\n".join(lines), flush=True)
    table: list[dict[str, Any]] = []
    if not args.quick:
        chosen = rate.tuned(experiment.study(rate.work, rate.todo()))
        again = experiment.study(rate.work, list({str(t): t for _, t in chosen}.values()))
        table = rate.exponents(chosen, {str(t): r for t, r in again})
        more, lines = of_rate(table)
        print("\n".join(lines))
        rows += more
    plot(done, table, experiment.where / "theory.png")
    experiment.record(rows)


if __name__ == "__main__":
    main()
