"""Tables: a user's own CSV, NPZ and pictures, text formats of publishers, embedded sets; and what is refused, by which sentence."""

from __future__ import annotations

import gzip
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rookery import Data
from rookery.data import DATASETS, Table, by_column, load, read_csv, read_npz
from rookery.data.readers import libsvm, medmnist_parts
from rookery.errors import DataError

R = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOKERY_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


def column(table: Table, name: str) -> list[float]:
    return table.fields["inputs"][:, table.names["inputs"].index(name)].tolist()


# CSV

PATIENTS = ("age,ward,dose,clinic,patient,outcome",
            "20,A,1,north,p1,ill", "30,B,,south,p2,well", "40,?,3,north,p3,well", "50,A,5,west,p4,ill")


def test_csv_columns_are_standardised_one_hot_and_filled_in_by_the_training_rows(tmp_path: Path) -> None:
    train = write(tmp_path / "ward.csv", *PATIENTS)
    test = write(tmp_path / "later.csv", PATIENTS[0], "35,C,NA,north,p9,well", "46.180339887498945, B ,3,east,p8,ill")
    first, second = read_csv(train, "outcome", test=test, site="clinic", group="patient", keep=["ward"])
    assert first.names["inputs"] == ("age", "dose", "dose missing", "ward=A", "ward=B", "ward missing")
    age, dose = np.asarray([20, 30, 40, 50.0]), np.asarray([1, 3, 5.0])
    np.testing.assert_allclose(column(first, "age"), (age - 35) / age.std(), rtol=1e-6)
    np.testing.assert_allclose(column(first, "dose"), (np.asarray([1, 3, 3, 5]) - 3) / dose.std(), rtol=1e-6)
    assert column(first, "dose missing") == [0, 1, 0, 0]
    assert [column(first, f"ward{ward}") for ward in (" missing", "=A", "=B")] == [[0, 0, 1, 0], [1, 0, 0, 1], [0, 1, 0, 0]]
    np.testing.assert_allclose(column(second, "age"), [0, 1], atol=1e-6)
    # an unknown ward sets no column, as no training row had one
    assert [column(second, f"ward{ward}") for ward in (" missing", "=A", "=B")] == [[0, 0], [0, 0], [0, 1]]
    assert column(second, "dose missing") == [1, 0]
    assert first.classes == ("well", "ill")  # of two classes the positive one comes second
    assert second.values("labels").tolist() == ["well", "ill"]
    assert first.values("site").tolist() == ["north", "south", "north", "west"]
    assert second.values("site").tolist() == ["north", "east"]
    assert first.values("group").tolist() == ["p1", "p2", "p3", "p4"]
    assert second.values("ward").tolist() == ["C", "B"]
    federated = Data.by_site(first.fields, by_column(first.values("site")))
    assert federated.names == ("north", "south", "west")
    assert federated.sizes.tolist() == [2, 1, 1]


def test_a_csv_without_test_file_is_split_by_group(tmp_path: Path) -> None:
    path = write(tmp_path / "visits.csv", "x,patient,y", *(f"{i * 7 % 60},p{i // 4},{i % 2}" for i in range(80)))
    train, test = read_csv(path, "y", group="patient", test_share=0.25)
    assert len(train) + len(test) == 80
    assert 4 <= len(test) <= 40  # by a hash of the patient, about a share
    assert not set(train.values("group")) & set(test.values("group"))
    assert abs(float(train.fields["inputs"].mean())) < 1e-6
    np.testing.assert_allclose(train.fields["inputs"].std(correction=0), 1, rtol=1e-6)
    half = write(tmp_path / "half.csv", "x,patient,y", *(f"{i * 7 % 60},p{i // 4},{i % 2}" for i in range(40)))
    again, _ = read_csv(half, "y", group="patient")
    assert set(again.values("group")) == {name for name in train.values("group") if int(name[1:]) < 10}  # whatever other rows there are
    assert train.classes == ("0", "1")


def test_csv_without_header_with_comments_quotes_and_spaces(data: Path) -> None:
    write(data / "tabular" / "page-blocks0.dat", "@relation x", "@data", *(f"{i}, .{i}, {'positive' if i % 4 == 0 else 'negative'}"
                                                                         for i in range(1, 41)))
    train, test = load("page-blocks")
    assert train.classes == ("negative", "positive")
    assert (len(train), len(test), int(train.fields["labels"].sum() + test.fields["labels"].sum())) == (30, 10, 10)
    write(data / "tabular" / "mammography.csv", *(f"{i},{'1' if i % 5 == 0 else '-1'!r}" for i in range(40)))
    assert load("mammography")[0].classes == ("-1", "1")
    for file in ("sat.trn", "sat.tst"):
        write(data / "tabular" / file, "1 2  3 7", "4 5 6 10 ", "7 8 9 2")
    train, _ = load("satlog")
    assert train.classes == ("2", "7", "10")
    assert train.fields["labels"].tolist() == [1, 2, 0]
    assert train.fields["inputs"].shape == (3, 3)


