"""A run to be made from a description: where it starts, its stages, its scores, and what it leaves in its folder."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from ..data import Data
from ..data.readers import Table
from ..errors import ConfigError, Diverged, WriteError
from ..federation.federation import Federation
from ..federation.oracles import Client
from ..federation.program import Program
from ..objectives.given import Given
from ..problems.base import Problem
from ..problems.kinds import Bilevel, Compositional, Conditional, Minimax, Minimization
from ..problems.model import Model
from ..training.files import append, held, write_whole
from ..training.loop import run_stages
from ..training.result import COUNTS, Callback, Metrics, OnProgress, Run
from ..training.stage import Stage
from .description import Description
from .evaluation import Evaluation, settle
from .folder import claim, what_is_kept
from .forecast import Forecast, forecast
from .leaving import leave
from .modules import call
from .personal import Personal
from .scores import PLAIN, RANKING, row_scores


@dataclass(frozen=True)
class _InnerValue(Program):
    """The client function that says what a composition's inner value is at the start, for its bilevel form."""

    def at(self, c: Client, x: Tensor) -> Tensor:
        assert isinstance(c.problem, Bilevel)
        # ∇y ½‖y − g(x)‖² at y = 0, of whatever length g has
        return -c.evaluate(c.problem.oracle("g_y"), x, x.new_zeros(()), c.draw())


def number_tested(data: Data, test: Table) -> int:
    """How many test rows there are, at the server or at the sites."""
    rows = data.splits.get("test")
    return len(test) if rows is None else int(rows.sizes.sum())


