"""Average precision where positives are rare: FCSG, FCSG-M, Acc-FCSG-M and SOAP beside cross-entropies and CODA+.

    python experiments/auprc/run.py                      all parts; MNIST, CIFAR-10 and w8a in $ROOKERY_DATA
    python experiments/auprc/run.py --parts published    some of them, see --help
    python experiments/auprc/run.py --done               tables and plots of what is in --out, no new trials
    python experiments/auprc/run.py --quick              handwritten digits of 8×8 pixels, few steps, written to --out only

Wu, Sun, Hu, Li, Zhang, Huang, "Federated conditional stochastic optimization", NeurIPS 2023, Table 2.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import available
from parts import InParts, Missing, Part, make_parts, part_arguments
from precision import FLAT, METHODS, settings_of, tables, work
from precision_show import plot, record_rows, report
from tuning import SEEDS as TUNING
from tuning import rounded

from rookery.studies.statistics import best
from rookery.studies.trials import Results, Trial

HERE = Path(__file__).resolve().parent
SETTING = ("data", "split", "weights", "method", "variant", "inner", "steps")
LOGITS, UNIFORM, MARGIN, REWEIGHTED, ONE = "logits", "uniform rows", "margin 1", "reweighted", "one batch"
PLAIN, CONDITIONAL = METHODS[:3], METHODS[4:]
# as the authors have it: logits in CODA+, which has one stage, and outer samples that are among the inner ones
PUBLISHED = [*((m, "") for m in PLAIN), ("CODA+", f"{LOGITS}, one stage"), *((m, ONE) for m in CONDITIONAL)]
TUNED = [*((m, "") for m in PLAIN), ("CODA+", ""), ("CODA+", LOGITS), *((m, ONE) for m in CONDITIONAL)]
OWN = [(m, "") for m in CONDITIONAL]
LONGER = [("FedAvg", ""), ("FedAvg, stratified", ""), ("FCSG", ONE), ("FCSG-M", ONE)]
INNER = [("FCSG", UNIFORM), ("FCSG-M", f"{UNIFORM}, β = 0.1")]
STEPS = (0.01, 0.03, 0.1, 0.3)


def settings(data: str, method: str, steps: int, variant: str = "", split: str = "iid", weights: str = "equal", inner: int = 0) -> Trial:
    return {"data": data, "split": split, "weights": weights, "method": method, "variant": variant,
            "inner": inner or settings_of(data).batch, "steps": steps}


def scale(s: Trial) -> float:
    """What step sizes are multiplied with: the minimax loss has the factor π(1−π), where the share of positives is π."""
    if s["method"] != "CODA+":
        return 1.0
    share = float(tables(s["data"])[0].fields["labels"].double().mean()) if s["data"] == "w8a" else 1 / 6
    return 1 / (share * (1 - share))


class Study(InParts):
    """How trials are chosen."""

    def __init__(self, args: Namespace, small: bool) -> None:
        super().__init__(HERE, args, small, work)
        self.lrs, self.seeds, self.tuning = ((0.1,), TUNING[:1], TUNING[:1]) if small else (STEPS, tuple(range(args.seeds)), TUNING[:2])
        self.net, self.flat, self.steps = ("digits" + FLAT, "digits" + FLAT, 10) if small else ("mnist", "mnist" + FLAT, 300)

    def __call__(self, todo: Sequence[Trial], slow: Callable[[Trial], bool] = lambda trial: trial["method"] == "Acc-FCSG-M") -> Results:
        return super().__call__(todo, slow)

    def each(self, some: Sequence[Trial], seeds: Sequence[int] = ()) -> Results:
        return super().each(some, self.seeds if self.small or not seeds else seeds)

    def choose(self, some: Sequence[Trial], lrs: Sequence[float] | None = None, shorter: int = 1, seeds: int = 2) -> list[Trial]:
        """The settings with the step sizes of the best AP on held-out rows, with seeds that no result has.

        A grid whose end is the best one grows there, twice at most. Trials of grids have a part of the steps where all of them are dear.
        """
        if self.done and len(some) > 1:  # those that can be chosen already
            found = list[Trial]()
            for s in some:
                with suppress(Missing):
                    found += self.choose([s], lrs, shorter, seeds)
            return found
        first = self.lrs if lrs is None or self.small else lrs
        short = [{**s, "steps": s["steps"] if self.small else s["steps"] // shorter} for s in some]
        grids = [list(first) for _ in short]
        for _ in range(3):
            done = self([{**s, "lr": rounded(lr * scale(s)), "seed": seed} for s, grid in zip(short, grids, strict=True)
                         for lr in sorted(grid) for seed in self.tuning[:seeds]])
            chosen = [best([d for d in done if all(d[0][k] == s[k] for k in SETTING)], (), "validation AP")[()]["lr"] for s in short]
            grown = False
            for s, grid, lr in zip(short, grids, chosen, strict=True):
                ends = sorted(grid)
                for end, further in ((ends[0], ends[0] / 3), (ends[-1], ends[-1] * 3)):
                    if len(first) > 1 and lr == rounded(end * scale(s)) and len(grid) < len(first) + 2:
                        grid.append(further)
                        grown = True
            if not grown:
                break
        return [{**s, "lr": lr} for s, lr in zip(some, chosen, strict=True)]


def published(s: Study, data: str, pairs: Sequence[tuple[str, str]]) -> Part:
    """One step size for all, 0.01, nothing tuned; one seed first, as LeNet takes a minute a trial."""
    some = [{**settings(data, m, s.steps, v), "lr": 0.01} for m, v in pairs]
    for seeds in (s.seeds[:1], s.seeds) if data == "mnist" else (s.seeds,):
        yield f"published, {data}", s.each(some, seeds)


def tuned(s: Study) -> Part:
    """In groups, so that there is something to see before the longest one is done."""
    done: Results = []
    for group in (TUNED[:5], TUNED[5:], OWN):
        done = done + s.each(s.choose([settings(s.flat, m, s.steps, v) for m, v in group]))
        yield f"tuned, {s.flat}", done


def inner(s: Study) -> Part:
    """Inner batches of several sizes, of rows that are drawn uniformly, at the published step size and at those chosen for 20."""
    sizes = (5, 20) if s.small else (5, 10, 20, 40, 80, 160)
    one = {**settings(s.flat, *INNER[0][:1], s.steps, INNER[0][1]), "lr": 0.01}
    for name, some in (("inner, published", [one]), ("inner, tuned", s.choose([settings(s.flat, m, s.steps, v) for m, v in INNER]))):
        yield name, s.each([{**t, "inner": m} for t in some for m in sizes])


def steps(s: Study) -> Part:
    """The step size alone, for one method of each kind; and the margin alone."""
    pairs, lrs = (("FedAvg", ""), ("FCSG", ONE)), (0.01,) if s.small else STEPS
    for data, seeds in ((s.flat, s.seeds),) if s.small else ((s.flat, s.seeds), (s.net, s.seeds[:1])):
        some = [{**settings(data, m, s.steps, v), "lr": lr} for m, v in pairs for lr in lrs]
        yield f"step sizes, {data}", s.each(some, seeds)
    # both margins at the step size that was chosen for 0.1, and 1 at its own
    own = s.choose([settings(s.flat, m, s.steps) for m in ("FCSG", "FCSG-M")])
    other = s.choose([{**t, "variant": MARGIN} for t in own])
    some = [t for a, b in zip(own, other, strict=False) for t in (a, {**a, "variant": MARGIN}, b)]
    yield "margins", s.each([t for i, t in enumerate(some) if t not in some[:i]])


def natural(s: Study) -> Part:
    """Rows whose imbalance is their own."""
    data = s.flat if s.small else "w8a"
    some = [settings(data, m, s.steps if s.small else 1000, v) for m, v in (*TUNED, ("FCSG", ""), ("FCSG", REWEIGHTED))]
    yield f"natural, {data}", s.each(s.choose(some, (0.03, 0.1, 0.3, 1.0), 2))


def longer(s: Study) -> Part:
    """Five times as many iterations, at the published step size and at those that were chosen for 300."""
    at, factors = [settings(s.flat, m, s.steps, v) for m, v in (LONGER[::2] if s.small else LONGER)], (1, 2) if s.small else (1, 5)
    for name, some in (("longer, published", [{**t, "lr": 0.01} for t in at]), ("longer, tuned", s.choose(at))):
        yield name, s.each([{**t, "steps": s.steps * times} for t in some for times in factors])


def heterogeneous(s: Study) -> Part:
    """Two of the ten classes at each client, so that most clients have no positives."""
    pairs = [("FedAvg", "samples"), ("FedAvg, class weights", "samples"),
             *((m, weights) for m in ("FCSG", "FCSG-M") for weights in ("equal", "positives"))]
    pairs = pairs[-2:] if s.small else pairs
    yield "weights", s.each(s.choose([settings(s.flat, m, s.steps, split="shards", weights=w) for m, w in pairs]))


def tuned_lenet(s: Study) -> Part:
    """Convolutions are dear: grids of three, a third of the iterations, one seed for grid and result."""
    if not s.small:
        done: Results = []
        for pair in sorted(TUNED, key=lambda pair: pair not in (TUNED[0], ("FCSG", ONE))):
            some = s.choose([settings(s.net, pair[0], s.steps, pair[1])], (0.03, 0.1, 0.3), 3, 1)
            done = done + s.each(some, s.seeds[:1])
            yield f"tuned, {s.net}", done


def cifar(s: Study) -> Part:
    """As long as in the authors' code, one seed."""
    if not s.small:
        yield "published, cifar10", s.each([{**settings("cifar10", m, 2000, v), "lr": 0.01} for m, v in PUBLISHED], s.seeds[:1])


