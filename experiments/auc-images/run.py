"""AUC where positives are rare: LocalSCGDAM, CoDA and LocalSGDAM beside cross-entropies, on Fashion-MNIST, CIFAR-10 and medical rows.

    python experiments/auc-images/run.py                      all parts; data in $ROOKERY_DATA
    python experiments/auc-images/run.py --parts published    some of them, see --help
    python experiments/auc-images/run.py --done               tables and plots of what is in --out, no new trials
    python experiments/auc-images/run.py --quick              handwritten digits of 8×8 pixels, few steps, written to --out only

Zhang, Zhang, Yang, Souvenir, Gao, "Federated compositional deep AUC maximization", NeurIPS 2023, Table 1 and Figures 1 to 5.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from auc import FLAT, of_h, tables, work
from common import available
from parts import InParts, Missing, Part, make_parts, part_arguments
from show import MLP, plot, record_rows, report
from tuning import SEEDS as TUNING
from tuning import rounded

from rookery.studies.statistics import best
from rookery.studies.trials import Results, Trial

HERE = Path(__file__).resolve().parent
TABLES = ("mammography", "breast-cancer")
PUBLISHED = ("LocalSCGDAM", "CoDA", "LocalSGDAM", "LocalSGDM_RL", "LocalSGDM")
CORRECTED = ("SCAFFOLD", "FedProx")
OF_H, HALF = ", h", "from ½"
# whose loss has the factor π(1−π), the share of positives being π
SADDLE = ("LocalSCGDAM", f"LocalSCGDAM{OF_H}", "CoDA", "LocalSGDAM", "CODASCA", "FESS-GDA")
PLAIN = [(m, "") for m in ("LocalSGDM", "LocalSGDM_RL", "LocalSGDM, class weights", "LocalSGDM, balanced batches")]
NESTED = [("LocalSCGDAM", HALF), (f"LocalSCGDAM{OF_H}", HALF)]
BEST = [*NESTED, ("CoDA", HALF), ("LocalSGDAM", HALF), *PLAIN]
TUNED = [(m, v) for m in SADDLE[:4] for v in ("", HALF)] + PLAIN
ABLATION = (("LocalSGDAM", "warm"), ("LocalSGDAM", f"warm, {HALF}"), ("LocalSGDAM", HALF), ("LocalSGDAM", ""),
            ("LocalSGDAM", "warm, uniform batches"), ("LocalSGDAM", "warm, no squash"), ("LocalSGDAM", "warm, no momentum"),
            ("LocalSCGDAM", ""), (f"LocalSCGDAM{OF_H}", ""), (f"LocalSCGDAM{OF_H}", HALF),
            ("FeDXL1", "warm"), ("FESS-GDA", "warm"), ("CODASCA", "warm"))
Pair = tuple[str, str]  # method and variant
SETTING = ("data", "share", "method", "variant", "local_steps", "steps")


def settings(data: str, share: float | None, method: str, steps: int, variant: str = "", local_steps: int = 8) -> Trial:
    return {"data": data, "share": share, "method": method, "variant": variant, "local_steps": local_steps, "steps": steps}


def scale(s: Trial) -> float:
    """What step sizes are multiplied with: the minimax losses have the factor π(1−π), heavy balls make ten times the step."""
    if s["method"].startswith("LocalSGDM"):
        return 0.1
    if s["method"] not in SADDLE:
        return 1.0
    share = s["share"] or float(tables(s["data"])[0].fields["labels"].double().mean())
    return 1 / (share * (1 - share))


def actual(trial: Trial) -> Trial:
    """The trial whose result this one's is."""
    return {**trial, "method": trial["method"].removesuffix(OF_H)}


