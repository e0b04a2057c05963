"""A small federation whose clients are told apart by their numbers, and client functions of every shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from rookery import Data, Federation, Minimization, Program, RookeryError
from rookery.federation import Client

ENGINES = ["loop", "vectorised", "wire"]
engines = pytest.mark.parametrize("engine", ENGINES)
NAMES = ("a", "b", "c", "d")
LEVEL = (1.0, 10.0, 100.0, 1000.0)  # what client k's rows hold
CALLS: list[str] = []
GLOBAL = torch.ones(2)
scale = torch.full((2,), 3.0)  # a global tensor that has the name of a field


def rows() -> Data:
    """Clients of 4, 5, 6 and 7 rows; u is the client's level, row the row's number, scale 2."""
    return Data.from_parts({name: {"u": torch.full((4 + k, 2), LEVEL[k], dtype=torch.float64), "row": torch.arange(4 + k),
                                   "scale": torch.full((4 + k,), 2.0, dtype=torch.float64)} for k, name in enumerate(NAMES)})


def federation(engine: str = "loop", **options: Any) -> Federation:
    return Federation(Minimization(lambda x, b: 0.5 * (x - b.u).square().sum(-1).mean()), rows(), engine=engine, **options)


def ones(value: float = 1.0) -> Tensor:
    return torch.full((2,), value, dtype=torch.float64)


@dataclass(frozen=True)
class Work(Program):
    """Client functions of every shape."""

    factor: float = 1.0

    def add(self, c: Client, x: Tensor, y: Any) -> Tensor:
        CALLS.append("add")
        return x + y

    def increment(self, c: Client, x: Tensor) -> Tensor:
        CALLS.append("increment")
        return x + 1

    def level(self, c: Client, x: Tensor) -> Tensor:
        """The client's own number, from its data."""
        return x * 0 + c.draw(1).u[0]

    def both(self, c: Client, x: Tensor) -> tuple[Tensor, Tensor]:
        CALLS.append("both")
        return x + 1, x + 2

    def divide(self, c: Client, x: Tensor, by: float) -> Tensor:
        return x / by

    def multiply(self, c: Client, x: Tensor, by: Any) -> Tensor:
        return x * by

    def second(self, c: Client, x: Tensor, numbers: Any) -> Tensor:
        return x * numbers[1]

    def halves(self, c: Client, x: Tensor, by: float) -> tuple[Tensor, Tensor]:
        return x / by, x + 1

    def drawn(self, c: Client, k: float) -> Tensor:
        """Three row numbers in row k of a table."""
        return (torch.arange(4) == k).double()[:, None] * c.draw(3).row

    def drawn_twice(self, c: Client, k: float) -> Tensor:
        first, second = c.draw(3).row, c.draw(3).row
        return (torch.arange(4) == k).double()[:, None] * torch.cat([first, second])

    def descend(self, c: Client, x: Tensor, lr: float) -> Tensor:
        return x - lr * c.gradient(x, c.draw(2))

    def several(self, c: Client, x: Tensor, steps: int) -> Tensor:
        b = c.draw(2)
        for _ in range(steps):
            x = x - 0.1 * c.gradient(x, b)
        return x

    def times(self, c: Client, x: Tensor) -> Tensor:
        return x + c.steps

    def ragged(self, c: Client, x: Tensor) -> Tensor:
        return x.new_zeros(2 if len(c.draw().u) < 6 else 3)

    def mixed(self, c: Client, x: Tensor) -> Tensor:
        return x if len(c.draw().u) < 6 else x.float()

    def whole(self, c: Client, x: Tensor) -> Tensor:
        return (x * 0 + c.draw(1).u[0]).long()

    def positive(self, c: Client, x: Tensor) -> Tensor:
        return x > 0

    def in_place(self, c: Client, x: Tensor) -> Tensor:
        return x.add_(1)

    def unknown(self, c: Client, x: Tensor) -> Tensor:
        return c.hessian(x, c.draw(1))

    def no_annotation(self, c: Client, x: Tensor):  # type: ignore[no-untyped-def]
        return x

    def not_c(self, client: Client, x: Tensor) -> Tensor:
        return x

    def nothing_at_all(self) -> Tensor:
        return torch.zeros(1)

    def takes_global(self, c: Client, x: Tensor) -> Tensor:
        return x + GLOBAL

    def takes_global_inside(self, c: Client, x: Tensor) -> Tensor:
        return sum((GLOBAL * i for i in range(2)), x)

    def takes_default(self, c: Client, x: Tensor, y: Tensor = torch.ones(2)) -> Tensor:  # noqa: B008
        return x + y

    def takes_field(self, c: Client, x: Tensor) -> Tensor:
        """`scale` is a field of the batch here, not the global tensor."""
        return x * c.draw(1).scale[0]

    def wrong_number(self, c: Client, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x, x  # type: ignore[return-value]

    def no_tensor(self, c: Client, x: Tensor) -> Tensor:
        return 1.0  # type: ignore[return-value]


work = Work()


def outcome(run: Any) -> Any:
    """A result with its dtype, or the kind of the error, which must be one of the library's."""
    try:
        result = run()
    except RookeryError as error:
        return type(error).__name__
    return [(str(value.dtype), value.tolist()) for value in (result if isinstance(result, tuple) else (result,))]
