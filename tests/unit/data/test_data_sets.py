"""Readers return what the publishers' files hold: tiny files in each canonical format."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import io
import os
import pickle
import struct
import tarfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image

from rookery.data import Table, load
from rookery.data.readers import medmnist_parts, omniglot_splits
from rookery.errors import DataError

R = np.random.default_rng(0)


def module(name: str) -> Any:
    """By its full name, since the package also exports functions called like their files."""
    return importlib.import_module(f"rookery.data.{name}")


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def put(path: Path, content: bytes) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return content


def some_bytes(*shape: int) -> Any:
    return R.integers(0, 256, shape, dtype=np.uint8)


def same_pixels(table: Table, images: Any) -> bool:
    inputs = table.fields["inputs"]
    assert inputs.dtype == torch.float32
    assert table.fields["labels"].dtype == torch.int64
    return torch.equal(inputs, torch.from_numpy(images.astype(np.float32)) / 255)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, and no network."""
    monkeypatch.setenv("ROOKERY_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: (_ for _ in ()).throw(urllib.error.URLError("no network")))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


# images

def idx(array: Any) -> bytes:
    return gzip.compress(bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes())


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx_files_round_trip(name: str, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {part: (some_bytes(n, 28, 28), np.arange(n, dtype=np.uint8) % 10) for part, n in (("train", 12), ("t10k", 5))}
    for part, (images, labels) in parts.items():
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            file = f"{name}/{part}-{kind}-ubyte.gz"
            monkeypatch.setitem(module("readers.mnist").FILES, file, ("http://publisher/", md5(put(data / file, idx(array)))))
    for table, (images, labels) in zip(load(name), parts.values(), strict=True):
        assert same_pixels(table, images[:, None])
        assert table.fields["labels"].tolist() == labels.tolist()
        assert len(table.classes) == 10
    file = f"{name}/train-images-idx3-ubyte.gz"
    monkeypatch.setitem(module("readers.mnist").FILES, file, ("http://publisher/", md5(put(data / file, idx(parts["train"][1])))))
    with pytest.raises(DataError, match="must be an idx file of bytes with 3 axes, but begins with 00 00 08 01"):
        load(name)


class OldPickler(pickle._Pickler):
    """Writes texts as Python 2 did, which is how CIFAR's batches are written."""

    dispatch: ClassVar[Any] = dict(pickle._Pickler.dispatch)

    def text(self, value: Any) -> None:
        raw = value if isinstance(value, bytes) else value.encode()
        self.write(b"T" + struct.pack("<i", len(raw)) + raw)
        self.memoize(value)

    dispatch[bytes] = dispatch[str] = text


def old_pickle(value: Any) -> bytes:
    stream = io.BytesIO()
    OldPickler(stream, 2).dump(value)
    return stream.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def tar_of(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("form", [0, 1], ids=["binary", "python"])
@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar_round_trips_in_all_published_forms(name: str, form: int, packed: bool, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published = module("readers.cifar").FORMS[name][form]
    fine = [f"class {i}" for i in range(10 if name == "cifar10" else 100)]
    coarse = [f"super {i}" for i in range(20)]
    files, images, labels, supers = {}, {}, {}, {}
    for i, file in enumerate([*published.train, published.test]):
        images[file], labels[file] = some_bytes(4, 3072), R.integers(0, len(fine), 4, dtype=np.uint8)
        supers[file] = R.integers(0, 20, 4, dtype=np.uint8)
        columns = [labels[file]] if name == "cifar10" else [supers[file], labels[file]]
        keys = ["labels"] if name == "cifar10" else ["coarse_labels", "fine_labels"]
        batch = {"data": images[file], "batch_label": f"batch {i}", **{k: c.tolist() for k, c in zip(keys, columns, strict=True)}}
        files[file] = np.concatenate([np.stack(columns, 1), images[file]], 1).tobytes() if form == 0 else old_pickle(batch)
    if form == 0:
        files |= {file: "\n".join([*words, ""]).encode() for file, words in zip(published.meta, (fine, coarse), strict=False)}
    else:
        files[published.meta[0]] = old_pickle({"label_names": fine, "fine_label_names": fine, "coarse_label_names": coarse})
    files = {f"{published.folder}/{file}": content for file, content in files.items()}
    if packed:
        content = put(data / published.archive, tar_of(files))
        forms = list(module("readers.cifar").FORMS[name])
        forms[form] = published._replace(checksum=md5(content))
        monkeypatch.setitem(module("readers.cifar").FORMS, name, tuple(forms))
    else:
        for file, content in files.items():
            put(data / file, content)
    for table, own in zip(load(name), (published.train, [published.test]), strict=True):
        assert same_pixels(table, np.concatenate([images[file] for file in own]).reshape(-1, 3, 32, 32))
        assert table.fields["labels"].tolist() == [int(label) for file in own for label in labels[file]]
        assert table.classes == tuple(fine)
        if name == "cifar100":
            assert table.values("coarse").tolist() == [f"super {label}" for file in own for label in supers[file]]


def test_a_pickle_that_asks_for_anything_but_arrays_is_refused(data: Path, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (os.mkdir, (str(tmp_path / "owned"),))

    for file in [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch", "batches.meta"]:
        put(data / "cifar-10-batches-py" / file, old_pickle({"label_names": Evil()}))
    with pytest.raises(DataError, match=r"numbers and arrays only, but it asks for \w+\.mkdir; take the binary version"):
        load("cifar10")
    assert not (tmp_path / "owned").exists()


def test_stl10_round_trips_and_its_columns_become_rows(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {part: (some_bytes(n, 3, 96, 96), np.arange(n, dtype=np.uint8) % 10) for part, n in (("train", 3), ("test", 2))}
    words = "airplane bird car cat deer dog horse monkey ship truck"
    files = {"stl10_binary/class_names.txt": words.replace(" ", "\n").encode()}
    for part, (images, labels) in parts.items():
        files[f"stl10_binary/{part}_X.bin"] = images.transpose(0, 1, 3, 2).tobytes()
        files[f"stl10_binary/{part}_y.bin"] = (labels + 1).tobytes()
    monkeypatch.setattr(module("readers.stl10"), "CHECKSUM", md5(put(data / "stl10_binary.tar.gz", tar_of(files))))
    for table, (images, labels) in zip(load("stl10"), parts.values(), strict=True):
        assert same_pixels(table, images)
        assert table.fields["labels"].tolist() == labels.tolist()
        assert table.classes == tuple(words.split())
    put(data / "stl10_binary" / "train_X.bin", b"")
    with pytest.raises(DataError, match=r"must hold 'stl10_binary/train_y.bin', and does not; delete it and unpack"):
        load("stl10")


def png(ink: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(~ink).save(stream, "PNG")
    return stream.getvalue()


def test_omniglot_zips_round_trip_and_average_areas(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawings = R.random((5, 20, 105, 105)) < 0.2
    characters = [("Greek", 1, 1), ("Greek", 2, 2), ("Tifinagh", 1, 3), ("Futurama", 1, 4), ("Futurama", 2, 5)]
    for part, own in (("images_background", characters[:3]), ("images_evaluation", characters[3:])):
        monkeypatch.setitem(module("readers.omniglot").FILES, part, ("0" * 32, len(own)))
        (data / "omniglot").mkdir(exist_ok=True)
        with zipfile.ZipFile(data / "omniglot" / f"{part}.zip", "w") as archive:
            for alphabet, k, number in reversed(own):
                for drawing in range(20):
                    archive.writestr(f"{part}/{alphabet}/character{k:02d}/{number:04d}_{drawing + 1:02d}.png",
                                     png(drawings[number - 1, drawing]))
    background, evaluation = load("omniglot", size=105)
    both = torch.cat([background.fields["inputs"], evaluation.fields["inputs"]])
    assert torch.equal(both, torch.from_numpy(drawings.reshape(100, 1, 105, 105).astype(np.float32)))
    assert evaluation.fields["labels"].tolist() == [3] * 20 + [4] * 20
    assert evaluation.values("alphabet").tolist() == ["Futurama"] * 40
    assert background.values("labels")[25] == "Greek/character02"
    assert background.fields["drawing"][:21].tolist() == [*range(20), 0]
    third = drawings.reshape(100, 1, 35, 3, 35, 3).mean((3, 5))
    np.testing.assert_allclose(torch.cat([t.fields["inputs"] for t in load("omniglot", size=35)]), third, atol=1e-6)
    np.testing.assert_allclose(load("omniglot")[0].fields["inputs"].mean((1, 2, 3)), drawings[:3].reshape(60, -1).mean(1), atol=1e-5)

    with pytest.raises(DataError, match=r"few-shot split needs omniglot/splits.csv.*ROOKERY_DATA"):
        omniglot_splits()
    parts = {"train": ["Greek/character01", "Futurama/character02"], "val": ["Greek/character02"], "test": ["Tifinagh/character01"]}
    for part, names in parts.items():
        put(data / "omniglot" / f"{part}.txt", "\n".join(f"{name}/rot{r}" for name in names for r in ("000", "090")).encode())
    lines = [f"{name.replace('/', ',')},{part}" for part, names in parts.items() for name in names]
    for _ in range(2):  # from the lists, then from the table
        assert {part: sorted(set(table.values("labels"))) for part, table in omniglot_splits().items()} == {
            part: sorted(names) for part, names in parts.items()}
        put(data / "omniglot" / "splits.csv", "\n".join(["alphabet,character,split", *lines]).encode())
    monkeypatch.setitem(module("readers.omniglot").FILES, "images_background", ("0" * 32, 964))
    with pytest.raises(DataError, match="must hold 964 characters drawn 20 times each, but holds 3 characters and 60 drawings"):
        load("omniglot")


def test_medmnist_reads_three_parts_and_says_when_a_file_is_reassembled(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own: dict[str, Any] = {}
    for part, n in (("train", 6), ("val", 3), ("test", 4)):
        own |= {f"{part}_images": some_bytes(n, 28, 28), f"{part}_labels": R.integers(0, 2, (n, 1), dtype=np.uint8)}
    (data / "medmnist").mkdir()
    for name in ("pneumoniamnist_reassembled", "pneumoniamnist"):
        np.savez(data / "medmnist" / f"{name}.npz", **own)
        checksum = md5((data / "medmnist" / f"{name}.npz").read_bytes())
        monkeypatch.setitem(module("readers.medmnist").FILES, "pneumoniamnist", (checksum, ("normal", "pneumonia")))
        for part, table in medmnist_parts("pneumoniamnist").items():
            assert table.name == name
            assert same_pixels(table, own[f"{part}_images"][:, None])
            assert table.fields["labels"].tolist() == own[f"{part}_labels"][:, 0].tolist()
    monkeypatch.setitem(module("readers.medmnist").FILES, "pneumoniamnist", ("0" * 32, ("normal", "pneumonia")))
    with pytest.raises(DataError, match="must have the published checksum"):
        load("pneumoniamnist")