class Study(InParts):
    """How trials are chosen."""

    def __init__(self, args: Namespace, small: bool) -> None:
        super().__init__(HERE, args, small, work)
        self.lrs, self.seeds = ((0.1,), TUNING[:1]) if small else ((0.03, 0.1, 0.3, 1.0), (0, 1, 2))
        self.images, self.rare, self.steps = ("digits", 0.05, 8) if small else ("fashion-mnist", 0.01, 2000)

    def __call__(self, todo: Sequence[Trial], slow: Callable[[Trial], bool] = lambda trial: trial["method"] == "LocalSCGDAM") -> Results:
        """The trials with their results; those of `LocalSCGDAM, h` are LocalSCGDAM's, looked at otherwise."""
        done = super().__call__([actual(trial) for trial in todo], slow)
        return [(trial, of_h(result) if trial["method"].endswith(OF_H) else result) for trial, (_, result) in zip(todo, done, strict=True)]

    def there(self, todo: Sequence[Trial]) -> bool:
        return super().there([actual(trial) for trial in todo])

    def each(self, some: Sequence[Trial], seeds: Sequence[int] = ()) -> Results:
        return super().each(some, seeds or self.seeds)

    def choose(self, some: Sequence[Trial]) -> list[Trial]:
        """The settings with the step sizes of the best AUC on held-out rows, with seeds that no result has.

        A grid whose end is the best one grows there, three times at most. Trials have half the steps, tables all; three seeds, or a single
        one where a trial takes minutes.
        """
        if self.done and len(some) > 1:  # those that can be chosen already
            found = list[Trial]()
            for s in some:
                with suppress(Missing):
                    found += self.choose([s])
            return found
        data = some[0]["data"]
        cheap = data in TABLES or data.endswith(FLAT)
        short, seeds = {tuple(s[key] for key in SETTING): s for s in some}, TUNING if cheap and not self.small else TUNING[:1]
        if data not in TABLES:
            short = {key: {**s, "steps": max(s["steps"] // 2, s["local_steps"])} for key, s in short.items()}
        grids = {key: list(self.lrs) for key in short}
        for _ in range(4):
            grid = self([{**s, "lr": rounded(lr * scale(s)), "seed": seed} for key, s in short.items() for lr in sorted(grids[key])
                         for seed in seeds])
            chosen = best(grid, SETTING, "validation AUC")
            grown = False
            for key, s in short.items():
                found, ends = chosen[tuple(s[k] for k in SETTING)]["lr"], sorted(grids[key])
                for end, further in ((ends[0], ends[0] / 3), (ends[-1], ends[-1] * 3)):
                    if len(self.lrs) > 1 and found == rounded(end * scale(s)) and len(grids[key]) < len(self.lrs) + 3:
                        grids[key].append(further)
                        grown = True
            if not grown:
                break
        return [{**dict(zip(SETTING, key, strict=True)), "lr": chosen[tuple(s[k] for k in SETTING)]["lr"]} for key, s in short.items()]


def named(data: str, table: str) -> str:
    return MLP + table if data.endswith(FLAT) else table


def published(s: Study, data: str, periods: Sequence[int]) -> Part:
    """One step size for the minimax methods and, as a heavy ball multiplies it by ten, a tenth of it for the others; uniform batches."""
    for p in periods:
        some = [settings(data, 0.1, m, s.steps, "" if m.startswith("LocalSGDM") else "uniform batches", p) for m in PUBLISHED]
        yield named(data, f"published, p = {p}"), s.each([{**t, "lr": 0.01 if t["method"].startswith("LocalSGDM") else 0.1} for t in some])


def steps(s: Study, data: str) -> Part:
    """As published, with other step sizes of one method of each kind."""
    some = [(settings(data, 0.1, "LocalSGDAM", s.steps, "uniform batches"), (0.1,) if s.small else (0.1, 1.1, 3.3)),
            (settings(data, 0.1, "LocalSGDM", s.steps), (0.01,) if s.small else (0.001, 0.01, 0.03))]
    yield named(data, "step sizes"), s.each([{**t, "lr": lr} for t, lrs in some for lr in lrs])


def tuned(s: Study, data: str, share: float, *groups: Sequence[Pair]) -> Part:
    """In groups, so that there is something to see before the longest one is done."""
    done: Results = []
    for group in groups:
        done = done + s.each(s.choose([settings(data, share, m, s.steps, v) for m, v in group]))
        done.sort(key=lambda d: TUNED.index((d[0]["method"], d[0]["variant"])))
        yield named(data, f"tuned, {100 * share:g} %"), done


def imbalance(s: Study, data: str, pairs: Sequence[Pair], shares: Sequence[float]) -> Part:
    """The step sizes are those at 10 %, of the loss without its factor."""
    chosen = s.choose([settings(data, 0.1, m, s.steps, v) for m, v in pairs])
    for share in shares:
        others = [{**t, "share": share} for t in chosen]
        yield named(data, f"imbalance, {100 * share:g} %"), s.each([{**o, "lr": rounded(t["lr"] / scale(t) * scale(o))}
                                                                    for t, o in zip(chosen, others, strict=True)])


def ablated(s: Study, data: str, share: float | None) -> Part:
    some = [settings(data, share, m, 24 if s.small else 1000, v) for m, v in ABLATION]
    yield named(data, "ablation") if data.endswith(FLAT) else f"ablation, {data}", s.each(s.choose(some))


def natural(s: Study, data: str) -> Part:
    """Rows whose imbalance is their own."""
    some = [settings(data, None, m, s.steps if s.small else 1000, v) for m, v in (*BEST, *((m, "") for m in CORRECTED))]
    yield f"natural, {data}", s.each(s.choose(some))


def corrected(s: Study, data: str) -> Part:
    yield named(data, "corrected"), s.each(s.choose([settings(data, 0.1, m, s.steps) for m in CORRECTED]))


def small_net(s: Study) -> Part:
    """With a small MLP, which costs a twentieth of the convolutions."""
    data = s.images + FLAT
    for share in (0.1,) if s.small else (0.1, s.rare):
        yield from tuned(s, data, share, TUNED)
    if not s.small:
        yield from published(s, data, (8,))
        yield from steps(s, data)


def small_net_too(s: Study) -> Part:
    data = s.images + FLAT
    if not s.small:
        yield from imbalance(s, data, BEST, (0.05, 0.02, 0.2))
        yield from ablated(s, data, s.rare)
        yield from corrected(s, data)
        yield from published(s, data, (4, 16))


def overtaking(s: Study) -> Part:
    """Where LocalSCGDAM and cross-entropies are close: ten seeds, and step sizes chosen at each share."""
    for share in () if s.small else (0.02, s.rare):
        chosen = s.choose([settings(s.images + FLAT, share, m, s.steps, v) for m, v in (NESTED[0], *PLAIN)])
        yield f"{MLP}ten seeds, {100 * share:g} %", s.each(chosen, range(10))


def tabular(s: Study) -> Part:
    data = "breast-cancer" if s.small else "mammography"
    yield from ablated(s, data, None)
    yield from natural(s, data)


def convolutions(s: Study) -> Part:
    for share in (0.1, s.rare):
        yield from tuned(s, s.images, share, [*PLAIN, BEST[3]], NESTED, [BEST[2]])


def cats(s: Study) -> Part:
    """Step sizes are chosen after a few iterations of one seed, as a trial takes minutes; then equal minutes for all."""
    short, least, minutes = (8, 8, 0.001) if s.small else (64, 200, 3.0)
    some = [settings(s.images if s.small else "cats", 0.1, m, short, v) for m, v in BEST[1:-1]]
    lrs = s.lrs if s.small else (0.01, 0.03, 0.1, 0.3)
    tried = s([{**t, "lr": rounded(lr * scale(t)), "seed": TUNING[0]} for t in some for lr in lrs])
    chosen = best(tried, SETTING, "validation AUC")
    yield "cats", s([{**chosen[tuple(t[key] for key in SETTING)], "steps": 0, "least": least, "minutes": minutes, "seed": 0} for t in some])
    base = next(t for t in some if t["method"] == "LocalSGDAM")  # the same after a warm start, for as many iterations as it had
    yield "cats, warm start", s([{**chosen[tuple(base[key] for key in SETTING)], "variant": f"warm, {HALF}", "steps": 8 if s.small else 488,
                                  "seed": 0}])


PARTS: dict[str, Callable[[Study], Part]] = {
    "published": lambda s: published(s, s.images, (8,)),
    "mlp": small_net,
    "tabular": tabular,
    "mlp-more": small_net_too,
    "overtaking": overtaking,
    "tuned": convolutions,
    "steps": lambda s: steps(s, s.images),
    "periods": lambda s: published(s, s.images, () if s.small else (4, 16)),
    "imbalance": lambda s: imbalance(s, s.images, (NESTED[1], PLAIN[2]), (0.2,) if s.small else (0.05, 0.2)),
    "corrected": lambda s: corrected(s, s.images),
    "medical": lambda s: iter(()) if s.small else natural(s, "pneumoniamnist" + FLAT),
    "cats": cats,
}


def main() -> None:
    args = part_arguments(__doc__, "auc-images", "small digits, few steps; everything goes to --out", list(PARTS)).parse_args()
    data = "digits" if args.quick else available("fashion-mnist", "digits", tables)
    make_parts(Study(args, data == "digits"), PARTS, args, report, record_rows, plot)


if __name__ == "__main__":
    main()
