"""The commands of an owner of rows: invitations, the log, and a site that says where it listens."""

from __future__ import annotations

from pathlib import Path

import pytest
from hosts import ALL, RUN, answer, error, frame, host, step, welcome
from running import command

FILE = '[site]\nname = "north"\nlisten = "127.0.0.1:0"\nfolder = "kept"\n[rows]\nown = "owners:rows"\n[may]\nalgorithms = ["FedAvg"]\n'


def test_the_log_as_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "site.toml"
    file.write_text(FILE)
    assert command(monkeypatch, "site", "log", str(file)) == 0
    assert capsys.readouterr().out == f"nobody has asked north anything yet: {tmp_path / 'kept'} has no log\n"
    at = host(tmp_path / "kept", ALL)
    error(at, frame(1, run="[bold]nobody"))
    welcome(at)
    answer(at, frame(1, step("told"), step(out=3), want=[2, 3]))
    error(at, frame(2, step("fails")))
    assert command(monkeypatch, "site", "log", str(file)) == 0
    printed = capsys.readouterr().out
    lines = [line.split("  ", 2)[-1] for line in printed.splitlines()]
    assert sorted(lines) == sorted([
        "of no run", "refused: StateLost: this site takes part in no run '[bold]nobody' (nothing)", f"run {RUN}",
        "greeting: hello: {}; 2 numbers left, and the names a, b",
        "frame 1: Probe.told 2 times, Probe.same 2 times; 22 numbers left, and the names north, s\ufffdd\ufffd",
        "refused: ZeroDivisionError: in the function (Probe.fails 2 times)"])


def test_an_invitation_as_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cryptography")
    folder = tmp_path / "certificates"
    assert command(monkeypatch, "site", "invite", "north", "--folder", str(folder)) == 0
    own = folder / b"north".hex()
    told = f"hand {own} over to north, by a way that only they can read; {folder / 'authority.key'} stays with you\n"
    assert capsys.readouterr().out == told
    assert {file.name for file in own.iterdir()} == {"site.key", "site.pem", "authority.pem"}
    assert command(monkeypatch, "site", "invite", "north", "--folder", str(folder)) == 2
    assert "has been made already for 'north'" in capsys.readouterr().err


def test_a_folder_that_another_process_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "site.toml").write_text(FILE)
    (tmp_path / "kept").write_text("")
    assert command(monkeypatch, "site", str(tmp_path / "site.toml")) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "kept is not a folder" in said
    assert "write another folder in [site], or end what has this one" in said
    assert "--out" not in said


def test_words_that_are_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("grpc")
    pytest.importorskip("cryptography")
    (tmp_path / "site.toml").write_text(FILE)
    usage = "write rookery site site.toml, rookery site log site.toml, or rookery site invite NAME; got serve site.toml"
    for words, sentence in ((("serve", "site.toml"), usage), (("log",), "there is no file log"),
                            ((str(tmp_path / "site.toml"),), "needs certificates, so that nobody else"),
                            ((str(tmp_path),), "cannot be read: Is a directory")):
        assert command(monkeypatch, "site", *words) == 2
        assert sentence in " ".join(capsys.readouterr().err.split())
