"""Sites that adapt the model to their own rows: the section [personal], and what it adds to a run's scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..errors import AlgorithmError, ConfigError, Diverged, NonFinite
from ..federation.federation import Federation
from ..federation.ledger import Ledger
from ..federation.placed import Placed
from ..metrics.personal import Adaptation
from ..problems.kinds import Minimization
from ..training.result import Metrics
from .evaluation import Evaluation


@dataclass(frozen=True)
class PersonalSection:
    """[personal] every site adapts the model to its own training rows, by `steps` of plain gradient descent, and is scored then.

    The history has these scores as `adapted accuracy` and so on, and the page compares each site's adapted model with the common one and
    with one that the site trains alone from the first weights, by `alone_steps`.

    steps:       the steps by which a site adapts; where it is left out, 3 where the objective learns a start (maml), and none else
    lr:          the size of a step as a site adapts; where it is left out, the objective's own where it has one, and else 0.1
    batch:       the rows of a step as a site adapts; all of a site's where it is left out
    alone_steps: the steps by which a site trains alone
    alone_lr:    the size of a step as a site trains alone
    alone_batch: the rows of a step as a site trains alone
    """

    steps: int | None = None
    lr: float | None = None
    batch: int | None = None
    alone_steps: int = 500
    alone_lr: float = 0.1
    alone_batch: int | None = 32

    def __post_init__(self) -> None:
        if self.lr is not None and self.steps is None:
            raise ConfigError(f"lr is the size of a site's steps, whose number is not said: write steps = 3 beside lr = {self.lr}")
        try:
            self.adaptation(self.lr)
            Adaptation(self.alone_lr, self.alone_steps, self.alone_batch)
        except AlgorithmError as error:
            raise ConfigError(str(error)) from None

    def adaptation(self, declared_lr: float | None) -> Adaptation | None:
        """How sites adapt, None where they do not; the objective's own step size where it learns a start."""
        steps = (0 if declared_lr is None else 3) if self.steps is None else self.steps
        return Adaptation(self.lr or declared_lr or 0.1, steps, self.batch) if steps else None


@dataclass(frozen=True)
class Personal:
    """The sites with plain cross-entropy, how each of them adapts a model, and how it trains one alone from the first weights.

    What it sends is booked in the ledger that it is given. Draws are the same every time, in a resumed run too.
    """

    fed: Federation[Minimization]
    how: Adaptation
    alone: Adaptation
    start: Tensor

    def adapted(self, vector: Tensor) -> Placed:
        """Every site's own model, which stays there."""
        return self._of(self.how, vector)

    def scores(self, evaluation: Evaluation, vector: Tensor, split: str, ledger: Ledger) -> Metrics:
        """Scores of the sites' rows, each by the model that its site has adapted."""
        try:
            found = evaluation.at_clients(self.fed, self.adapted(vector), split)
        except (Diverged, NonFinite) as error:
            raise Diverged(f"sites that adapt the model by {self.how.steps} steps of {self.how.lr:g} come to models that are not finite: "
                           f"lower personal.lr, or the objective's own step size ({error})") from None
        ledger.absorb(self.fed.ledger)
        return {f"adapted {name}": value for name, value in found.items()}

    def by_site(self, evaluation: Evaluation, vector: Tensor, split: str, ledger: Ledger) -> list[dict[str, Any]]:
        """Every site's scores of its adapted model and of the one that it trained alone; nothing where only sums leave the sites."""
        rows: list[dict[str, Any]] = [{} for _ in self.fed.data.names]
        if self.fed.only_sums:
            return rows
        for title, own in (("adapted", self.adapted(vector)), ("alone", self._of(self.alone, self.start))):
            for row, scores in zip(rows, evaluation.site_scores(self.fed, own, split), strict=True):
                row |= {f"{title} {name}": value for name, value in scores.items()}
        ledger.absorb(self.fed.ledger)
        return rows

    def _of(self, how: Adaptation, vector: Tensor) -> Placed:
        self.fed.counters = dict.fromkeys(self.fed.counters, 0)
        return how.of(self.fed, vector)
