"""Chooses between `Loop` and `Vectorised` by a rule, and falls back to `Loop` where tracing fails."""

from __future__ import annotations

from ..errors import EngineError
from ..federation.client import Setting
from ..federation.operations import Flush, Map
from ..federation.reducer import Reducer
from .local import LocalEngine
from .loop import Loop
from .vectorised import Vectorised

LARGEST = 300_000  # parameters; above it, one set of weights per client streams through memory faster client by client


class Auto(LocalEngine):
    """Runs all clients as one graph where that is faster, and client by client for large nets and for functions that cannot be traced.

    `reason` says why the engine in use was chosen.
    """

    def bind(self, setting: Setting) -> None:
        super().bind(setting)
        self.refused: set[object] = set()
        self.loop = self._made(Loop(), setting)
        self.chosen: LocalEngine = self.loop
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
                self.chosen = self._made(Vectorised(), setting)
            except EngineError as error:
                self.reason = str(error)
        self.inner = self.chosen

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"auto:{self.inner.name}"

    def _made(self, engine: LocalEngine, setting: Setting) -> LocalEngine:
        engine.store, engine.pools = self.store, self.pools
        engine.bind(setting)
        return engine

    def flush(self, flush: Flush, reducer: Reducer) -> None:
        """By graph where that works; a function that does not vectorise goes through the loop, and the others stay as they are."""
        functions = {op.fn.__func__ for op in flush.ops if isinstance(op, Map)}
        if isinstance(self.chosen, Vectorised) and not functions & self.refused:
            try:
                self.inner = self.chosen
                return self.chosen.flush(flush, reducer)
            except EngineError as error:
                self.reason = str(error)
                self.refused |= functions
        self.inner = self.loop
        return self.loop.flush(flush, reducer)
