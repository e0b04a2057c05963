"""Scores of rows from a model's outputs."""

from __future__ import annotations

from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor
from torch.nn import functional as F

PLAIN, RANKING = ("loss", "accuracy", "worst class"), ("AUC", "AP")


def row_scores(outputs: Tensor, labels: Tensor) -> dict[str, float]:
    """Loss, accuracy and worst class of the rows; AUC and AP where there are two classes and rows of both."""
    right, present = (outputs.argmax(1) == labels).double(), sorted(set(labels.tolist()))
    scores = {"loss": float(F.cross_entropy(outputs, labels)), "accuracy": float(right.mean()),
              "worst class": float(min(right[labels == c].mean() for c in present))}
    if outputs.shape[1] == 2 and len(present) == 2:
        margin = (outputs[:, 1].double() - outputs[:, 0]).numpy()  # of large outputs the difference is not a float
        scores |= {"AUC": float(roc_auc_score(labels.numpy(), margin)), "AP": float(average_precision_score(labels.numpy(), margin))}
    return scores
