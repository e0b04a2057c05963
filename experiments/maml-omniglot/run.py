"""Few-shot tasks of handwritten characters: FCSG, FCSG-M and Acc-FCSG-M beside Local-SCGD and Local-SCGDM.

    python experiments/maml-omniglot/run.py                   all parts, hours; data in $ROOKERY_DATA
    python experiments/maml-omniglot/run.py --parts 1-shot    some of them, see --help
    python experiments/maml-omniglot/run.py --quick           scikit-learn's digits, few steps, written to --out only

Wu, Sun, Hu, Li, Zhang, Huang, "Federated conditional stochastic optimization", NeurIPS 2023, Figures 2 and 3.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import available, rows_of
from fewshot import METHODS, parts, work
from parts import Part, make_parts, part_arguments
from show_fewshot import METRICS, plot, report
from tuning import SEEDS, Tuned

from rookery.studies.trials import Trial

HERE = Path(__file__).resolve().parent
LRS, MOMENTA = (0.01, 0.05, 0.1), {"beta": (0.1, 0.5, 0.9), "tracking": (0.1, 0.5, 0.9)}  # the paper's
SHORT = 10  # how many times shorter a trial is that chooses
LENGTHS = {1: 800, 5: 400}  # iterations by shots: what two cores do in four hours
NARROW, LONG = 16, 1000  # filters of a net that costs a quarter, and its iterations
SETTING = ("data", "filters", "shots", "local_steps", "steps", "lr", "beta", "tracking")


class Study(Tuned):
    def __init__(self, data: str, *args: object) -> None:
        self.data = data
        # trials keep their checkpoints beside the store
        kept = args[1].out / "checkpoints"  # type: ignore[attr-defined]
        super().__init__(*args, partial(work, kept), "validation accuracy", larger=True)  # type: ignore[arg-type]

    def tuned(self, filters: int = 64, steps: int = LENGTHS[1]) -> list[Trial]:
        """Chosen at one shot, in short runs; the lr's grid may grow twice beyond the paper's."""
        if self.small:
            return [{**settings(self.data, 8, method, 4, 2), "lr": 0.05, "local_steps": 2} for method in METHODS]
        some = [settings(self.data, filters, method, steps, 20) for method in METHODS]
        return self.choose(some, LRS, MOMENTA, SEEDS[:1], growth=2, steps=steps // SHORT, points=0)


def settings(data: str, filters: int, method: str, steps: int, points: int) -> Trial:
    """The entries that a method does not have are None, those that are chosen begin in the middle; `points` of a curve."""
    return {"data": data, "filters": filters, "shots": 1, "method": method, "steps": steps, "local_steps": 5, "points": points,
            "beta": 0.5 if method in ("FCSG-M", "Acc-FCSG-M", "Local-SCGDM") else None,
            "tracking": 0.5 if method.startswith("Local") else None}


def one_shot(s: Study) -> Part:
    yield "5-way 1-shot", s.each(s.tuned(), (0,))


def five_shots(s: Study) -> Part:
    """With what was chosen at one shot."""
    steps, points = (4, 2) if s.small else (LENGTHS[5], 10)
    yield "5-way 5-shot", s.each([{**t, "shots": 5, "steps": steps, "points": points} for t in s.tuned()], (0,))


def again(s: Study) -> Part:
    """Two more seeds of one shot, where there is time."""
    if not s.small:
        yield "5-way 1-shot", s.each(s.tuned(), (0, 1, 2))


def narrow(s: Study) -> Part:
    """A smaller net for longer, tuned by itself, with three seeds."""
    if not s.small:
        yield f"5-way 1-shot, {NARROW} filters", s.each(s.tuned(NARROW, LONG), (0, 1, 2))


PARTS: dict[str, Callable[[Study], Part]] = {"1-shot": one_shot, "5-shot": five_shots, "more-seeds": again, "narrow": narrow}


def main() -> None:
    args = part_arguments(__doc__, HERE.name, "small digits, few steps; everything goes to --out", list(PARTS), default=2).parse_args()
    data = "digits" if args.quick else available("omniglot", "digits", parts)
    make_parts(Study(data, HERE, args, data == "digits"), PARTS, args, report, lambda compared: rows_of(compared, METRICS, SETTING), plot,
               default=2)


if __name__ == "__main__":
    main()
