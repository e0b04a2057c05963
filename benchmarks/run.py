"""All benchmarks, one after the other. `python benchmarks/run.py` or `make bench`; leave the machine alone meanwhile."""

from __future__ import annotations

import auc
import feddro
import invariant_logistic
import loss_tuning
import maml
import nets
import population
import remote
import scoring
import tables
from harness import load

if __name__ == "__main__":
    print(load())
    invariant_logistic.main()
    nets.main()
    feddro.main()
    auc.main()
    maml.main()
    loss_tuning.main()
    population.main()
    scoring.main()
    tables.main()
    remote.main()
    print(load())
