"""What every comparison has beside the methods that are compared: plain training, tuned alike, and the simple cures for rare classes."""

from __future__ import annotations

from typing import Any

from .description import Description, describe

Tree = dict[str, dict[str, Any]]
SIMPLE: dict[str, dict[str, Any]] = {  # the objective of FedAvg, by what the opponent is called
    "FedAvg": {"name": "cross_entropy"}, "class weights": {"name": "balanced_cross_entropy"},
    "balanced batches": {"name": "cross_entropy", "sampling": {"name": "Balanced", "field": "labels"}}}


def opponents(configs: dict[str, Description]) -> dict[str, Tree]:
    """Descriptions of FedAvg, of class weights and of balanced batches, with rows, net, rounds and rows a step of the first description.

    One that stands among the descriptions is left out, and so are balanced batches where a step takes all rows. There are none where
    nothing is classified: where the objective has a net of its own, or learns a start that sites adapt.
    """
    first = next(iter(configs.values()))
    if first.objective.declared.net is not None or first.adaptation is not None:
        return {}
    tree = {name: table for name, table in describe(first).items() if name != "warm_up"}
    if tree.get("federation", {}).get("weights") == "positives":  # what a ranking of positives asks for, and plain training does not
        tree["federation"] = {key: value for key, value in tree["federation"].items() if key != "weights"}
    plain = {"name": "FedAvg", **_steps(first.algorithm, tree["algorithm"])}
    known = [(one["algorithm"]["name"], _whole(one["objective"])) for one in map(describe, configs.values())]
    found = {label: {**tree, "algorithm": plain, "objective": objective} for label, objective in SIMPLE.items()
             if ("FedAvg", objective) not in known and ("batch" in plain or "sampling" not in objective)}
    return {label if label not in configs else f"{label} (opponent)": tree for label, tree in found.items()}


def _whole(objective: dict[str, Any]) -> dict[str, Any]:
    """An objective with the field of balanced batches written out."""
    drawn = objective.get("sampling", {})
    return objective | {"sampling": {"field": "labels"} | drawn} if drawn.get("name") == "Balanced" else objective


def _steps(algorithm: Any, described: dict[str, Any]) -> dict[str, Any]:
    """Step size, local work and rows a step as an algorithm has them; outer and inner samples are both rows that are scored."""
    found = {key: described[key] for key in ("lr", "local_steps", "epochs", "batch") if key in described}
    steps, inner, outer = (getattr(algorithm, name, None) for name in ("local_steps", "inner", "outer"))
    if "epochs" not in found and isinstance(steps, int):
        found["local_steps"] = steps
    if "batch" not in found and isinstance(inner, int) and isinstance(outer, int):
        found["batch"] = inner + outer
    return {"lr": 0.1} | found
