"""The laws every algorithm must satisfy, for algorithms of your own: one line in a test file.

A case says how the algorithm is made, a problem with a known solution, and what a round sends. `conformance` makes of it tests for pytest;
`check` runs them without. `laws` has the laws, one function each; `problems` the problems with a known solution, one for each kind.

>>> from dataclasses import dataclass
>>> from torch import Tensor
>>> from rookery import Federation, Minimization
>>> from rookery.algorithms.base import LocalSteps
>>> from rookery.federation import Client
>>> @dataclass(frozen=True)
... class MyProx(LocalSteps[Minimization]):
...     mu: float = 0.1
...
...     def round(self, fed: Federation[Minimization], s: LocalSteps.State) -> LocalSteps.State:
...         S = fed.cohort()
...         X = S.broadcast(s.x)
...         X_i = S.iterate(self.step, X, X, steps=S.steps(self.local_steps, self.batch))
...         return self.State(fed.project_x(S.mean(X_i)), s.t + 1)
...
...     def step(self, c: Client[Minimization], x_i: Tensor, x: Tensor) -> Tensor:
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
