"""Reports: the numbers of the page against sums made here."""

from __future__ import annotations

import math
import re
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_pages import account, make, paged, row, scored, traffic
from scipy.stats import ttest_rel
from sklearn.metrics import average_precision_score, roc_auc_score

from rookery.report import load
from rookery.report.chart import Scale
from rookery.report.numbers import curve, ranking
from rookery.report.traffic import collapse, exchanges


def test_the_summary_has_means_and_deviations_over_seeds_and_marks_the_best(tmp_path: Path) -> None:
    values = {"A": [0.81234, 0.84321, 0.83111], "B": [0.9012, 0.8998, 0.9123]}
    folders = [make(tmp_path / f"{label}{seed}", label, seed, [row(10 + seed, **{"test AUC": v, "test loss": v, "shape": v})])
               for label, several in values.items() for seed, v in enumerate(several)]
    page = paged(tmp_path, *folders)
    expected = [f"{statistics.mean(v):.4f} ± {statistics.stdev(v):.4f}" for v in values.values()]
    p = f" p {ttest_rel(values['B'], values['A']).pvalue:.2g}"  # in the columns after the first
    assert page.line(0, "test AUC") == [(expected[0], ""), (expected[1] + p, "best")]
    assert page.line(0, "test loss") == [(expected[0], "best"), (expected[1] + p, "")]
    assert page.line(0, "shape") == [(expected[0], ""), (expected[1] + p, "")]
    assert [text for text, _ in page.line(0, "rounds")] == ["11 ± 1"] * 2
    assert [text for text, _ in page.line(0, "MB")] == ["0.011 ± 0.001"] * 2
    assert [text for text, _ in page.tables[0][0]] == ["", "A 3 seeds", "B 3 seeds"]
    assert "paired t-test against A" in page.source


def test_a_method_that_diverged_is_flagged_and_not_the_best(tmp_path: Path) -> None:
    runs = {"A": (0.9, "diverged", "client 'x': a step too large"), "B": (0.8, "rounds", None), "C": (0.7, "interrupted", None)}
    folders = [make(tmp_path / label, label, 3, [row(4, **{"test AP": value})], reason=reason, failure=failure)
               for label, (value, reason, failure) in runs.items()]
    page = paged(tmp_path, *folders)
    assert [kind for _, kind in page.line(0, "test AP")] == ["", "best", ""]
    flags = [text for tag, text in page.texts if tag == "li" and "after" in text]
    assert flags == ["A, seed 3, diverged after 4 rounds: client 'x': a step too large", "C, seed 3, interrupted after 4 rounds"]


def test_seeds_without_a_value_are_counted_out(tmp_path: Path) -> None:
    values = [0.5, None, math.inf, 0.7, 1e300]
    folders = [make(tmp_path / str(seed), "A", seed, [row(1, **{"test AUC": v})]) for seed, v in enumerate(values)]
    assert paged(tmp_path, *folders).line(0, "test AUC") == [("0.6000 ± 0.1414 2 of 5 runs", "")]


def test_a_curve_joins_seeds_evaluated_at_different_rounds_over_the_range_they_share(tmp_path: Path) -> None:
    records = [load(make(tmp_path / "a", "A", 0, [row(r, gap=2.0 * r) for r in (0, 4, 8)])),
               load(make(tmp_path / "b", "A", 1, [row(r, gap=4.0 * r) for r in (0, 5, 10)]))]
    for axis, scale in (("round", 1.0), ("bytes", 1000.0), ("samples", 64.0), ("seconds", 1 / 8)):
        found = curve(records, "gap", axis)
        assert found is not None
        assert found.std is not None
        np.testing.assert_allclose(found.x, np.array([0, 4, 5, 8]) * scale)
        np.testing.assert_allclose(found.mean, [0, 12, 15, 24])
        np.testing.assert_allclose(found.std, np.array([0, 4, 5, 8]) * math.sqrt(2), atol=1e-12)


def test_the_drawn_line_is_the_curve(tmp_path: Path) -> None:
    values = [0.2, 0.65, 0.5, 0.9]
    history = [row(r, **{"test AUC": v}) for r, v in zip((0, 10, 25, 40), values, strict=True)]
    page = paged(tmp_path, make(tmp_path / "a", "A", 0, history))
    lines = [a["d"] or "" for tag, a in page.elements if tag == "path" and a["class"] == "line c0 d0"]
    drawn = next(d for d in lines if d.startswith("m"))  # the others are the pieces in legends
    points = np.cumsum(np.array(drawn[1:].split(), dtype=float).reshape(-1, 2), axis=0)
    np.testing.assert_allclose(points[:, 0], np.array([0, 10, 25, 40]) / 40 * 1000, atol=0.5)
    np.testing.assert_allclose(points[:, 1], 1000 - (np.array(values) - 0.2) / 0.7 * 1000, atol=0.5)


