"""Two methods on scikit-learn's digits, at sites that are alike and at sites with two digits each: an experiment to copy.

    python experiments/template/run.py            both splits, three seeds, the plot, results.json; seconds
    python experiments/template/run.py --quick    one seed and few rounds, written to --out only

Karimireddy et al., "SCAFFOLD: Stochastic controlled averaging for federated learning", ICML 2020.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import Experiment, arguments, band, figure, percent, run_to_end, timed

from rookery import SCAFFOLD, Data, FedAvg, Federation, Model
from rookery.data import iid, label_shards, load
from rookery.models import logistic
from rookery.objectives import cross_entropy
from rookery.studies.statistics import groups, rows
from rookery.studies.trials import Result, Results, Trial, trials

HERE = Path(__file__).resolve().parent
SITES, LOCAL_STEPS, BATCH, LR = 10, 20, 16, 0.1
METHODS: dict[str, Any] = {"FedAvg": FedAvg, "SCAFFOLD": SCAFFOLD}
SPLITS = ("iid", "two digits a site")
METRICS = ("test accuracy", "exchanges", "bytes")


@timed
def work(trial: Trial) -> Result:
    """One trial: a function of a JSON object at the top of a module, so that other processes can call it, and a JSON object again."""
    train, test = load("digits")
    labels, seed = train.fields["labels"], trial["seed"]
    site = iid(len(train), SITES, seed) if trial["split"] == "iid" else label_shards(labels, SITES, 2, seed)
    net = Model(logistic(64, 10))
    fed = Federation(cross_entropy(net), Data.by_site(train.fields, site), seed=seed)
    algorithm = METHODS[trial["method"]](LR, LOCAL_STEPS, BATCH)

    def measure(state: Any) -> dict[str, float]:
        guesses = net.predict(state.x, test.fields["inputs"]).argmax(1)
        return {"test accuracy": float((guesses == test.fields["labels"]).double().mean())}

    done = run_to_end(algorithm, fed, algorithm.init(fed, torch.zeros(net.size)), trial["rounds"], measure)
    return {**done.history[-1], "curve": done.column("test accuracy")}


def report(done: Results) -> str:
    lines = ["| split | method | test accuracy, % |", "|---|---|---|"]
    return "\n".join(lines + [f"| {split} | {method} | {percent([r['test accuracy'] for r in found])} |"
                              for (split, method), found in groups(done, "split", "method").items()])


def plot(done: Results, path: Path) -> None:
    with figure(path, len(SPLITS), sharey=True) as axes:
        for ax, split in zip(axes, SPLITS, strict=True):
            for number, ((method,), found) in enumerate(groups([d for d in done if d[0]["split"] == split], "method").items()):
                band(ax, range(len(found[0]["curve"])), [r["curve"] for r in found], number, method)
            ax.set(title=split, xlabel="round", ylim=(0.8, 1.0))
        axes[0].set_ylabel("test accuracy")
        axes[0].legend()


def main() -> None:
    args = arguments(__doc__, "template", "one seed and five rounds; everything goes to --out").parse_args()
    experiment = Experiment(HERE, args, args.quick)
    seeds, rounds = (1, 5) if args.quick else (3, 40)
    done = experiment.study(work, trials(split=SPLITS, method=METHODS, rounds=(rounds,), seed=range(seeds)))
    print(report(done))
    plot(done, experiment.where / "accuracy.png")
    experiment.record(rows(done, METRICS, setting=("split", "rounds")))


if __name__ == "__main__":
    main()
