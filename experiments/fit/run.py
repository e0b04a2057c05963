"""Is one ever worse off with `rookery fit`, and does it keep what nesting gains: six data sets, four goals, five seeds.

    python experiments/fit/run.py                       all of them; data in $ROOKERY_DATA
    python experiments/fit/run.py --data adult          some of them, written to --out only
    python experiments/fit/run.py --quick               scikit-learn's breast cancer, one seed, written to --out only
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import Experiment, Row, arguments, figure, row, timed

from rookery.fitting import Options, fit
from rookery.studies.statistics import groups, mean_std, paired_ttest
from rookery.studies.trials import Result, Results, Trial

HERE = Path(__file__).resolve().parent
SEEDS, ROUNDS = 5, 40
DIRICHLET = {"sites": {"how": "dirichlet", "alpha": 0.5, "number": 10}, "test_at": "sites"}
DATA: dict[str, dict[str, Any]] = {  # sites, and the column of the groups where there is one
    "mammography": DIRICHLET,
    "adult": DIRICHLET | {"sensitive": "sex", "given": True},
    "pneumoniamnist": DIRICHLET | {"sites": {"how": "dirichlet", "alpha": 0.5, "number": 5}, "given": True},
    "sites/stroke": {"sites": {"how": "column", "column": "COUNTRY", "least": 100}, "test_at": "sites", "sensitive": "SEX"},
    "sites/covid": {"sites": {"how": "column", "least": 100}, "sensitive": "gender"},
    "sites/precincts": {"sites": {"how": "column"}, "sensitive": "race"},
    "breast-cancer": {"sites": {"how": "dirichlet", "number": 3}}}
SMALL = "breast-cancer"
GOALS = ("auc", "ap", "worst_site", "fair")
FIRST = "FedAvg"


@timed
def work(trial: Trial) -> Result:
    own = DATA[trial["data"]]
    data: dict[str, Any] = {"name": trial["data"], "test_at": own.get("test_at", "server")}
    if not own.get("given"):  # its publisher did not say which rows test
        data["split_seed"] = trial["seed"]
    base = {"data": data, "sites": own["sites"], "federation": {"seed": trial["seed"]}}
    sensitive = own.get("sensitive") if trial["goal"] == "fair" else None
    with tempfile.TemporaryDirectory() as folder:
        done = fit(base, trial["goal"], folder, Options(rounds=trial["rounds"], sensitive=sensitive, jobs=1))
    found = {r["label"]: {"kind": r["kind"], "validation": r["validation"], "test": r["test"][0], "lr": r["setting"].get("algorithm.lr")}
             for r in done.told["rows"]}
    return {"kept": done.told["kept"], "methods": found, "sentence": done.told["sentence"], "rows": done.told["where"]}


def goals_of(name: str) -> tuple[str, ...]:
    return GOALS if "sensitive" in DATA[name] else GOALS[:3]


def summary(results: list[Result]) -> dict[str, Any]:
    """One data set and goal: what is kept against FedAvg, and against the nested method that is best on validation rows."""
    def test(result: Result, label: str) -> float:
        return float(result["methods"][label]["test"])

    first = [test(r, FIRST) for r in results]
    kept = [test(r, r["kept"]) for r in results]
    best = [max((label for label, m in r["methods"].items() if m["kind"] == "nested"), key=lambda label: r["methods"][label]["validation"])
            for r in results]
    nested = [test(r, label) for r, label in zip(results, best, strict=True)]
    found: dict[str, Any] = {"FedAvg": first, "kept": kept, "nested": nested, "labels": [r["kept"] for r in results]}
    if len(results) > 1:
        found |= {"kept more": paired_ttest(kept, first), "nested more": paired_ttest(nested, first)}
    return found


def report(done: Results) -> str:
    lines = ["| data | goal | FedAvg | kept by fit | more than FedAvg (95 %) | best nested, more than FedAvg (95 %) | kept on the seeds |",
             "|---|---|---|---|---|---|---|"]
    for (data, goal), results in groups(done, "data", "goal").items():
        found = summary(results)
        cells = [mean_std(found["FedAvg"]), mean_std(found["kept"])]
        more = [_more(found.get(name)) for name in ("kept more", "nested more")]
        kept = ", ".join(f"{label} ({found['labels'].count(label)})" for label in sorted({*found["labels"]}))
        lines.append(f"| {data} | {goal} | {_short(cells[0])} | {_short(cells[1])} | {more[0]} | {more[1]} | {kept} |")
    return "\n".join(lines)


def _short(found: Any) -> str:
    return f"{found.mean:.3f} ± {found.std:.3f}" if found.seeds > 1 else f"{found.mean:.3f}"


def _more(test: Any) -> str:
    return "–" if test is None else f"{test.mean:+.4f} ({test.low:+.4f} … {test.high:+.4f})"


def record_rows(done: Results) -> list[Row]:
    table = []
    for (data, goal), results in groups(done, "data", "goal").items():
        setting, found = {"data": data, "goal": goal, "rounds": done[0][0]["rounds"]}, summary(results)
        for name in ("FedAvg", "kept", "nested"):
            s = mean_std(found[name])
            table.append(row(name, setting, "test goal", s.mean, s.std, s.seeds))
        for name in ("kept more", "nested more"):
            if name in found:
                table += [row(name, setting, which, getattr(found[name], which), None, len(results)) for which in ("mean", "low", "high")]
        labels = {label for r in results for label, m in r["methods"].items()}
        for label in sorted(labels):
            values = [r["methods"][label]["test"] for r in results if label in r["methods"] and r["methods"][label]["test"] is not None]
            s = mean_std(values)
            table.append(row(label, setting, "test goal of the method", s.mean, s.std, s.seeds))
    return table


def plot(done: Results, path: Path) -> None:
    """What fit keeps, and the best nested method, against FedAvg."""
    cases = [(f"{data.removeprefix('sites/')}, {goal}", summary(results)) for (data, goal), results in groups(done, "data", "goal").items()]
    with figure(path, 1, size=(7.5, 0.32 * len(cases) + 1.2)) as ax:
        for place, (_, found) in enumerate(cases):
            for shift, name, colour, label in ((-0.15, "kept more", "C0", "kept by fit"), (0.15, "nested more", "C1", "best nested")):
                if name in found:
                    t = found[name]
                    ax.errorbar(t.mean, place + shift, xerr=[[t.mean - t.low], [t.high - t.mean]], fmt="o", color=colour,
                                label=label if place == 0 else None)
        ax.axvline(0, color="black", linewidth=0.8)
        ax.set(yticks=range(len(cases)), yticklabels=[name for name, _ in cases], xlabel="more than tuned FedAvg on the goal, test rows")
        ax.invert_yaxis()
        ax.legend()


def main() -> None:
    parser = arguments(__doc__, HERE.name, "scikit-learn's breast cancer, one seed; everything goes to --out")
    known = [name for name in DATA if name != SMALL]
    parser.add_argument("--data", nargs="+", choices=known, default=known, help="with some of them, everything goes to --out")
    args = parser.parse_args()
    some = args.quick or args.data != known
    experiment = Experiment(HERE, args, some)
    experiment.store = args.out / ("quick.jsonl" if args.quick else "trials.jsonl")
    names, seeds, rounds = ([SMALL], 1, 4) if args.quick else (args.data, SEEDS, ROUNDS)
    goals = {name: GOALS[:1] if args.quick else goals_of(name) for name in names}
    done = experiment.study(work, [{"data": name, "goal": goal, "seed": seed, "rounds": rounds}
                                   for seed in range(seeds) for name in names for goal in goals[name]])
    done.sort(key=lambda one: (list(DATA).index(one[0]["data"]), GOALS.index(one[0]["goal"]), one[0]["seed"]))
    print(report(done))
    plot(done, experiment.where / "gains.png")
    experiment.record(record_rows(done))


if __name__ == "__main__":
    main()
