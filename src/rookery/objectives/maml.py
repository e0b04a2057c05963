"""Model-agnostic meta-learning as a conditional problem: a start from which few steps on a task's own rows lead far.

Finn, Abbeel, Levine, "Model-agnostic meta-learning for fast adaptation of deep networks", ICML 2017, in the form of Wu, Sun, Hu, Li, Zhang,
Huang, "Federated conditional stochastic optimization", NeurIPS 2023, section 5.2.
    (task i, query), support, λ  →  outer samples ξ, inner samples η, inner_lr
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..data.store import Batch
from ..data.tasks import PerTask
from ..errors import ProblemError
from ..problems.autodiff import for_each, grad
from ..problems.kinds import Conditional
from ..problems.model import Model
from .declare import objective
from .supervised import cross_entropy_losses

Loss = Callable[[Tensor, Batch], Tensor]
MOST_STEPS = 1000  # that derivatives go through


def adapt(loss: Loss, x: Tensor, support: Batch, lr: float, steps: int = 1, second_order: bool = True) -> Tensor:
    """x after `steps` gradient steps on the loss of the support rows.

    Inside a function that is differentiated it is differentiated too, through all its steps; with `second_order=False` their gradients
    count as constants there, as in first-order MAML.

    >>> rows = Batch({"u": torch.tensor([1.0])})
    >>> adapt(lambda x, b: 0.5 * (x - b.u).square().sum(), torch.zeros(1), rows, lr=0.5, steps=2)
    tensor([0.7500])
    """
    for _ in range(steps):
        if second_order:
            x = x - lr * grad(lambda z: loss(z, support), x)
        else:
            with torch.no_grad():  # nothing is kept for a second derivative
                step = grad(lambda z: loss(z, support), x).detach()
            x = x - lr * step
    return x


def tasks(b: Batch) -> list[tuple[Batch, Batch]]:
    """The support and the query rows of each task of a batch that `PerTask` or `Episodes` drew."""
    if b.inner is None:
        raise ProblemError("tasks have support rows beside their query rows: draw them with PerTask or Episodes, and both sizes")
    inner, number = b.inner, len(next(iter(b.fields.values())))
    return [(Batch({name: field[i] for name, field in inner.fields.items()}), Batch({name: field[i] for name, field in b.fields.items()}))
            for i in range(number)]


@objective(metric="adapted accuracy", adapts="inner_lr")
def maml(model: Model, inner_lr: float = 0.1, steps: int = 1, second_order: bool = True, query: int = 10, losses: Loss | None = None,
         **options: Any) -> Conditional:
    """The loss of a task's query rows after a few steps on its support rows: mean_k E_{task, query} L(x − inner_lr·∇L(x; support); query).

    g(x, ξ, η) = x − inner_lr·∇L(x; η), `steps` times, and f(u, ξ) = L(u; ξ), for a task's support rows η and query rows ξ, which are
    different rows. Derivatives go through the steps, exactly; with `second_order=False` these count as constants (first-order MAML),
    at about half the cost.

    By default all rows of a client are one task, its own (`PerTask(query=query)`): the start that is learned is then one that every client
    adapts to its rows, and an algorithm asks for outer=1 and `inner` support rows. `sampling=PerTask("task", query)` has a field of tasks,
    and `sampling=Episodes(ways, query)` makes few-shot tasks of classes; their own `query` goes before this one.

    L is the mean of `losses(x, batch)`, one a row; by default they are the model's cross-entropies. A model with batch norm takes the
    moments of the rows at hand, support or query, as `federated_norm` has it in training. At new rows, `adapt` makes the steps.

    Local-SCGD and Local-SCGDM take it by `conditional_as_compositional` with one inner value for all tasks, which it does not have: that
    mismatch is why conditional methods exist.

    >>> model = Model(torch.nn.Linear(1, 2))
    >>> problem = maml(model, inner_lr=1.0, query=1)
    >>> rows = {"inputs": torch.tensor([[[1.0]]]), "labels": torch.tensor([[1]])}  # one task with one row
    >>> batch = Batch(rows, None, Batch(rows))
    >>> start = torch.zeros(model.size)
    >>> problem.value(start, batch) < 0.6931  # a step has been made on that row
    tensor(True)
    """
    if not inner_lr > 0 or not 1 <= steps <= MOST_STEPS:
        raise ProblemError(f"a task is adapted to by 1 to {MOST_STEPS} steps of a positive size; got inner_lr={inner_lr} and steps={steps}")
    if query < 1:
        raise ProblemError(f"query is the number of rows of a task that it is judged by, at least 1; got {query}")
    each = losses or cross_entropy_losses(model)
    own: dict[str, Any] = {"model": model, "sampling": PerTask(query=query)}

    def loss(x: Tensor, b: Batch) -> Tensor:
        return each(x, b).mean()

    def g(x: Tensor, xi: Batch, eta: Batch) -> Tensor:
        if len(x) != model.size:
            raise ProblemError(f"x has {model.size} numbers, the model's parameters; got {len(x)}")
        adapted = for_each(lambda support: adapt(loss, x, Batch(support), inner_lr, steps, second_order), eta.fields)
        return adapted[:, None]  # the mean over the support rows stands inside their loss

    def f(u: Tensor, xi: Batch) -> Tensor:
        return for_each(lambda own, query: loss(own, Batch(query)), u, xi.fields)

    return Conditional(f, g, **(own | options))
