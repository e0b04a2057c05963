"""Where samples come from: readers of data sets, ways to split and spread rows, the flat store, and how a client draws from it."""

from .folder import fetch, folder
from .imbalance import drop_positives, long_tail, step
from .partition import by_column, by_quantity, dirichlet, iid, label_shards
from .positives import Positives, positive_counts
from .readers import DATASETS, Table, load, read_csv, read_images, read_npz
from .sampling import Balanced, Draw, Normal, Replacement, Request, Sampler, Shuffled, Stored, Stratified
from .split import Parts, hold_out, split
from .store import Batch, Data
from .tasks import Episodes, PerTask

__all__ = [
    "DATASETS",
    "Balanced",
    "Batch",
    "Data",
    "Draw",
    "Episodes",
    "Normal",
    "Parts",
    "PerTask",
    "Positives",
    "Replacement",
    "Request",
    "Sampler",
    "Shuffled",
    "Stored",
    "Stratified",
    "Table",
    "by_column",
    "by_quantity",
    "dirichlet",
    "drop_positives",
    "fetch",
    "folder",
    "hold_out",
    "iid",
    "label_shards",
    "load",
    "long_tail",
    "positive_counts",
    "read_csv",
    "read_images",
    "read_npz",
    "split",
    "step",
]
