"""Chooses between `Loop` and `Vectorised` by a rule, and falls back to `Loop` where tracing fails."""

from __future__ import annotations

from ..client import Setting
from ..errors import EngineError
from .base import Flush, Index, Reducer
from .local import LocalEngine
from .loop import Loop
from .vectorised import Vectorised

LARGEST = 300_000  # parameters; above it, one set of weights per client streams through memory faster client by client


class Auto(LocalEngine):
    """`reason` says why the engine in use was chosen."""

    def start(self, setting: Setting) -> None:
        super().start(setting)
        model = setting.problem.model
        self.reason = "small model: all clients run as one graph"
        if model is not None and model.heavy:
            self.reason = f"the model has {model.heavy} layers, which are faster client by client"
        elif model is not None and model.size > LARGEST:
            self.reason = f"the model has {model.size} parameters, more than {LARGEST}"
        elif len(setting.data.names) == 1:
            self.reason = "there is one client"
        else:
            try:
                self._use(Vectorised(), setting)
                return
            except EngineError as error:
                self.reason = str(error)
        self._use(Loop(), setting)

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"auto:{self.inner.name}"

    def _use(self, engine: LocalEngine, setting: Setting) -> None:
        engine.store, engine.pools = self.store, self.pools
        engine.start(setting)
        self.inner = engine

    def flush(self, flush: Flush, reducer: Reducer) -> None:
        try:
            self.inner.flush(flush, reducer)
        except EngineError as error:
            if isinstance(self.inner, Loop):
                raise
            self.reason = str(error)
            self._use(Loop(), self.setting)
            self.inner.flush(flush, reducer)

    def restore(self, id: int, clients: Index, values: list, pool: bool) -> None:  # type: ignore[type-arg]
        self.inner.restore(id, clients, values, pool)
