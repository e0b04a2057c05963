"""What the page says in words: where rows were, what p compares, what a metric is, and what is true of one run only."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from report_pages import account, make, paged, row, traffic
from running import changed
from scipy.stats import ttest_rel

from rookery.objectives.declare import objectives
from rookery.report.place import HOW, LOCAL, RAY, WIRE
from rookery.report.terms import COSTS, meaning
from rookery.studies import parse
from rookery.studies.build import build
from rookery.studies.scores import PLAIN, RANKING
from rookery.studies.sections import FederationSection, SitesSection

SITES = [{"site": name, "rows": 10, "validation rows": 4, "AUC": 0.5, "AP": 0.4} for name in "abc"]


def text(tmp_path: Path, *folders: Path) -> str:
    """All that a page says, as one line."""
    return " ".join(" ".join(said for tag, said in paged(tmp_path, *folders).texts if tag not in ("style", "title")).split())


def test_a_simulation_is_called_one_and_rows_are_not_said_to_have_stayed_anywhere(tmp_path: Path) -> None:
    said = text(tmp_path, make(tmp_path / "a", "A", sites=SITES, engine="auto:vectorised", config={"sites": {"how": "dirichlet"}},
                               ledger={"train": account(exchanges=1)}))
    assert "a simulation in one process on one machine, with the rows spread over 3 sites by Dirichlet draws" in said
    assert "what would have crossed a network" in said
    assert "What would have crossed the network" in said
    assert "The test rows were at the server, which scored them itself" in said
    assert "frames" not in said
    assert not [claim for claim in ("stay where they are", "stay there", "What crossed the network") if claim in said]


def test_frames_that_were_made_are_said_to_have_stayed_in_the_process(tmp_path: Path) -> None:
    wire, loop = make(tmp_path / "a", "A", sites=SITES, engine="wire"), make(tmp_path / "b", "B", sites=SITES, engine="loop")
    assert "spoke through the frames of bytes that a network would carry, and none of them left the process" in text(tmp_path, wire)
    assert "In runs of A server and sites spoke through real frames of bytes" in text(tmp_path, wire, loop)


def test_who_had_the_test_rows_is_said_where_there_are_any(tmp_path: Path) -> None:
    sites, server = ({"sites": SITES, "engine": "loop", "config": {"data": {"name": "x", "test_at": at}}} for at in ("sites", "server"))
    at_sites, at_server = make(tmp_path / "a", "A", **sites), make(tmp_path / "b", "B", **server)
    untested = make(tmp_path / "c", "C", 0, [row(1, **{"validation AUC": 0.5})], **server)
    assert "The test rows were at the sites, which score them and send sums" in text(tmp_path, at_sites)
    assert "at the server for some methods and at the sites for others" in text(tmp_path, at_sites, at_server)
    assert "test rows were" not in text(tmp_path, untested)


def test_runs_that_do_not_say_where_they_ran_are_not_spoken_for(tmp_path: Path) -> None:
    for engine in (None, "satellites"):
        assert "simulation" not in text(tmp_path, make(tmp_path / str(engine), "A", sites=SITES, engine=engine))


def test_the_page_knows_every_engine_and_every_way_to_spread_rows() -> None:
    ways, _ = get_args(get_type_hints(SitesSection)["how"])
    assert set(get_args(ways)) == set(HOW)
    assert set(get_args(get_type_hints(FederationSection)["engine"])) == {*LOCAL, WIRE, RAY}


@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_a_run_says_where_it_ran(tmp_path: Path, engine: str) -> None:
    build(parse(changed(federation={"engine": engine}, run={"rounds": 1, "every": 1})), tmp_path / "a").run(tmp_path / "a", "A")
    said = text(tmp_path, tmp_path / "a")
    assert "This was a simulation in one process on one machine" in said
    assert ("frames of bytes" in said) == (engine == "wire")


def test_only_seeds_of_the_same_data_that_both_methods_have_are_paired(tmp_path: Path) -> None:
    def of(label: str, values: dict[int, float], **about: Any) -> list[Path]:
        return [make(tmp_path / f"{label}{seed}", label, seed, [row(1, **{"test AUC": v})], **about) for seed, v in values.items()]

    first = of("A", {0: 0.1, 1: 0.2, 2: 0.4, 3: 0.3})
    some, one, diverged = of("B", {1: 0.5, 2: 0.6, 7: 0.9}), of("C", {0: 0.3, 9: 0.4}), of("D", {0: 0.3, 1: 0.2}, reason="diverged")
    page = paged(tmp_path, *first, *some, *one, *diverged)
    shown = [cell.partition(" p ")[2] for cell, _ in page.line(0, "test AUC")]
    assert shown == ["", f"{ttest_rel([0.5, 0.6], [0.2, 0.4]).pvalue:.2g}", "", ""]
    data = [of(label, {0: value, 1: 3 * value}, config={"data": {"name": label}}) for label, value in (("E", 0.2), ("F", 0.3))]
    other = paged(tmp_path, *data[0], *data[1])
    assert " p " not in other.line(0, "test AUC")[1][0]
    assert "The methods are of different data" in other.source
    assert "paired t-test" not in other.source


def test_every_metric_of_a_run_and_every_cost_is_explained_where_it_stands(tmp_path: Path) -> None:
    own = {name for objective in objectives().values() for name in objective.metrics}
    for title in (*PLAIN, *RANKING, *own, "clamped", "floored"):
        assert meaning(f"test {title}")
        assert meaning(f"validation adapted {title}").endswith(meaning(title))
    page = paged(tmp_path, make(tmp_path / "a", "A", 0, [row(1, **{"test AUC": 0.5, "mine": 0.5})]))
    lines = {line[0][0] for line in page.tables[0]}
    assert {f"{title} {words}" for title, words in COSTS.items()} | {f"test AUC {meaning('AUC')}", "mine"} <= lines


def test_the_first_chart_in_sight_is_of_a_metric_that_was_followed(tmp_path: Path) -> None:
    followed = [row(r, **{"validation AUC": 0.5 + r / 9} | ({"test AUC": 0.6} if r == 3 else {})) for r in range(4)]
    page = paged(tmp_path, make(tmp_path / "a", "A", 0, followed))
    chosen = [attributes["id"] for tag, attributes in page.elements if tag == "input" and "checked" in attributes]
    assert chosen == ["rows0", "metric0", "axis0"]  # the AUC of validation rows, though that of test rows is there


def test_what_is_true_of_several_seeds_is_not_said_of_one(tmp_path: Path) -> None:
    tables = {"sites": SITES, "ledger": {"train": account(exchanges=1)}, "traffic": traffic([("up", "f", 1)])}
    one, two = (make(tmp_path / str(seed), "A", seed, **tables) for seed in range(2))
    alone, both = text(tmp_path, one), text(tmp_path, one, two)
    for words in ("over seeds", "over the seeds", "standard deviation", "A seed decides"):
        assert (words in alone, words in both) == (False, True), words
    assert "Values are of single runs" in alone


def test_sites_say_whose_rows_they_are_and_an_ap_names_no_worst_site(tmp_path: Path) -> None:
    sites = [SITES[0], *({**site, "AUC": 0.7, "AP": 0.2} for site in SITES[1:])]
    page = paged(tmp_path, make(tmp_path / "a", "A", sites=sites))
    assert "Scores of each site's own validation rows" in page.source
    kinds = {title: [kind for _, kind in page.column(place, "A")] for place, title in ((1, "AUC"), (2, "AP"))}
    assert kinds == {"AUC": ["worst", "", ""], "AP": ["", "", ""]}
    other = make(tmp_path / "b", "A", 1, sites=[{**site, "rows": 11} for site in sites])
    assert "has other rows from seed to seed" in text(tmp_path, tmp_path / "a", other)
