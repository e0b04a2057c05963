"""The laws every algorithm must satisfy, for algorithms of your own: one line in a test file.

A case says how the algorithm is made, a problem with a known solution, and what a round sends. `conformance` makes of it tests for pytest;
`check` runs them without. `laws` has the laws, one function each; `problems` the problems with a known solution, one for each kind.

>>> from dataclasses import dataclass
>>> from typing import NamedTuple
>>> from torch import Tensor
>>> from rookery import Algorithm, Federation, Minimization
>>> from rookery.federation import MinimizationClient
>>> @dataclass(frozen=True)
... class MyProx(Algorithm[Minimization]):
...     lr: float
...     local_steps: int
...     batch: int | None
...     mu: float = 0.1
...
...     class State(NamedTuple):
...         x: Tensor
...
...     def init(self, fed: Federation[Minimization], x: Tensor) -> State:
...         return self.State(self.validate(fed, x))
...
...     def round(self, fed: Federation[Minimization], s: State) -> State:
...         S = fed.cohort()
...         X = S.broadcast(s.x)
...         return self.State(fed.project_x(S.mean(S.iterate(self.step, X, X, steps=self.local_steps))))
...
...     def step(self, c: MinimizationClient, x_i: Tensor, x: Tensor) -> Tensor:
...         x_i = c.project_x(x_i)
...         return x_i - self.lr * (c.gradient(x_i, c.draw(self.batch)) + self.mu * (x_i - x))

A round is one exchange, of d floats up and d floats down, whatever the number of local steps. In a test file:

>>> test_conformance = conformance(Case("MyProx", lambda lr, q, b: MyProx(lr, q, b), problems.minimization, lambda d, d_y, q: (1, d, d)))

Without pytest, and with a formula that forgets what comes down:

>>> wrong = Case("MyProx", lambda lr, q, b: MyProx(lr, q, b), problems.minimization, lambda d, d_y, q: (1, d, 0))
>>> check(wrong)  # doctest: +IGNORE_EXCEPTION_DETAIL
Traceback (most recent call last):
BrokenLaws: MyProx breaks 3 of the 20 laws it is held against: …
"""

from ..problems import testproblems as problems
from . import laws
from .case import Case
from .suite import BrokenLaws, check, conformance, laws_of

__all__ = ["BrokenLaws", "Case", "check", "conformance", "laws", "laws_of", "problems"]
