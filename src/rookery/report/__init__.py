"""A page about runs: read their folders, compare the methods, write one HTML file that needs nothing else."""

from .page import write
from .record import Record, ReportError, load

__all__ = ["Record", "ReportError", "load", "write"]
