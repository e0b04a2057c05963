"""Personal models at clients with few classes each: a start that is learned to be adapted, beside FedAvg with fine-tuning.

    python experiments/personalised/run.py                all parts; data in $ROOKERY_DATA
    python experiments/personalised/run.py --parts two    some of them, see --help
    python experiments/personalised/run.py --quick        scikit-learn's digits, few steps, written to --out only

Fallah, Mokhtari, Ozdaglar, "Personalized federated learning with theoretical guarantees: a model-agnostic meta-learning approach", NeurIPS
2020, with the methods of Wu, Sun, Hu, Li, Zhang, Huang, "Federated conditional stochastic optimization", NeurIPS 2023.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import available
from parts import Part, make_parts, part_arguments
from shards import ALONE, COMMON, METHODS, TUNED, tables, work
from show_personal import plot, record_rows, report
from tuning import SEEDS, Tuned

from rookery.studies.trials import Trial

HERE = Path(__file__).resolve().parent
LRS = (0.03, 0.1, 0.3)
THEN = {"inner_lr": (0.03, 0.1, 0.3), "beta": (0.1, 0.5, 0.9)}


class Study(Tuned):
    def __init__(self, data: str, *args: object) -> None:
        super().__init__(*args, work, "validation accuracy", larger=True)  # type: ignore[arg-type]
        self.data = data
        self.steps, self.seeds = (10, (0, 1)) if self.small else (800, (0, 1, 2, 3, 4))

    def tuned(self, shards: int) -> list[Trial]:
        """Chosen in runs half as long as those that count."""
        some = [settings(self.data, shards, method, self.steps, 2 if self.small else 20) for method in METHODS]
        if self.small:
            return [{**s, "lr": 0.1} for s in some]
        return self.choose(some, LRS, THEN, SEEDS[:1], steps=self.steps // 2, points=0)


def settings(data: str, shards: int, method: str, steps: int, points: int) -> Trial:
    """The entries that a method does not have are None, those that are chosen begin in the middle; `points` of a curve."""
    return {"data": data, "shards": shards, "method": method, "steps": steps, "local_steps": 5, "points": points,
            "inner_lr": None if method in (COMMON, TUNED, ALONE) else 0.1, "beta": 0.5 if "-M" in method else None}


def of_shards(s: Study, shards: int) -> Part:
    yield f"{shards} classes a client", s.each(s.tuned(shards), s.seeds)


PARTS: dict[str, Callable[[Study], Part]] = {
    "two": lambda s: of_shards(s, 2),
    "four": lambda s: iter(()) if s.small else of_shards(s, 4),
}


def main() -> None:
    args = part_arguments(__doc__, HERE.name, "small digits, few steps; everything goes to --out", list(PARTS)).parse_args()
    data = "digits" if args.quick else available("fashion-mnist", "digits", tables)
    make_parts(Study(data, HERE, args, data == "digits"), PARTS, args, report, record_rows, plot)


if __name__ == "__main__":
    main()
