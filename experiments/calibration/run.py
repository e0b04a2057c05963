"""Are the probabilities true, and does what is saved and exported say the same: three objectives, three calibrators, four data sets.

    python experiments/calibration/run.py                       all data; in $ROOKERY_DATA
    python experiments/calibration/run.py --data adult          some of them
    python experiments/calibration/run.py --quick               scikit-learn's breast cancer, one seed, written to --out only

Guo, Pleiss, Sun, Weinberger, "On calibration of modern neural networks", ICML 2017, and what it cites, for the calibrators.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import Experiment, Row, arguments, row
from models import CALIBRATORS, DATA, METHODS, SMALL, work

from rookery.studies.statistics import groups, mean_std
from rookery.studies.trials import Result, Results

HERE = Path(__file__).resolve().parent
SEEDS = 5
WAYS = ("bundle", "ONNX", "torch")
OF_ROWS = ("calibration error", "predicted", "Brier", "row error")


def spread(values: list[float], digits: int = 3) -> str:
    found = mean_std(values)
    return f"{found.mean:.{digits}f}" + (f" ± {found.std:.{digits}f}" if found.seeds > 1 else "")


def largest(own: list[Result], way: str, calibrator: str) -> tuple[float, int]:
    """Over the models that were exported, and how many these were."""
    values = [result[calibrator][f"{way} difference"] for result in own if f"{way} difference" in result[calibrator]]
    return max(values), len(values)


def report(done: Results) -> str:
    found = groups(done, "data", "method")
    lines = head("data", "method", "AUC", "predicted, observed", "error before", *CALIBRATORS)
    for (data, method), own in found.items():
        means = f"{spread([r['plain']['predicted'] for r in own])}, {mean_std([r['observed'] for r in own]).mean:.3f}"
        errors = [spread([r[c]["calibration error"] for r in own]) for c in ("plain", *CALIBRATORS)]
        lines.append(line(data, method, spread([r["plain"]["AUC"] for r in own]), means, *errors))
    lines += head("data", "method", "observed", *(f"mean by {c}" for c in CALIBRATORS), "Brier before", *CALIBRATORS)
    for (data, method), own in found.items():
        means = [spread([r[c]["predicted"] for r in own]) for c in CALIBRATORS]
        squares = [spread([r[c]["Brier"] for r in own], 4) for c in ("plain", *CALIBRATORS)]
        lines.append(line(data, method, f"{mean_std([r['observed'] for r in own]).mean:.3f}", *means, *squares))
    lines += head("data", "calibrator", "models", *WAYS, "error from bins less that of rows")
    for (data,), own in groups(done, "data").items():
        for c in CALIBRATORS:
            binning = max(r[c]["binning"] for r in own)
            lines.append(line(data, c, largest(own, "ONNX", c)[1], *(f"{largest(own, way, c)[0]:.1e}" for way in WAYS), f"{binning:.1e}"))
    return "\n".join(lines)


def head(*names: str) -> list[str]:
    return ["", line(*names), "|" + "---|" * len(names)]


def line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def record_rows(done: Results) -> list[Row]:
    table = []

    def add(method: str, setting: dict[str, Any], metric: str, values: list[float]) -> None:
        found = mean_std(values)
        table.append(row(method, setting, metric, found.mean, found.std, found.seeds))

    for (data, method), own in groups(done, "data", "method").items():
        for metric in ("observed", "rows", "sites"):
            add(method, {"data": data}, metric, [float(r[metric]) for r in own])
        add(method, {"data": data}, "AUC", [r["plain"]["AUC"] for r in own])
        for c in ("plain", *CALIBRATORS):
            for metric in (*OF_ROWS, *(() if c == "plain" else ("fitted", "warned"))):
                add(method, {"data": data, "calibrate": c}, metric, [r[c][metric] for r in own])
    for (data,), own in groups(done, "data").items():  # a largest value has no spread
        for c in CALIBRATORS:
            for way in WAYS:
                value, models = largest(own, way, c)
                setting = {"data": data, "calibrate": c, "models": models}
                table.append(row("all", setting, f"largest {way} difference", value, None, models // len(METHODS)))
            binning = max(r[c]["binning"] for r in own)
            table.append(row("all", {"data": data, "calibrate": c}, "largest binning", binning, None, len(own) // len(METHODS)))
    return table


def main() -> None:
    parser = arguments(__doc__, HERE.name, "scikit-learn's breast cancer, one seed; everything goes to --out")
    known = [name for name in DATA if name != SMALL]
    parser.add_argument("--data", nargs="+", choices=known, default=known, help="with some of them, everything goes to --out")
    args = parser.parse_args()
    asked = [name for name in known if name in args.data]
    some = args.quick or asked != known
    experiment = Experiment(HERE, args, some)
    experiment.store = args.out / ("quick.jsonl" if args.quick else "trials.jsonl")
    names, seeds = ([SMALL], 1) if args.quick else (asked, SEEDS)
    done = experiment.study(work, [{"data": name, "method": method, "seed": seed, "exports": seed == 0}
                                   for name in names for method in METHODS for seed in range(seeds)])
    print(report(done))
    experiment.record(record_rows(done))


if __name__ == "__main__":
    main()
