"""The entries of a frame, and for each of them values of other types."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

OPS = {"map", "take", "put", "finish", "save", "load"}
KEYS = {"map": ["op", "fn", "arguments", "out", "times", "phase", "call", "known"], "take": ["op", "source", "holders", "default", "out"],
        "put": ["op", "pool", "source"], "finish": ["op", "total"], "save": ["op", "tag", "ids"], "load": ["op", "tag"]}
HEADER = ["run", "k", "base", "programs", "clients", "ops", "want", "free", "forget"]
UNKNOWN = st.integers(1 << 40, 1 << 50)
NOT = {  # for each kind of entry, values of other types
    str: [None, True, 3, 1.5, [], ["x"], {}],
    int: [None, True, "3", 1.5, [], [3], {}],
    list: [None, True, 3, 1.5, "x", {}],
    "programs": [None, True, 3, "x", [], {"os.system": "0"}, {"rookery.algorithms.minimization.fedavg.FedAvg": "0"}],
    "times": [None, True, "3", 1.5, [], ["3"], [3, 3], {}],
    "ids": [None, True, 3, 1.5, "x", {}, [None], ["x"], [1.5], [True], [[1]], [{}]],
    "ops": [None, True, 3, 1.5, "x", {}, [None], ["map"], [3], [[]], [{}]],
    "fn": [None, True, 3, "step", {}, [], ["problem"], [None, "step"], ["problem", None], ["problem", "sums", 1], [3, "step"]],
    "arguments": [None, True, 3, "x", {}, [None], [3], [[]], [{}], [{"ref": "x"}], [{"ref": None}], [{"ref": 1.5}], [{"other": 3}]],
}
TYPES = {"run": str, "k": int, "ops": "ops", "want": "ids", "free": "ids", "base": int, "programs": "programs", "clients": "ids",
         "forget": list, "holders": "ids", "op": str, "fn": "fn", "arguments": "arguments",
         "times": "times", "phase": str, "call": int, "known": int, "source": int, "default": int, "pool": int, "total": int,
         "tag": str, "ids": list}


def kind_of(op: str, key: str) -> Any:
    return ("ids" if op == "map" else int) if key == "out" else TYPES[key]
