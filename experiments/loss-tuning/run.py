"""A loss for rare classes, learned at 100 sites: FedNest, FedNest-SGD and LFedNest on long-tailed MNIST, against training without it.

    python experiments/loss-tuning/run.py                   all parts, results.json; data: $ROOKERY_DATA
    python experiments/loss-tuning/run.py --parts tables    both splits, two tables, accuracy.png
    python experiments/loss-tuning/run.py --parts length    3 000 exchanges on heterogeneous sites, length.png
    python experiments/loss-tuning/run.py --published       with the paper's step sizes only
    python experiments/loss-tuning/run.py --quick           handwritten digits of 8×8 pixels, few exchanges, written to --out only

Tarzanagh, Li, Thrampoulidis, Oymak, "FedNest: Federated bilevel, minimax, and compositional optimization", ICML 2022.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from length import part as length
from nested import main as study


def main() -> None:
    study("loss-tuning", Path(__file__).resolve().parent, __doc__ or "", length=length)


if __name__ == "__main__":
    main()
