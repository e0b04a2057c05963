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

    One that stands among the descriptions is left out. There are none where nothing is classified: where the objective has a net of its
    own, or learns a start that sites adapt.
    """
    first = next(iter(configs.values()))
    if first.objective.declared.net is not None or first.adaptation is not None:
        return {}
    tree = {name: table for name, table in describe(first).items() if name != "warm_up"}
    steps, lr = _steps(first.algorithm), getattr(first.algorithm, "lr", 0.1)
    known = [(one["algorithm"]["name"], one["objective"]) for one in map(describe, configs.values())]
    plain = {"name": "FedAvg", "lr": lr if isinstance(lr, float | int) else 0.1, **steps}
    found = {label: {**tree, "algorithm": plain, "objective": objective}
             for label, objective in SIMPLE.items() if ("FedAvg", objective) not in known}
    return {label if label not in configs else f"{label} (opponent)": tree for label, tree in found.items()}


def _steps(algorithm: Any) -> dict[str, Any]:
    """Local steps and rows a step as an algorithm has them; outer and inner samples are both rows that are scored."""
    steps, batch = getattr(algorithm, "local_steps", 1), getattr(algorithm, "batch", None)
    inner, outer = getattr(algorithm, "inner", None), getattr(algorithm, "outer", None)
    if batch is None and isinstance(inner, int) and isinstance(outer, int):
        batch = inner + outer
    found = {"local_steps": steps} if isinstance(steps, int) else {"epochs": steps.number} if hasattr(steps, "number") else {}
    return found | ({"batch": batch} if isinstance(batch, int) else {})
