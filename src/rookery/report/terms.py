"""What the words of the page mean, said in one sentence where they stand: metrics, costs, and the statistics around them."""

from __future__ import annotations

METRICS = {
    "loss": "mean cross-entropy, −log of the probability given to the class that came true; smaller is better",
    "accuracy": "the share of rows whose likeliest class is the true one",
    "balanced accuracy": "the mean over classes of the share of their rows that is found, so that a rare class counts as much as another",
    "worst class": "the share of rows that is found of the class that is found least",
    "Brier": "mean squared distance of the probabilities from what came true, 0 or 1; smaller is better",
    "ECE": "expected calibration error: how far the probability of the likeliest class is from the share of times that it is right, on "
           "average; smaller is better",
    "AUC": "how often a positive row is scored above a negative one; 0.5 is chance, 1 is perfect",
    "AP": "average precision, the area under precision against recall; chance is the share of positives, so that values of rows with "
          "other shares do not compare",
    "partial AUC": "the mean share of positives that is found where few negatives are flagged: the AUC at small false positive rates only",
    "gap": "the largest distance of a group's rate of positive answers from that of all rows that count for it; smaller is better",
    "goal": "the number that the fit is for; larger is better",
    "clamped": "training rows whose loss is beyond the range that the robust objective follows; they pull less than they should",
    "floored": "1 where the method's estimate of its inner value is below all that is possible, 0 elsewhere",
}
ADAPTED = "the same of the models that sites have after a few steps on their own training rows"
MODELS = {"adapted ": "after each site's own steps: ", "alone ": "of models that sites trained alone: "}
COSTS = {
    "rounds": "how often server and sites went through the method's steps",
    "exchanges": "how often sites send values up, to be averaged, added or collected; each one waits for the slowest site",
    "MB": "what these and the values on their way down come to, all sites together, without headers",
    "samples": "rows drawn in training, at all sites together; one that is drawn twice counts twice",
    "seconds": "of training at the server; where that did the work of all sites too, it is not how long a federation takes",
}
SEEDS = ("A seed decides the first weights, which rows are drawn and which are held out for validation, and where rows are dealt to sites "
         "by chance, how. Test rows are the same for all seeds: the spread is that of training, and does not say what other test rows "
         "would have given.")
SPREAD = "Values are means over the seeds; ± is one standard deviation (divisor n\u00a0−\u00a01)."
INTERVALS = ("Of 95\u00a0% intervals made like these from ever new test rows of the same kind, 95 in 100 hold the value that all such rows "
             "would give; rows are taken to be independent. They are about this one trained model: training anew would move it too.")


def meaning(metric: str) -> str:
    """What a metric is, by its name with or without the rows and the model that it is of; nothing for one that is not known here.

    >>> meaning("validation adapted accuracy")
    "after each site's own steps: the share of rows whose likeliest class is the true one"
    >>> meaning("shape")
    ''
    """
    base = metric.removeprefix("validation ").removeprefix("test ")
    model = next((prefix for prefix in MODELS if base.startswith(prefix)), "")
    found = METRICS.get(base.removeprefix(model), "")
    return found and MODELS.get(model, "") + found


def defined(metric: str) -> str:
    """The same as a sentence that may follow others.

    >>> defined("test AUC")
    ' AUC: how often a positive row is scored above a negative one; 0.5 is chance, 1 is perfect.'
    """
    found, name = meaning(metric), metric.removeprefix("validation ").removeprefix("test ")
    return found and f" {name[0].upper()}{name[1:]}: {found}."


def paired(first: str) -> str:
    """What the p of the summary is."""
    return (f"p is that of a paired t-test of the differences to {first}, seed by seed: if the two did not differ, a mean difference this "
            "large or larger would come about in that share of comparisons. It is about training and says nothing about other test rows; "
            "among many p some are small by chance.")