@dataclass(frozen=True)
class Job:
    """A run to be made: the federation, whose sites have validation rows and perhaps test rows, what the objective is given, test rows."""

    description: Description
    fed: Federation[Problem]
    warm_up: Federation[Minimization] | None  # the same sites with the problem of the warm-up, where there is one
    given: Given
    test: Table  # at the server, or in a simulation what the sites have of them
    personal: Personal | None = None  # where sites adapt the model to their own rows
    notes: tuple[str, ...] = ()  # what there is to say about the rows before anything is trained
    made_up: Callable[[], Job] | None = None  # where real sites have the rows: the same on rows that are made up

    @property
    def model(self) -> Model:
        return self.given.model

    @property
    def held(self) -> Data:
        """The sites' validation rows."""
        held = self.fed.data.split("validation")
        assert held is not None
        return held

    @property
    def tested(self) -> int:
        return number_tested(self.fed.data, self.test)

    @property
    def stages(self) -> list[Stage]:
        """The warm-up, if there is one, and the algorithm on the objective."""
        config, first, left = self.description, list[Stage](), self.description.run.rounds
        if self.warm_up is not None:
            first.append(Stage(config.warm_up.algorithm, self.warm_up, config.warm_up.rounds, self._warm_up_state,
                               lambda state: self._both(state.x, self.warm_up), "in the warm-up"))
            left -= config.warm_up.rounds
        return [*first, Stage(config.algorithm, self.fed, left, self.initial_state, self.scores)]

    def _warm_up_state(self, before: Any) -> Any:
        assert self.warm_up is not None
        self.warm_up.prepare(self.given.vector)
        return self.description.warm_up.algorithm.init(self.warm_up, self.given.vector)

    def initial_state(self, warm: Any = None) -> Any:
        """The algorithm's first state, from the last one of the warm-up, or else from the model's own parameters."""
        self._refuse_unreduced()
        return self.description.algorithm.init(self.fed, *self.start(self.fed, None if warm is None else warm.x))

    def _refuse_unreduced(self) -> None:
        """Where the objective fits the algorithm in another form only, say which one."""
        kind, wanted = type(self.fed.problem), self.description.algorithm.solves
        ways = {"bilevel": (Bilevel, (Minimax, Compositional, Minimization)), "compositional": (Compositional, (Conditional,))}
        for reduce, (to, of) in ways.items():
            if issubclass(to, wanted) and not issubclass(kind, wanted) and issubclass(kind, of):
                raise ConfigError(f"{self.algorithm_name} solves {wanted.__name__} problems, and {self.description.objective.name} is a "
                                  f"{kind.__name__}: write reduce = \"{reduce}\" in [objective], or take another algorithm")

    def start(self, fed: Federation[Problem], vector: Tensor | None = None) -> tuple[Tensor, ...]:
        """Where the algorithm's variables start, from a vector of the model's parameters; the sites agree on the problem's constants."""
        given = self.given if vector is None else replace(self.given, vector=vector)
        x, y = self.description.objective.start(given)
        fed.prepare(x)
        if y is None and isinstance(fed.problem, Bilevel) and fed.problem.inverse == "identity":
            with fed.phase("setup"):
                y = fed.mean(fed.map(_InnerValue().at, fed.broadcast(x)))
        second = {"y", "p"} & inspect.signature(self.description.algorithm.init).parameters.keys()
        return (x, y) if second and y is not None else (x,)

    def forecast(self) -> Forecast | None:
        """What training will send, the warm-up with it, which sends the model down and up once a round; None where it fails when tried."""
        if self.made_up is not None:
            with suppress(Exception):  # an objective of one's own may ask more of rows than those that are made up have
                return self.made_up().forecast()
            return None
        before, fed = self.description.warm_up.rounds, self.fed
        found = forecast(self.description.algorithm, fed, self.start, rounds=self.description.run.rounds - before)
        sent = before * (fed.clients_per_round or fed.population) * self.given.vector.nbytes
        return found and replace(found, exchanges=found.exchanges + before, up=found.up + sent, down=found.down + sent)

    def scores(self, state: Any) -> Metrics:
        """Scores on the sites' validation rows and on the test rows, and what the objective reports of the federation."""
        objective, found = self.description.objective, self._both(self.parameters(state), self.fed)
        if objective.declared.report is not None and objective.reduce is None:
            found |= objective.declared.report(self.fed, state.x, getattr(state, "y", None))
        return found

    @property
    def metrics(self) -> list[str]:
        """What an evaluation tells of validation and of test rows; AUC and AP only where it has rows of both classes."""
        ranking = RANKING[: 2 if self.description.run.max_fpr is None else 3] if len(self.test.classes) == 2 else ()
        own = [*PLAIN, *ranking, *self.description.objective.declared.metrics, *(metric.name for metric in self.description.metrics)]
        return own if self.personal is None else [*own, *(f"adapted {name}" for name in own)]

    @cached_property
    def evaluation(self) -> Evaluation:
        entries = self.description.objective.entries
        counts = self.description.objective.declared.counts
        groups = self.given.count(entries["field"]) if counts is not None and "field" in entries else None
        return Evaluation(self.description.objective, self.description.metrics, len(self.test.classes), groups,
                          self.description.run.max_fpr)

    def parameters(self, state: Any) -> Tensor:
        """The model's parameters in a state."""
        return self.description.objective.declared.trained_parameters(state.x, getattr(state, "y", None), self.model.size)

    def _vector(self, result: Run) -> Tensor:
        """The model's parameters that a run came to."""
        if result.state is None:
            return self.given.vector
        if result.stage < len(self.stages) - 1:
            warm: Tensor = result.state.x
            return warm
        return self.parameters(result.state if result.output is None else result.state._replace(x=result.output))

    def predict(self, vector: Tensor, inputs: Tensor) -> Tensor:
        """The model's outputs, computed where the model is, and brought to where scores are computed."""
        outputs: Tensor = call(self.model.predict, "[model]", vector, inputs.to(vector.device))
        if outputs.shape != (len(inputs), len(self.test.classes)):
            raise ConfigError(f"[model]: the net must put out a score for each of the {len(self.test.classes)} classes in every row; its "
                              f"output for {len(inputs)} rows has shape {tuple(outputs.shape)}")
        return outputs.cpu()

    def _both(self, vector: Tensor, fed: Federation[Any] | None) -> Metrics:
        """Scores of the sites' rows, merged from what each of them sends, and of the server's own."""
        assert fed is not None
        settle(fed, self.model, vector, self.description.algorithm)
        found: Metrics = {}
        for split in fed.data.splits:
            found |= {f"{split} {name}": value for name, value in self.evaluation.at_clients(fed, vector, split).items()}
            found |= {f"{split} {name} exact": value for name, value in self._exact(vector, fed.data.split(split)).items()}
            if self.personal is not None:
                own = self.personal.scores(self.evaluation, vector, split, fed.ledger)
                found |= {f"{split} {name}": value for name, value in own.items()}
        if "test" not in fed.data.splits:
            fields = self.test.fields
            found |= {f"test {name}": value
                      for name, value in self.evaluation.of_rows(self.predict(vector, fields["inputs"]), fields, "test").items()}
        return found

    def _exact(self, vector: Tensor, rows: Data | None) -> Metrics:
        """What a simulation can tell beside it: the AUC and the AP of all sites' rows together."""
        if rows is None or not rows.fields or len(self.test.classes) != 2:
            return {}
        scores = row_scores(self.predict(vector, rows.fields["inputs"]), rows.fields["labels"].cpu(), self.description.run.max_fpr)
        return {name: scores[name] for name in RANKING if name in scores}

    def run(self, folder: Path | None, label: str, resume: bool = False, minutes: float | None = None, callbacks: Sequence[Callback] = (),
            about: dict[str, Any] | None = None, bundle: bool = False, on_progress: OnProgress | None = None) -> Run:
        """Train, and leave in the folder, if there is one, what a report is made of: history, test predictions and `about.json`.

        bundle: leave the model too, with all that using it takes
        on_progress: as of `rookery.training.run`
        """
        section, warm_up = self.description.run, self.description.warm_up
        if warm_up.rounds > section.rounds:
            raise ConfigError(f"warm_up.rounds is {warm_up.rounds}, but the run has {section.rounds} rounds in all: raise run.rounds")
        objective = self.description.objective
        if section.output == "uniform" and objective.declared.trained != "x":
            raise ConfigError(f"run.output = \"uniform\" keeps x alone, and {objective.name} trains the model in y: write \"last\"")
        if folder is None:
            return self._train(None, resume, minutes, callbacks, on_progress)
        with held(folder):
            claim(folder, self.description, resume)
            try:
                result = self._train(folder, resume, minutes, callbacks, on_progress)
                leave(self, folder, label, result, self._vector(result), about or {}, bundle)
            except WriteError as error:
                raise WriteError(f"{error}; {what_is_kept(folder)}") from None
        return result

    def _train(self, folder: Path | None, resume: bool, minutes: float | None, callbacks: Sequence[Callback],
               on_progress: OnProgress | None) -> Run:
        section, stages = self.description.run, self.stages
        result = run_stages(stages, section.every, folder=folder, resume=resume, save_every=section.save_every,
                            minutes=section.minutes if minutes is None else minutes, callbacks=callbacks, on_progress=on_progress,
                            output=section.output, loss="validation loss")
        if result.stage < len(stages) - 1:  # it ended in the warm-up: what that cost is what the run did
            self.fed.ledger.load(stages[result.stage].fed.ledger.to_json())
        if not result.history:
            return self._unbegun(result, folder)
        if result.reason == "diverged":
            result.output = None
        if result.output is not None:  # the last row is then about the iterate that was drawn
            row = result.history[-1] | self.scores(result.state._replace(x=result.output))
            result.history.append(row)
            if folder is not None:
                append(folder / "history.jsonl", json.dumps(row))
        return result

    def _unbegun(self, result: Run, folder: Path | None) -> Run:
        """A run that went wrong before its first row has one of its starting point."""
        row = dict.fromkeys(COUNTS, 0.0)
        with suppress(Diverged):  # of rows beyond what a float holds there is nothing to say
            row |= self._both(self.given.vector, self.fed)
        result.history = [row]
        if folder is not None:
            write_whole(folder / "history.jsonl", json.dumps(row) + "\n")
        return result

    @property
    def algorithm_name(self) -> str:
        cls = type(self.description.algorithm)
        return str(vars(cls).get("title") or cls.__name__)  # a class that derives from FedAvg is not FedAvg

    def sites(self, vector: Tensor) -> list[dict[str, Any]]:
        """Every site's rows, and its scores on those it held out, if any; where sites adapt the model, of their own models too."""
        split = "test" if "test" in self.fed.data.splits else "validation"
        table = self.evaluation.by_site(self.fed, vector, split)
        if self.personal is not None:
            own = self.personal.by_site(self.evaluation, vector, split, self.fed.ledger)
            table = [row | more for row, more in zip(table, own, strict=True)]
        return table