def test_a_wide_range_of_positive_values_is_drawn_on_a_logarithmic_axis(tmp_path: Path) -> None:
    history = [row(r, gap=10.0**-r, other=-1.0) for r in range(7)]
    page = paged(tmp_path, make(tmp_path / "a", "A", 0, history))
    assert page.source.count("gap (logarithmic)") == 4
    assert "other (logarithmic)" not in page.source
    np.testing.assert_allclose(Scale(1e-6, 1, log=True)(np.array([1e-6, 1e-3, 1.0, 1e-9])), [0, 50, 100, 0], atol=1e-9)


def brute_auc(labels: Any, scores: Any) -> float:
    pairs = [(p > n) + (p == n) / 2 for p in scores[labels == 1] for n in scores[labels == 0]]
    return float(np.mean(pairs))


def brute_ap(labels: Any, scores: Any) -> float:
    """Σ over thresholds of (growth of recall) × precision."""
    total, before = 0.0, 0.0
    for threshold in sorted(set(scores.tolist()), reverse=True):
        taken = scores >= threshold
        recall = labels[taken].sum() / labels.sum()
        total, before = total + (recall - before) * labels[taken].mean(), recall
    return float(total)


@pytest.mark.parametrize("logits", [False, True])
def test_auc_and_ap_are_those_of_the_predictions(tmp_path: Path, logits: bool) -> None:
    pairs = [scored(seed) for seed in range(3)]
    folders = [make(tmp_path / str(seed), "A", seed, predictions=scored(seed, logits=logits)) for seed in range(3)]
    page = paged(tmp_path, *folders)
    shown = [text for tag, text in page.texts if tag == "b" and "±" in text]
    for text, brute, known in zip(shown, (brute_auc, brute_ap), (roc_auc_score, average_precision_score), strict=True):
        values = [brute(*pair) for pair in pairs]
        np.testing.assert_allclose(values, [known(*pair) for pair in pairs])
        assert text == f"{statistics.mean(values):.4f} ± {statistics.stdev(values):.4f}"
    share = np.mean([labels.mean() for labels, _ in pairs])
    assert f"{share:.1%} of the test rows are positive" in page.source
    heights = [a["d"] for tag, a in page.elements if tag == "path" and a["class"] == "chance"]
    assert heights == ["M0 1000L1000 0", f"M0 {1000 * (1 - share):.0f}L1000 {1000 * (1 - share):.0f}"]


def test_roc_and_pr_curves_are_averaged_at_each_point_of_the_horizontal_axis(tmp_path: Path) -> None:
    pairs = [scored(seed, 2000) for seed in range(2)]
    records = [load(make(tmp_path / str(seed), "A", seed, predictions=pair)) for seed, pair in enumerate(pairs)]
    both = ranking(records)
    alone = [ranking([record]) for record in records]
    assert both is not None
    for curve_, singles, area in ((both.roc, [r.roc for r in alone if r], both.auc), (both.pr, [r.pr for r in alone if r], both.ap)):
        np.testing.assert_allclose(curve_.mean, np.mean([s.mean for s in singles], axis=0))
        np.testing.assert_allclose(curve_.std, np.abs(singles[0].mean - singles[1].mean) / math.sqrt(2), atol=1e-12)
        assert np.trapezoid(curve_.mean, curve_.x) == pytest.approx(area.mean, abs=0.01)
    for recall, precision in zip(both.pr.x[::20], both.pr.mean[::20], strict=True):
        each = []
        for labels, scores in pairs:  # the strictest threshold that reaches this recall
            reached = [t for t in set(scores.tolist()) if labels[scores >= t].sum() / labels.sum() >= max(recall, 1e-9)]
            each.append(labels[scores >= max(reached)].mean())
        assert precision == pytest.approx(np.mean(each))


def test_three_classes_or_one_have_no_ranking(tmp_path: Path) -> None:
    several = make(tmp_path / "a", "A", predictions=(np.array([0, 1, 2]), np.eye(3)))
    one = make(tmp_path / "b", "B", predictions=(np.array([1, 1, 1]), np.arange(3.0)))
    diverged = make(tmp_path / "c", "C", predictions=(np.array([0, 1, 1]), np.array([np.nan, 1.0, 2.0])))
    assert "How the test rows are ranked" not in paged(tmp_path, several, one, diverged).headings()