def cifar_causes(s: Study) -> Part:
    """What could lie behind that table, each by itself: the momentum of Acc-FCSG-M, and the step size; one seed."""
    if not s.small:
        acc = [{**settings("cifar10", "Acc-FCSG-M", 2000, v), "lr": 0.01} for v in (ONE, f"{ONE}, β = 0.9")]
        yield "momentum, cifar10", s.each(acc, s.seeds[:1])
        some = [settings("cifar10", m, 2000, v) for m, v in (*((m, "") for m in PLAIN), ("FCSG", ONE))]
        yield "step sizes, cifar10", s.each([{**t, "lr": lr} for t in some for lr in (0.01, 0.1)], s.seeds[:1])


PARTS: dict[str, Callable[[Study], Part]] = {
    "published-mlp": lambda s: published(s, s.flat, (*PUBLISHED, *OWN)),
    "published": lambda s: iter(()) if s.small else published(s, s.net, (*PUBLISHED, OWN[0])),
    "tuned": tuned,
    "inner": inner,
    "steps": steps,
    "natural": natural,
    "longer": longer,
    "weights": heterogeneous,
    "tuned-lenet": tuned_lenet,
    "cifar": cifar,
    "cifar-causes": cifar_causes,
}


def main() -> None:
    parser = part_arguments(__doc__, "auprc", "small digits, few steps; everything goes to --out", list(PARTS))
    parser.add_argument("--seeds", type=int, default=3, help="seeds of results")
    args = parser.parse_args()
    data = "digits" if args.quick else available("mnist", "digits", lambda name: tables(name + FLAT))
    make_parts(Study(args, data == "digits"), PARTS, args, report, record_rows, plot, "" if args.seeds == 3 else f" --seeds {args.seeds}")


if __name__ == "__main__":
    main()
