"""Odd files of one's own: every complaint names the file, the column and the line of the file, and labels mean what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import changed

from rookery import RookeryError
from rookery.data import read_csv, read_npz
from rookery.data.tables import ColumnSchema, Schema, from_frame
from rookery.data.tables.encoder import values_of
from rookery.errors import ConfigError, DataError
from rookery.studies import parse
from rookery.studies.build import build

ROWS = [f"{i},{'abc'[i % 3]},{i % 2}" for i in range(40)]


def lines(path: Path, *text: str, end: str = "\n", encoding: str = "utf-8") -> Path:
    path.write_bytes((end.join(text) + end).encode(encoding))
    return path


def broken(path: Path, line: int, row: str, **options: str) -> Path:
    """A file of 60 lines with blank lines and texts over two lines in it, and this row beginning on that line."""
    text, rest = ["x,kind,y", "", '1,"a', 'b",0', "", "2,c,1"], iter(ROWS)
    while len(text) < line - 1:
        text.append(next(rest))
    return lines(path, *text[: line - 1], row, *rest, **options)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("line", [7, 12, 33])
@pytest.mark.parametrize("given", [True, False], ids=["with a test file", "split"])
@pytest.mark.parametrize(("row", "words"), [
    ("3,a,", "every row of t.csv needs a value in the label column 'y', but line {} has no value there"),
    ("3,a,NA", "every row of t.csv needs a value in the label column 'y', but line {} has 'NA', which stands for a missing one"),
    ("3,,1", "every row of t.csv needs a value in the site column 'kind', but line {} has no value there"),
    ("3,1", "every line of t.csv must have 3 values, but line {} has 2")])
def test_a_line_is_the_files_own(row: str, words: str, given: bool, line: int, end: str, tmp_path: Path) -> None:
    path = broken(tmp_path / "t.csv", line, row, end=end)
    with pytest.raises(DataError, match=words.format(line)):
        read_csv(path, "y", site="kind" if row == "3,,1" else None, test=path if given else None, test_share=0.4)


@pytest.mark.parametrize("line", [7, 33])
def test_a_few_cells_that_are_no_numbers_are_missing_and_said_with_their_line(line: int, tmp_path: Path) -> None:
    path = broken(tmp_path / "t.csv", line, "inf,a,1")
    job = build(parse(changed(data={"name": ..., "csv": str(path), "label": "y"})))
    said = f"column 'x' of t.csv must hold finite numbers, but 1 of its 43 cells are none: 'inf' in line {line}; taken for missing"
    assert said in job.notes
    assert "x missing" in job.test.names["inputs"]


def test_a_test_row_far_from_the_training_rows_is_named(tmp_path: Path) -> None:
    train, test = lines(tmp_path / "a.csv", "x,y", "1,0", "2,1"), lines(tmp_path / "b.csv", "x,y", "1,0", "1e300,1")
    with pytest.raises(DataError, match=r"column 'x' of a.csv and b.csv must be near .*\(1.5 ± 0.5\), but line 3 of b.csv has 1e\+300"):
        read_csv(train, "y", test=test)
    with pytest.raises(DataError, match=r"'x' of c.csv and b.csv must hold numbers that can be standardised, but they go from -1e\+308"):
        read_csv(lines(tmp_path / "c.csv", "x,y", "1e308,0", "-1e308,1"), "y", test=test)


def test_labels_with_a_point_are_whole_numbers(tmp_path: Path) -> None:
    path = lines(tmp_path / "t.csv", "x,y", *(f"{i * 7 % 50},{1 + i % 3}.0" for i in range(60)))
    tree = changed(data={"name": ..., "csv": str(path), "label": "y", "positive": [1]})
    assert read_csv(path, "y")[0].classes == ("1", "2", "3")
    job = build(parse(tree))
    parts = (job.fed.data.fields["labels"], job.held.fields["labels"], job.test.fields["labels"])
    assert sum(int(part.sum()) for part in parts) == 20
    train, test = lines(tmp_path / "a.csv", "x,y", "1,0", "2,1"), lines(tmp_path / "b.csv", "x,y", "1,0.0", "3,1.0")
    assert read_csv(train, "y", test=test)[1].values("labels").tolist() == ["0", "1"]
    coded = lines(tmp_path / "c.csv", "x,y", "1,007", "2,008")
    assert read_csv(coded, "y", test=coded)[0].classes == ("007", "008")
    with pytest.raises(DataError, match=r"classes of the training rows \(007, 008\), but line 2 of a.csv has '0'"):
        read_csv(coded, "y", test=train)
    np.savez(tmp_path / "t.npz", inputs=np.zeros((4, 1)), labels=np.asarray([1.0, 2.0, 1.0, 2.0]))
    assert read_npz(tmp_path / "t.npz", test=tmp_path / "t.npz")[0].classes == ("1", "2")


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize(("arrays", "words"), [
    ({"labels": np.asarray([0.0, 1, np.nan, 1] * 5)}, r"labels\[2\] of t.npz is nan"),
    ({"labels": np.asarray([0.0, 1, 1, np.inf] * 5)}, r"labels\[3\] of t.npz is inf"),
    ({"labels": np.asarray([0, 0.5] * 10)}, r"labels\[1\] of t.npz is 0.5; round or bin"),
    ({"inputs": np.where(np.arange(40).reshape(20, 2) == 35, np.nan, 1.0)}, r"inputs\[17, 1\] of t.npz is nan"),
    ({"inputs": np.where(np.arange(40).reshape(20, 2) == 35, 1e300, 1.0)}, r"inputs\[17, 1\] of t.npz is 1e\+300"),
    ({"labels": np.zeros((20, 2), int)}, r"'labels' of t.npz has shape \(20, 2\)")])
def test_an_entry_of_an_npz_file_is_named(arrays: dict[str, Any], words: str, given: bool, tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, **{"inputs": np.zeros((20, 2)), "labels": np.arange(20) % 2, **arrays})
    with pytest.raises(DataError, match=words):
        read_npz(path, test=path if given else None, test_share=0.5)


@pytest.mark.parametrize(("text", "options", "words"), [
    (["x;y", "1;0", "2;1"], {"delimiter": ","}, r"must be separated by ',', but .* full of ';'; leave the delimiter out, or write ';'"),
    (["x,y", *(f"{i},same" for i in range(30))], {}, "all rows of t.csv have 'same' in the label column 'y'"),
    (["x;y", "1,5;0", "2,5;1"], {"delimiter": ","}, r"must be separated by ',', but .* full of ';'"),
    (["x,y", *ROWS], {"delimiter": ";;"}, "delimiter is the one character"),
    (["x,y", "1,0", "2,1"], {"label": "Y"}, "has no column 'Y'"),
    ([""], {}, "must have rows of data, and has none"), (["x,y"], {}, "must have rows of data, and has none"),
    (["x,y,x", "1,0,2"], {}, "'x' stands twice")])
def test_an_odd_table_is_answered_by_a_sentence(text: list[str], options: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = lines(tmp_path / "t.csv", *text)
    with pytest.raises(RookeryError, match=words):
        build(parse(changed(data={"name": ..., "csv": str(path), "label": "y", **options})))


def test_a_byte_order_mark_semicolons_reserved_names_and_codes_are_read(tmp_path: Path) -> None:
    text = ["index;inputs;labels;site;y", *(f"{i};{i % 5};{i % 7};{'ab'[i % 2]};{'no' if i % 3 else 'yes'}" for i in range(60))]
    path = lines(tmp_path / "Zeilen 1.csv", *text, end="\r\n", encoding="utf-8-sig")
    tree = changed(data={"name": ..., "csv": str(path), "label": "y", "text": ["labels"], "category_rows": 1})
    job = build(parse(tree))  # `index` counts the rows, and `site` was not named as the sites' column
    assert job.test.names["inputs"] == ("inputs", *(f"labels={i}" for i in range(7)), "site=a", "site=b")
    assert job.test.classes == ("no", "yes")
    with pytest.raises(ConfigError, match="text and schema are about the columns of a table"):
        parse(changed(data={"name": ..., "npz": "t.npz", "text": ["x"]}))


def test_decimal_commas_that_a_schema_does_not_name_are_said() -> None:
    schema = Schema("y", ("0", "1"), {"x": ColumnSchema("number")})
    with pytest.raises(DataError, match=r"'2,5' in row 2, with ',' before decimals where '\.' is meant, which is more than the share"):
        values_of(from_frame({"x": ["1,5", "2,5"]}), "x", schema)
    with pytest.raises(DataError) as caught:
        values_of(from_frame({"x": ["high", "low"]}), "x", schema)
    assert "decimals" not in str(caught.value)
