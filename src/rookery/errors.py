"""The errors a user can meet. Each message says what must hold, what came, and what to write instead."""

from __future__ import annotations

__all__ = [
    "AlgorithmError", "Away", "BundleError", "CheckpointError", "ConfigError", "DataError", "Diverged", "EngineError", "FewRows",
    "FrameError", "ModuleError", "NonFinite", "PlacementError", "ProblemError", "Refused", "RookeryError", "StateLost", "UploadError",
    "WeightError", "WriteError",
]


class RookeryError(Exception):
    """Base of every error that Rookery raises on purpose."""


class DataError(RookeryError):
    """The clients' data cannot be used: an empty client, a non-finite value, fields of unequal length."""


class FewRows(DataError):
    """Something would be computed from fewer different rows than `min_batch`."""


class ProblemError(RookeryError):
    """A problem's functions, oracles or constants do not fit together."""


class AlgorithmError(RookeryError):
    """An algorithm does not fit the problem, or a hyper-parameter is out of range."""


class PlacementError(RookeryError):
    """A value at the clients and a value at the server were mixed, or a client function captured a tensor."""


class UploadError(RookeryError):
    """A client's upload was refused: non-finite, of another shape or of another dtype. Names the client."""

    def __init__(self, client: str, message: str) -> None:
        super().__init__(f"client {client!r}: {message}")
        self.client, self.message = client, message

    def __reduce__(self) -> tuple[type[UploadError], tuple[str, str]]:
        return type(self), (self.client, self.message)


class NonFinite(UploadError):
    """A client's upload holds an infinity or a NaN: mostly a step that was too large."""


class Away(UploadError):
    """A site did not answer in time; whether it executed what it was sent is not known, and does not matter. `clients` are those there."""

    clients: tuple[str, ...] = ()


class WeightError(RookeryError):
    """Client weights must be finite, non-negative, one per client, and not all zero."""


class ModuleError(RookeryError):
    """A torch module cannot be trained as a flat vector as it is; the message names the remedy."""


class EngineError(RookeryError):
    """An engine cannot run this client function; the message says which one can."""


class FrameError(RookeryError):
    """A frame was refused before anything was changed: truncated, altered, oversized or of the wrong form."""


class Refused(RookeryError):
    """A site's owner does not allow what was asked; nothing ran, and nothing left the site."""


class StateLost(RookeryError):
    """A site does not hold the state the server counts on: a frame was skipped, or it was restarted."""


class CheckpointError(RookeryError):
    """A checkpoint is truncated, foreign to this run, or missing."""


class BundleError(RookeryError):
    """A folder is no bundle, is not whole, or cannot be exported as was asked."""


class WriteError(RookeryError):
    """A file could not be written: the disk is full, or the folder is another run's. What was there is as it was."""


class Diverged(RookeryError):
    """An evaluation shows that training went wrong: a metric is not finite, or has exploded. The message names it."""


class ConfigError(RookeryError):
    """A run's description is not right; the message names the entry."""
