"""Files that grow by whole lines."""

from __future__ import annotations

import gc
import os
import resource
import signal
from pathlib import Path

import pytest

from rookery.errors import WriteError
from rookery.training.files import Lines, append


def test_lines_are_there_as_soon_as_they_are_added(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "a")
    for k in range(3):
        lines.append(f"line {k} é")
        assert (tmp_path / "a").read_text() == "".join(f"line {i} é\n" for i in range(k + 1))


def test_a_file_that_was_moved_or_deleted_is_made_anew(tmp_path: Path) -> None:
    """Nothing may go to a file that nobody sees."""
    path, lines = tmp_path / "a", Lines(tmp_path / "a")
    lines.append("first")
    path.rename(tmp_path / "rotated")
    lines.append("second")
    path.unlink()
    lines.append("third")
    assert (path.read_text(), (tmp_path / "rotated").read_text()) == ("third\n", "first\n")


def test_two_that_add_to_one_file_take_nothing_from_each_other(tmp_path: Path) -> None:
    path, lines = tmp_path / "a", Lines(tmp_path / "a")
    for word in ("a", "b"):
        lines.append(word)
        append(path, word.upper())
    assert path.read_text() == "a\nA\nb\nB\n"


def test_a_line_that_was_cut_off_is_ended(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("whole\nhal")
    append(tmp_path / "a", "next")
    assert (tmp_path / "a").read_text() == "whole\nhal\nnext\n"


def test_what_does_not_fit_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    lines, before = Lines(tmp_path / "a"), resource.getrlimit(resource.RLIMIT_FSIZE)
    lines.append("x" * 50)
    kept = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(WriteError, match=r"a could not be written \(File too large\)"):
            lines.append("y" * 80)  # half of it is written before it fails
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, kept)
    lines.append("z")
    assert (tmp_path / "a").read_text() == "x" * 50 + "\nz\n"


def test_no_file_stays_open_without_its_lines(tmp_path: Path) -> None:
    gc.collect()
    number = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else None
    for k in range(20):
        Lines(tmp_path / str(k)).append("x")
    if number is not None:
        assert len(os.listdir("/proc/self/fd")) <= number