@pytest.mark.parametrize(("lines", "options", "sentence"), [
    ((), {}, "must have rows of data, and has none"),
    (("x,y",), {}, "must have rows of data, and has none"),
    (("x,y", "1,a", "2"), {}, "every line of t.csv must have 2 values, but line 3 has 1"),
    (("x,y", "1,a", "2,b,c"), {}, "every line of t.csv must have 2 values, but line 3 has 3"),
    (("x,x", "1,a"), {}, "must have different names, but 'x' stands twice; rename one"),
    (("x,label", "1,a"), {"label": "lable"}, "has no column 'lable'; did you mean 'label'"),
    (("x,q", "1,a"), {}, r"has no column 'y'; it has \['x', 'q'\]"),
    (("x,y", "1,a"), {"site": "hospital"}, "has no column 'hospital'"),
    (("x,y", "1,a"), {"label": 7}, "has 2 columns, so the label cannot be column 7; write -1"),
    (("x,y", "nan,a", "NaN,b"), {}, "needs at least one column besides the label, the site and those that are left out; left out are 'x' "),
    (("x,y", "1,a", "inf,b"), {},
     r"column 'x' of t.csv must hold finite numbers, but 1 of its 2 cells are none: 'inf' in line 3 of t.csv, which is more"),
    (("x,y", "1,a", "2,"), {}, "every row of t.csv needs a value in the label column 'y', but line 3 has no value there"),
    (("x,s,y", "1,,a", "2,n,b"), {"site": "s"}, "needs a value in the site column 's', but line 2 has no value there"),
    (("x,y", *(f"n{i},{'ab'[i % 2]}" for i in range(1001))), {},  # names, no categories
     "needs at least one column besides the label, the site and those that are left out; left out are 'x' "),
    (("x,y", "1,a", "2,b"), {"drop": ["x"]},
     "needs at least one column besides the label, the site and those that are left out; left out are 'x' "),
    (("x,y", "1,a", "2,a"), {}, "there must be two classes at least; all rows of t.csv have 'a'"),
    (("x,y", "1,Yes", "2,yes", "3,no"), {}, "classes must differ in more than case: .*'Yes' and 'yes'"),
    (("x,y", "1,a", "2,b"), {"site": "y"}, "label, site and group are different columns, but 'y' was named for two"),
    (("index,y", "1,a", "2,b"), {"keep": ["index"]}, "column 'index' cannot be kept under its name"),
])
def test_a_bad_csv_is_refused_by_a_sentence(lines: tuple[str, ...], options: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", *lines) if lines else write(tmp_path / "t.csv", "")
    options = {"label": "y", **options}
    with pytest.raises(DataError, match=sentence) as caught:
        read_csv(path, test=path, **options)
    assert "\n" not in str(caught.value)


def test_columns_that_the_test_file_lacks_and_texts_among_its_numbers_are_refused(tmp_path: Path) -> None:
    train = write(tmp_path / "t.csv", "x,y", "1,a", "2,b")
    with pytest.raises(DataError, match=r"u.csv has no column 'x'; it has \['z', 'y'\]"):
        read_csv(train, "y", test=write(tmp_path / "u.csv", "z,y", "1,a"))
    with pytest.raises(DataError, match=r"column 'x' of t.csv and v.csv must hold finite numbers, but 1 of its 3 cells .* 'one' in line 2 "
                       r"of v.csv"):
        read_csv(train, "y", test=write(tmp_path / "v.csv", "x,y", "one,a"))
    with pytest.raises(DataError, match=r"no column 'z'; .* write a header line above it, or name the columns as header"):
        read_csv(write(tmp_path / "bare.csv", "1,a", "2,b"), "z")
    with pytest.raises(DataError, match=r"there is no file 'w.csv', neither here nor in the data folder .*; write its full path"):
        read_csv("w.csv", "y")
    _, test = read_csv(train, "y", test=write(tmp_path / "more.csv", "note,y,x", "n,b,2", "m,a,1"))
    assert test.values("labels").tolist() == ["b", "a"]  # other columns and another order are no matter


# NPZ

def test_npz_round_trips(tmp_path: Path) -> None:
    own: dict[str, Any] = {"inputs": R.standard_normal((40, 3)), "labels": R.integers(0, 3, 40) * 10,
                           "ward": np.asarray(["east", "west"] * 20), "patient": np.arange(40) // 4}
    np.savez(tmp_path / "rows.npz", **own)
    train, test = read_npz(tmp_path / "rows.npz", site="ward", group="patient")
    assert train.classes == ("0", "10", "20")
    assert not set(train.values("group")) & set(test.values("group"))
    rows = {(tuple(x), label, ward) for table in (train, test) for x, label, ward in
            zip(table.fields["inputs"].tolist(), table.values("labels"), table.values("site"), strict=True)}
    assert rows == {(tuple(x), str(label), ward) for x, label, ward in
                    zip(own["inputs"].astype(np.float32).tolist(), own["labels"], own["ward"], strict=True)}
    images = R.integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", x=images, y=np.arange(6) % 2)
    train, _ = read_npz(tmp_path / "images.npz", "y", "x", test=tmp_path / "images.npz")
    assert torch.equal(train.fields["inputs"], torch.from_numpy(images.transpose(0, 3, 1, 2).astype(np.float32)) / 255)


def test_a_bad_npz_is_refused_by_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    for arrays, sentence in (
        ({"inputs": np.zeros((2, 1))}, "has no array 'labels'; it has .*: say which it is with inputs= or label="),
        ({"inputs": np.zeros((2, 1)), "labels": np.zeros(3)}, r"one entry a row, .*'labels' has shape \(3,\), 'inputs' has \(2, 1\)"),
        ({"inputs": np.zeros((2, 1)), "labels": np.asarray([0.5, 1])}, "labels must be whole numbers or texts"),
        ({"inputs": np.asarray([["a"], ["b"]]), "labels": np.arange(2)}, "inputs must be numbers, but are <U1"),
        ({"inputs": np.asarray([[{}], [{}]], dtype=object), "labels": np.arange(2)}, "NPZ file of plain arrays, without Python objects"),
        ({"inputs": np.asarray([[0.0], [np.nan]]), "labels": np.arange(2)}, r"inputs\[1, 0\] of t.npz is nan"),
    ):
        np.savez(path, **arrays)
        with pytest.raises(DataError, match=sentence):
            read_npz(path, test=path)
    path.write_bytes(b"no archive")
    with pytest.raises(DataError, match="must be an NPZ file"):
        read_npz(path)


# text formats of publishers, embedded sets

def test_adult_reads_question_marks_the_first_line_and_full_stops(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    person = "{}, {}, 77516, Bachelors, 13, Never-married, {}, Not-in-family, {}, {}, 2174, 0, 40, United-States, {}"
    write(data / "adult" / "adult.data", person.format(39, "State-gov", "Sales", "White", "Male", "<=50K"),
          person.format(50, "?", "?", "Black", "Female", ">50K"), person.format(31, "Private", "Sales", "White", "Female", "<=50K"), "")
    write(data / "adult" / "adult.test", "|1x3 Cross validator", person.format(40, "Private", "?", "Black", "Male", ">50K."), "")
    files = importlib.import_module("rookery.data.readers.adult").FILES
    digest = importlib.import_module("rookery.data.folder")._digest
    for name in files:
        monkeypatch.setitem(files, name, digest(data / "adult" / name, "0" * 32))
    train, test = load("adult")
    assert (len(train), len(test)) == (3, 1)
    assert train.classes == ("<=50K", ">50K")
    assert train.values("labels").tolist() == ["<=50K", ">50K", "<=50K"]
    assert test.values("labels").tolist() == [">50K"]
    assert train.values("sex").tolist() == ["Male", "Female", "Female"]
    assert test.values("race").tolist() == ["Black"]
    assert column(train, "workclass missing") == [0, 1, 0]
    assert (column(test, "workclass=Private"), column(test, "occupation missing"), column(test, "age")) == ([1], [1], [0])
    ages = np.asarray([39, 50, 31])
    np.testing.assert_allclose(column(train, "age"), (ages - 40) / ages.std(), rtol=1e-5)


@pytest.mark.parametrize("packed", [True, False])
def test_libsvm_text_round_trips(packed: bool, data: Path) -> None:
    for name, lines in (("tiny", ("+1 1:0.5 4:2", "-1 2:1", "-1", "+1 3:-1.5")), ("tiny.t", ("-1 1:1",))):
        path = write(data / "libsvm" / name, *lines)
        if packed:
            path.with_name(f"{name}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    train, test = libsvm("tiny")
    assert train.fields["inputs"].tolist() == [[0.5, 0, 0, 2], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, -1.5, 0]]
    assert train.classes == ("-1", "1")
    assert train.fields["labels"].tolist() == [1, 0, 0, 1]
    assert test.fields["inputs"].tolist() == [[1, 0, 0, 0]]
    for path in (data / "libsvm").glob("tiny.t*"):
        path.unlink()
    with pytest.raises(DataError, match=r"'tiny.t' is not in the data folder; download it .* ROOKERY_DATA .* test_share=0.2"):
        libsvm("tiny")
    assert [len(table) for table in libsvm("tiny", test_share=0.5)] == [2, 2]
    write(data / "libsvm" / "zero", "1 0:1")
    with pytest.raises(DataError, match="must be LIBSVM text with columns counted from 1"):
        libsvm("zero", test_share=0.5)


@pytest.mark.parametrize(("name", "rows", "shape", "classes"), [
    ("digits", 1797, (1, 8, 8), 10), ("breast-cancer", 569, (30,), 2), ("wine", 178, (13,), 3), ("iris", 150, (4,), 3)])
def test_embedded_sets_are_whole_and_split_the_same_each_time(name: str, rows: int, shape: tuple[int, ...], classes: int) -> None:
    train, test = load(name)
    assert len(train) + len(test) == rows
    assert train.fields["inputs"].shape[1:] == shape
    assert len(train.classes) == classes
    assert torch.equal(load(name)[1].fields["inputs"], test.fields["inputs"])
    assert not torch.equal(load(name, seed=1)[1].fields["inputs"], test.fields["inputs"])


def test_an_unknown_name_suggests_the_nearest() -> None:
    for wrong, right in (("minst", "mnist"), ("CIFAR-10", "cifar10"), ("breast_cancer", "breast-cancer"), ("fashion", "fashion-mnist")):
        with pytest.raises(DataError, match=rf"there is no data set '{wrong}'; did you mean '{right}'\?"):
            load(wrong)
    with pytest.raises(DataError, match=r"there is no data set 'zzz'; there are \['a9a', 'adult'"):
        load("zzz")
    with pytest.raises(DataError, match=r"did you mean 'bloodmnist'\?"):
        medmnist_parts("bloodmnits")
    assert set(DATASETS) >= {"mnist", "fashion-mnist", "cifar10", "cifar100", "stl10", "adult", "omniglot", "a9a", "pneumoniamnist"}


# tables

def table(labels: Any, **fields: Any) -> Table:
    labels = torch.as_tensor(labels)
    return Table({"inputs": torch.zeros(len(labels), 2), "labels": labels, **fields}, ("a", "b", "c"), "toy")


def test_a_bad_table_is_refused_by_a_sentence() -> None:
    with pytest.raises(DataError, match=r"table 'toy' needs a field 'labels'; it has \['inputs'\]"):
        Table({"inputs": torch.zeros(1)}, ("a",), "toy")
    with pytest.raises(DataError, match="table 'toy' has no rows"):
        table(torch.zeros(0, dtype=torch.int64))
    with pytest.raises(DataError, match=r"must have equally many rows, but have .*'age': 3"):
        table([0, 1], age=torch.zeros(3))
    with pytest.raises(DataError, match="field 'age' of table 'toy' must be finite, but row 1 is not; drop the column or fill it in"):
        table([0, 1], age=torch.tensor([0.0, float("nan")]))
    with pytest.raises(DataError, match="labels of table 'toy' must be int64"):
        table([0.0, 1.0])
    with pytest.raises(DataError, match="must lie between 0 and 2, but go from 0 to 3"):
        table([0, 3])
    with pytest.raises(DataError, match=r"'d' is not a class of table 'toy'; the classes are \('a', 'b', 'c'\)"):
        table([0, 1]).binary(["d"])
    with pytest.raises(DataError, match="some classes must be positive and some not, but 3 of 3 were named"):
        table([0, 1]).binary([0, 1, "c"])
    with pytest.raises(DataError, match=r"no names for the field 'age'; it has them for \['labels'\]"):
        table([0, 1], age=torch.zeros(2)).values("age")


def test_rows_are_taken_by_number_or_mask_and_classes_made_positive_by_number_or_name() -> None:
    whole = table([0, 1, 2, 1], row=torch.arange(4))
    assert whole.take(np.asarray([3, 0])).fields["row"].tolist() == [3, 0]
    assert whole.take(np.asarray([True, False, False, True])).fields["row"].tolist() == [0, 3]
    assert whole.binary([2, "b"]).fields["labels"].tolist() == [0, 1, 1, 1]
    assert whole.binary(range(2, 3)).classes == ("negative", "positive")
