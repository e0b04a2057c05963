"""The data folder: where it is, what is downloaded, what is checked, and the sentence when a file cannot be had."""

from __future__ import annotations

import hashlib
import importlib
import io
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from rookery.data import fetch, folder, load
from rookery.errors import DataError


def unreachable(*_: Any, **__: Any) -> Any:
    raise urllib.error.URLError("no network")


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, and no network."""
    monkeypatch.setenv("ROOKERY_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(urllib.request, "urlopen", unreachable)
    return tmp_path / "data"


def put(path: Path, content: bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return hashlib.md5(content).hexdigest()


def test_the_data_folder_is_the_variable_s_else_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert folder() == tmp_path / "data"
    monkeypatch.delenv("ROOKERY_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert folder() == tmp_path / "cache" / "rookery"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert folder() == tmp_path / "home" / ".cache" / "rookery"


def test_a_missing_file_without_network_is_one_sentence_that_says_what_to_do(data: Path) -> None:
    with pytest.raises(DataError) as caught:
        load("mnist")
    sentence = str(caught.value)
    for part in ("'train-images-idx3-ubyte.gz'", "https://ossci-datasets.s3.amazonaws.com/mnist/train-images-idx3-ubyte.gz",
                 str(data / "mnist"), "ROOKERY_DATA", "no network"):
        assert part in sentence
    assert "\n" not in sentence
    assert list((data / "mnist").iterdir()) == []


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_a_download_is_checked_and_renamed_and_made_once(algorithm: str, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: asked.append(url) or io.BytesIO(b"rows"))
    checksum = hashlib.new(algorithm, b"rows").hexdigest()
    for _ in range(2):
        assert fetch("set/file", "http://publisher/file", checksum).read_bytes() == b"rows"
    assert asked == ["http://publisher/file"]
    assert sorted(path.name for path in (data / "set").iterdir()) == [".file.checked", "file"]
    with pytest.raises(DataError, match=r"download of 'set/other' .* must have the checksum 0000"):
        fetch("set/other", "http://publisher/other", "0" * len(checksum))
    assert not (data / "set" / "other").exists()
    assert not list((data / "set").glob("*.part"))


def test_a_file_with_another_checksum_is_refused_and_a_right_one_is_read_once(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checksum = put(data / "set" / "file", b"rows")
    with pytest.raises(DataError, match=rf"must have the published checksum {'0' * 32}, but has {checksum}; delete it"):
        fetch("set/file", "http://publisher/file", "0" * 32)
    module: Any = importlib.import_module("rookery.data.folder")  # the package exports a function of this name too
    digest, calls = module._digest, []
    monkeypatch.setattr(module, "_digest", lambda *args: calls.append(args) or digest(*args))
    for _ in range(3):
        fetch("set/file", "http://publisher/file", checksum)
    assert len(calls) == 1
    put(data / "set" / "file", b"other rows")
    with pytest.raises(DataError, match="must have the published checksum"):
        fetch("set/file", "http://publisher/file", checksum)


def test_a_folder_one_may_only_read_is_checked_each_time(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checksum = put(data / "file", b"rows")

    def refuse(*_: Any, **__: Any) -> int:
        raise PermissionError("read-only")

    monkeypatch.setattr(Path, "write_text", refuse)
    for _ in range(2):
        assert fetch("file", "http://publisher/file", checksum) == data / "file"
    assert [path.name for path in data.iterdir()] == ["file"]


def test_an_archive_packed_anew_is_left_to_its_reader_but_a_download_is_not(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(data / "file", b"rows")
    assert fetch("file", "http://publisher/file", "0" * 32, remade=True) == data / "file"
    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: io.BytesIO(b"rows"))
    with pytest.raises(DataError, match="must have the checksum 0000"):
        fetch("other", "http://publisher/other", "0" * 32, remade=True)
