"""A site's file with mistakes: one sentence each, which says what to write."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hosts import error, greeting

from rookery.errors import ConfigError, EngineError
from rookery.sites.settings import SiteFile, read_site

SITE, ROWS, MAY = '[site]\nname = "north"\n', '[rows]\nown = "owners:rows"\n', '[may]\nalgorithms = ["FedAvg"]\n'


def written(folder: Path, *parts: str) -> SiteFile:
    (folder / "site.toml").write_text("".join(parts))
    return read_site(folder / "site.toml")


@pytest.mark.parametrize(("parts", "sentence"), [
    (("nonsense",), "is not TOML: "),
    ((SITE, ROWS), 'needs the section [may]: write [may], and algorithms = ["FedAvg"] below it'),
    ((SITE, MAY), 'needs the section [rows]: write [rows], and table = "rows.csv" below it'),
    ((ROWS, MAY), 'needs the section [site]: write [site], and name = "north" below it'),
    ((SITE, ROWS, MAY, "[mya]\n"), "has no section [mya]; did you mean 'may'? It has site, rows, may"),
    (('site = "north"\n', ROWS, MAY), """has site = 'north', and [site] is a section: write [site], and name = "north" below it"""),
    ((SITE, ROWS, MAY, "frame = 3\n"), "[may] has no entry 'frame'; did you mean 'frames'?"),
    ((SITE, "lisen = 3\n", ROWS, MAY), "[site] has no entry 'lisen'; did you mean 'listen'?"),
    (("[site]\n", ROWS, MAY), "[site] needs name = …, a text in quotes"),
    ((SITE, "[rows]\n", MAY), "[rows]: give one of table, npz, images and own; got none of them"),
    (("[site]\nname = 3\n", ROWS, MAY), "site.name must be a text in quotes; it was given 3"),
    ((SITE, ROWS, '[may]\nalgorithms = "FedAvg"\n'), "may.algorithms must be a list of texts in quotes; it was given 'FedAvg'"),
    ((SITE, ROWS, MAY, "frames = 2.5\n"), "may.frames must be a whole number; it was given 2.5"),
    ((SITE, ROWS, MAY, "steps = 0\n"), "[may]: steps is a positive number; got 0"),
    ((SITE, ROWS, MAY, 'salt = "mine"\n'), "may.salt is one of secret, none; "),
    ((SITE, ROWS, MAY, 'others = ["training"]\n'), "[may]: others has groups of functions, evaluation and set-up; got 'training'"),
])
def test_a_file_that_says_too_little_too_much_or_something_else(tmp_path: Path, parts: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        written(tmp_path, *parts)


@pytest.mark.parametrize(("parts", "sentence"), [
    ((SITE, '[rows]\nown = "nowhere:rows"\n', MAY), "rows.own needs the module 'nowhere', which is not there; looked in "),
    ((SITE, '[rows]\nown = "owners"\n', MAY), "rows.own is 'owners'; something of one's own reads module:name"),
    ((SITE, '[rows]\nown = "owners:row"\n', MAY), "has no 'row'; did you mean 'rows'?"),
    ((SITE, '[rows]\nown = "owners:number"\n', MAY), "rows.own is a function that returns a problem and data; owners:number is int"),
    ((SITE, '[rows]\nown = "owners:two"\n', MAY), "rows.own takes nothing, or the server's words; owners:two takes one, other"),
    ((SITE, 'modules = ["nowhere"]\n', ROWS, MAY), "site.modules needs the module 'nowhere', which is not there; looked in "),
    ((SITE, ROWS, '[may]\nalgorithms = ["FedAvg", "FedAvrg"]\n'), "'FedAvrg' is neither: correct it, or name its module in site.modules"),
    ((SITE, ROWS, '[may]\nalgorithms = ["FedAvg.stop"]\n'), "'FedAvg.stop' is neither: correct it"),
])
def test_a_host_that_cannot_be_made(tmp_path: Path, parts: tuple[str, ...], sentence: str) -> None:
    found = written(tmp_path, *parts)
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        found.host()


@pytest.mark.parametrize(("own", "told"), [
    ("other", ("ConfigError", "rows.own returns a problem and data; owners:other returned int")),
    ("three", ("ConfigError", "rows.own returns a problem and data; owners:three returned tuple")),
    ("fails", ("EngineError", "ValueError; the site's log has its words")),
])
def test_a_function_of_the_owners_that_returns_something_else_or_fails(tmp_path: Path, own: str, told: tuple[str, str]) -> None:
    at = written(tmp_path, SITE, f'[rows]\nown = "owners:{own}"\n', MAY).host()
    assert error(at, greeting()) == told


@pytest.mark.parametrize("own", ["rows", "listening"])
def test_a_file_that_is_right(tmp_path: Path, own: str) -> None:
    found = written(tmp_path, SITE, 'folder = "kept"\n', f'[rows]\nown = "owners:{own}"\n', MAY, 'others = []\nmin_batch = 3\n')
    assert found.certificates is None
    assert (found.may.others, found.may.min_batch, found.may.salt) == ((), 3, "secret")
    assert found.host().folder == tmp_path.resolve() / "kept"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no file .*site\.toml$"):
        read_site(tmp_path / "site.toml")


def served(folder: Path, *entries: str) -> Any:
    pytest.importorskip("grpc")
    pytest.importorskip("cryptography")
    from rookery.sites.certificates import invite
    from rookery.sites.service import Service

    if not (folder / "authority").exists():
        for name in ("north", "south"):
            invite(folder / "authority", name).rename(folder / name)
    found = written(folder, SITE, *(f"{entry}\n" for entry in entries), ROWS, MAY)
    return Service(found.host(), found.site.listen, found.certificates)


def test_where_nobody_may_listen(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for entries, sentence in ((('listen = "127.0.0.1:0"',), "a site that listens at '127.0.0.1:0' needs certificates"),
                              ((), "write certificates = "),
                              (('listen = "unix:/nowhere/socket"',), "nobody can listen at 'unix:/nowhere/socket' here"),
                              (('listen = "nowhere"', 'certificates = "north"'), 'listen is "host:port", as in'),
                              (('listen = "nowhere:7443"', 'certificates = "north"'), "nobody can listen at 'nowhere:7443' here")):
        with pytest.raises(ConfigError, match=re.escape(sentence)):
            served(tmp_path, *entries)
    first = served(tmp_path, 'listen = "127.0.0.1:0"', 'certificates = "north"')
    first.start()
    with pytest.raises(ConfigError, match=f"nobody can listen at '127.0.0.1:{first.port}' here: another process does"):
        served(tmp_path, f'listen = "127.0.0.1:{first.port}"', 'certificates = "north"')
    first.stop(0)
    with pytest.raises(ConfigError, match=f"nobody can listen at '127.0.0.1:{first.port + 65536}' here"):  # gRPC would at the first port
        served(tmp_path, f'listen = "127.0.0.1:{first.port + 65536}"', 'certificates = "north"')
    capfd.readouterr()


def test_certificates_that_are_none_or_of_another(tmp_path: Path) -> None:
    listen = 'listen = "127.0.0.1:0"'
    with pytest.raises(EngineError, match=r"absent/site\.key could not be read \(No such file or directory\): make it with `rookery site"):
        served(tmp_path, listen, 'certificates = "absent"')
    with pytest.raises(ConfigError, match=r"south has the certificates of 'south', and this site is 'north': write its name, or"):
        served(tmp_path, listen, 'certificates = "south"')
    for file in ("site.key", "site.pem", "authority.pem"):
        before = (tmp_path / "north" / file).read_bytes()
        (tmp_path / "north" / file).write_bytes(b"nonsense")
        with pytest.raises(ConfigError, match="north has no certificates of a site: copy the folder that `rookery site invite` made"):
            served(tmp_path, listen, 'certificates = "north"')
        (tmp_path / "north" / file).write_bytes(before)
    served(tmp_path, listen, 'certificates = "north"').stop(0)


def test_certificates_that_have_ended_or_are_of_two_authorities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography")
    from rookery.sites import certificates

    certificates.invite(tmp_path / "other", "north")
    monkeypatch.setattr(certificates, "DAYS", -0.01)
    listen = 'listen = "127.0.0.1:0"'
    with pytest.raises(ConfigError, match=r"the certificate of 'north' in \S+ ended on \d{4}-\d\d-\d\d: have it invited again"):
        served(tmp_path, listen, 'certificates = "north"')
    (tmp_path / "north" / "authority.pem").write_bytes((tmp_path / "other" / "authority.pem").read_bytes())
    with pytest.raises(ConfigError, match=r"another authority made than its authority\.pem: copy the whole folder"):
        served(tmp_path, listen, 'certificates = "north"')


def test_an_invitation_is_made_once_and_its_keys_are_private(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    from rookery.sites.certificates import invite

    own = invite(tmp_path, "north")
    with pytest.raises(ConfigError, match="has been made already for 'north': hand it over, or delete it to make another"):
        invite(tmp_path, "north")
    assert all(key.stat().st_mode & 0o077 == 0 for key in (tmp_path / "authority.key", tmp_path / "server.key", own / "site.key"))
    for name in ("", "x" * 31):
        with pytest.raises(ConfigError, match="a site's name has 1 to 30 bytes"):
            invite(tmp_path, name)
    assert invite(tmp_path, "../x").parent == tmp_path