def test_the_worst_site_of_each_method_is_marked(tmp_path: Path) -> None:
    auc = {"A": [[0.9, 0.7], [0.8, 0.9], [0.6, None]], "B": [[0.5, 0.5], [0.8, 0.9], [0.6, 0.7]]}  # method, site, seed
    names = ["Aa", "Bb", "Cc"]
    folders = [make(tmp_path / f"{m}{seed}", m, seed, sites=[
        {"site": s, "rows": 100 + seed, "positives": None, "validation rows": 20, "AUC": auc[m][i][seed], "loss": auc[m][i][seed]}
        for i, s in enumerate(names)]) for m in auc for seed in range(2)]
    page = paged(tmp_path, *folders)
    by_auc, by_loss = page.tables[1], page.tables[2]
    assert [text for text, _ in by_auc[0]] == ["site", "A", "B"]
    assert [text for text, _ in page.column(1, "site")] == [f"{name} 100–101 training rows, 20 validation rows" for name in names]
    assert page.column(1, "A") == [("0.8000 ± 0.1414", ""), ("0.8500 ± 0.0707", ""), ("0.6000 1 of 2 runs", "worst")]
    assert [kind for _, kind in page.column(1, "B")] == ["worst", "", ""]
    assert [line[-1][1] for line in by_loss[1:]] == ["", "worst", ""]


def test_the_network_table_divides_by_rounds_and_means_over_seeds(tmp_path: Path) -> None:
    folders = [make(tmp_path / str(k), "A", k, ledger={"setup": account(), "train": account(
        exchanges=8, floats_up=800 * (1 + k), bytes_up=3200 * (1 + k), samples=40, calls={"grad": 20})}) for k in range(2)]
    rows = [[text for text, _ in line] for line in paged(tmp_path, *folders).tables[1]]
    assert rows[1] == ["A", "train", "8", "1,200", "0", "4.8 kB", "0 B", "40", "grad 20"]
    assert rows[2] == ["A", "train, a round", "2", "300", "0", "1.2 kB", "0 B", "10", "grad 5"]
    assert len(rows) == 3  # nothing happened in the setup


def test_a_round_is_drawn_in_order_with_repeated_exchanges_once(tmp_path: Path) -> None:
    inner = [("down", "step", 2), ("up", "step", 2)]
    items = traffic([("down", "local", 500), ("down", "local", 500), ("up", "local", 2)], *[inner] * 5, [("up", "last", 500)])
    page = paged(tmp_path, make(tmp_path / "a", "A", traffic=items))
    figure = page.source[page.source.index('<figure class="round">'):]
    assert re.findall(r'class="name"[^>]*>([^<]*)<', figure) == ["local", "local", "step", "step", "last"]
    assert re.findall(r'class="size"[^>]*>([^<]*)<', figure) == ["2 × 500 floats · 4 kB", *["2 floats · 8 B"] * 3, "500 floats · 2 kB"]
    assert re.findall(r'class="times"[^>]*>([^<]*)<', figure) == ["×5"]
    down, up = (sum(i["bytes"] for i in items if i["direction"] == way) for way in ("down", "up"))
    assert f"7 exchanges a round; {down / 1000:.3g} kB down and {up / 1000:.3g} kB up per client" in figure
    assert len(exchanges(items)) == 7


@given(st.lists(st.sampled_from("ab"), max_size=14))
def test_collapsed_exchanges_spell_the_round_again(items: list[str]) -> None:
    assert [x for block, times in collapse(items) for _ in range(times) for x in block] == items


def test_the_tuning_section_says_whether_budgets_are_the_same(tmp_path: Path) -> None:
    def tuned(tries: int) -> dict[str, Any]:
        tried = [{"values": {"lr": 0.1 * k}, "score": None if k == 0 else k / 7} for k in range(tries)]
        return {"metric": "validation AUC", "tried": tried, "chosen": tried[-1]["values"]}

    a, b, c = (make(tmp_path / name, name, tuning=tuned(tries)) for name, tries in (("a", 4), ("b", 4), ("c", 3)))
    page = paged(tmp_path, a, b)
    assert "Every method had the same budget: 4 settings." in page.source
    assert [text for text, _ in page.tables[1][1]] == ["a", "4", "validation AUC", "lr = 0.3", f"{3 / 7:.4f}"]
    assert [text for text, _ in page.tables[2][1]] == ["lr = 0", "no score"]
    assert "The budgets differ: from 3 to 4 settings." in paged(tmp_path, a, c).source
    assert "Test rows had no say. At an end of what was tried, where a wider range might suit better: a, lr; b, lr." in page.source


def test_runs_of_a_method_that_differ_in_more_than_the_seed_say_so(tmp_path: Path) -> None:
    folders = [make(tmp_path / str(k), "A", k, command=f"rookery run a.toml --set federation.seed={k}", machine="two cores",
                    versions={"rookery": "1"}, config={"federation": {"seed": k}, "algorithm": {"lr": 0.1 + k, "batch": 8}})
               for k in range(2)]
    page = paged(tmp_path, *folders)
    assert "others differ in federation.seed, algorithm.lr<" in page.source
    pre = [text for tag, text in page.texts if tag == "pre"]
    assert pre == ["rookery run a.toml --set federation.seed=0\nrookery run a.toml --set federation.seed=1",
                   "[federation]\nseed = 0\n\n[algorithm]\nlr = 0.1\nbatch = 8"]
    assert "rookery 1 · two cores" in page.source
