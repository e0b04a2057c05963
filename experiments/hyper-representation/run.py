"""Features learned outside, the last layer inside, at 100 sites: FedNest, FedNest-SGD and LFedNest on MNIST, against training at once.

    python experiments/hyper-representation/run.py                both splits, two tables, accuracy.png, results.json; data: $ROOKERY_DATA
    python experiments/hyper-representation/run.py --published    with the paper's step sizes only
    python experiments/hyper-representation/run.py --quick        handwritten digits of 8×8 pixels, few exchanges, written to --out only

Tarzanagh, Li, Thrampoulidis, Oymak, "FedNest: Federated bilevel, minimax, and compositional optimization", ICML 2022. The study is that
of experiments/loss-tuning.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "loss-tuning"))
from nested import main as study


def main() -> None:
    study("hyper-representation", Path(__file__).resolve().parent, __doc__ or "")


if __name__ == "__main__":
    main()
