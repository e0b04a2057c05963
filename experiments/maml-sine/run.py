"""Learning to fit a sinusoid from ten points: federated MAML as a conditional problem, beside what ignores the tasks.

    python experiments/maml-sine/run.py                  all parts
    python experiments/maml-sine/run.py --parts tuned    some of them, see --help
    python experiments/maml-sine/run.py --quick          one seed and few steps, written to --out only

Finn, Abbeel, Levine, "Model-agnostic meta-learning for fast adaptation of deep networks", ICML 2017, section 5.1, with the methods of Wu,
Sun, Hu, Li, Zhang, Huang, "Federated conditional stochastic optimization", NeurIPS 2023, section 5.2.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import rows_of
from parts import Part, make_parts, part_arguments
from show_sine import METRICS, plot, report
from sinusoids import METHODS, SCRATCH, work
from tuning import SEEDS, Tuned

from rookery.studies.trials import Trial

HERE = Path(__file__).resolve().parent
LRS, MOMENTA = (0.003, 0.01, 0.03, 0.1), {"beta": (0.1, 0.5, 0.9), "tracking": (0.1, 0.5, 0.9)}
PERIODS = (1, 25)
SETTING = ("local_steps", "steps", "lr", "beta", "tracking")


class Study(Tuned):
    def __init__(self, *args: object) -> None:
        super().__init__(*args, work, "validation loss", larger=False)  # type: ignore[arg-type]
        self.steps, self.seeds = (5, (0,)) if self.small else (4000, (0, 1, 2, 3, 4))

    def tuned(self) -> list[Trial]:
        some = [settings(method, self.steps) for method in METHODS]
        if self.small:
            lr = self.choose(some[:1], LRS[2:3], {}, SEEDS[:1])[0]["lr"]
            return [{**s, "lr": lr} for s in some]
        return self.choose(some, LRS, MOMENTA, SEEDS[:1], steps=self.steps // 2)


def settings(method: str, steps: int) -> Trial:
    """The entries that a method does not have are None, those that are chosen begin in the middle."""
    momentum = method not in ("FCSG", "Local-SCGD", "FedAvg") and not method.startswith(SCRATCH)
    return {"method": method, "steps": steps, "local_steps": 5, "tasks": 4, "beta": 0.5 if momentum else None,
            "tracking": 0.5 if method.startswith("Local-SCGD") else None}


def tuned(s: Study) -> Part:
    yield "tuned", s.each(s.tuned(), s.seeds)


def periods(s: Study) -> Part:
    """Other numbers of local steps, with what was chosen at five: h is averaged less often, and forgets the average between."""
    some = [t for t in s.tuned() if t["method"] in ("FCSG-M", "Local-SCGDM")]
    for q in () if s.small else PERIODS:
        yield f"local steps, {q}", s.each([{**t, "local_steps": q} for t in some], s.seeds[:3])


PARTS: dict[str, Callable[[Study], Part]] = {"tuned": tuned, "periods": periods}


def main() -> None:
    args = part_arguments(__doc__, HERE.name, "one seed and few steps; everything goes to --out", list(PARTS)).parse_args()
    make_parts(Study(HERE, args, args.quick), PARTS, args, report, lambda compared: rows_of(compared, METRICS, SETTING), plot)


if __name__ == "__main__":
    main()
