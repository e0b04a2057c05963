"""What of FLARE can be held without FLARE: its Collab API stands in here, and the resident process is a host in this process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.parse import quote

import hosts
import pytest

pytest.importorskip("grpc")

from rookery.engines import Remote, flare
from rookery.errors import Away, ConfigError, EngineError
from rookery.sites.service import Service


class CallError(Exception):
    """As FLARE raises one."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(f"call failed: {cause}")
        self.cause, self.cause_type = f"{type(cause).__name__}: {cause}", type(cause).__name__


class Proxy:
    """A site's object as FLARE's server sees it."""

    def __init__(self, name: str, answer: Callable[[bytes, float], Any]) -> None:
        self.name, self.own = name, answer

    def __call__(self, timeout: float) -> Any:
        def answer(frame: bytes, seconds: float) -> Any:
            assert seconds == timeout
            try:
                return self.own(frame, seconds)
            except Exception as error:
                raise CallError(error) from None
        return SimpleNamespace(answer=answer)


class Replies(list[tuple[str, Any]]):
    """What a call of all sites returns."""

    failures: dict[str, Exception]


class Proxies(list[Proxy]):
    """The sites of a job, which may be called at once."""

    calls = 0

    def __call__(self, timeout: float) -> Any:
        def answer(frame: bytes, seconds: float) -> Any:
            self.calls, found = self.calls + 1, Replies()
            found.failures = {}
            for proxy in self:
                try:
                    found.append((proxy.name, proxy(timeout).answer(frame, seconds)))
                except CallError as error:
                    found.failures[proxy.name] = error
            return found
        return SimpleNamespace(answer=answer)


@pytest.fixture
def collab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """FLARE's Collab API, at a machine whose folder `local` is the test's."""
    workspace = SimpleNamespace(get_site_config_dir=lambda: str(tmp_path), get_run_dir=lambda job: str(tmp_path / job))
    found = SimpleNamespace(caller="server", site_name="north", workspace=workspace, stop=False,
                            fl_ctx=SimpleNamespace(get_job_id=lambda: "job-1"),
                            clients=Proxies([Proxy("north", lambda frame, seconds: b"reply")]))
    found.context = SimpleNamespace(workspace=workspace, is_aborted=lambda: found.stop)
    module = ModuleType("nvflare.collab")
    module.collab = found  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nvflare", ModuleType("nvflare"))
    monkeypatch.setitem(sys.modules, "nvflare.collab", module)
    flare._resident.cache_clear()
    return found


def test_without_flare_one_sentence_says_what_to_install_and_importing_it_needs_no_torch() -> None:
    code = "import sys; sys.modules['nvflare'] = None\nfrom rookery.engines import flare\nfrom rookery.errors import EngineError\n" \
           "try: flare.submit('a:b', {}, ['x'], None, run='one')\nexcept EngineError as error: print(error, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "real sites over FLARE need nvflare, which is not installed: pip install 'rookery[flare]' False\n"


def test_frames_go_through_the_relay_to_the_resident_process_and_back(collab: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "rookery.toml").write_text('socket = "{site}.sock"\n')
    service = Service(hosts.host(tmp_path / "runs"), f"unix:{tmp_path}/north.sock", None)
    service.start()
    collab.clients = Proxies([Proxy("north", flare.Site().answer)])
    try:
        assert Remote(flare.Calls(), seconds=20).greet(["north"], {}).names == ("a", "b")
    finally:
        service.stop(0)


def test_who_does_not_answer_is_named_and_why(collab: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "rookery.toml").write_text('socket = "nobody.sock"\n')

    def late(frame: bytes, seconds: float) -> bytes:
        raise TimeoutError("whatever FLARE says")

    collab.clients = Proxies([Proxy("down", flare.Site().answer), Proxy("late", late), Proxy("odd", lambda frame, seconds: "text")])
    for asked, calls in ((["down", "late", "odd"], 1), (["down", "late", "odd", "absent"], 1)):
        replies = flare.Calls().exchange(dict.fromkeys(asked, b"frame"), 0.5)
        assert collab.clients.calls == calls
        assert isinstance(replies["down"], ConnectionError)
        assert str(replies["down"]).startswith("its resident process is down (ConnectionError: unavailable")
        assert repr(replies["late"]) == "TimeoutError('no answer in 0.5 s')"
        assert repr(replies["odd"]) == "ConnectionError('its reply is no bytes, but str')"
    assert repr(replies["absent"]) == "ConnectionError('FLARE has not given it this job')"
    with pytest.raises(Away, match=r"client 'late': .*no answer in 0\.5 s"):
        Remote(flare.Calls(), seconds=0.5).greet(["late"], {})


def test_sites_that_are_told_the_same_are_called_at_once_and_others_one_by_one(collab: SimpleNamespace) -> None:
    collab.clients = Proxies([Proxy(name, lambda frame, seconds: frame[::-1]) for name in ("north", "south")])
    calls = flare.Calls()
    assert calls.exchange({"north": b"ab", "south": b"ab"}, 1.0) == {"north": b"ba", "south": b"ba"}
    assert collab.clients.calls == 1
    assert calls.exchange({"north": b"ab", "south": b"cd"}, 1.0) == {"north": b"ba", "south": b"dc"}
    assert calls.exchange({"south": b"ab"}, 1.0) == {"south": b"ba"}
    assert collab.clients.calls == 1
    calls.everyone = lambda timeout: 1 / 0  # as where a group cannot be called
    assert calls.exchange(dict.fromkeys(["north", "south"], b"ab"), 1.0) == {"north": b"ba", "south": b"ba"}


def test_a_site_of_the_job_may_not_ask_another_one(collab: SimpleNamespace) -> None:
    collab.caller = "south"
    with pytest.raises(PermissionError, match="only the server of this job may ask this site"):
        flare.Site().answer(b"frame", 1.0)


def test_an_aborted_job_ends_at_its_next_exchange(collab: SimpleNamespace) -> None:
    collab.stop = True
    with pytest.raises(EngineError, match="the job was aborted"):
        flare.Calls().exchange({"north": b"frame"}, 1.0)


def entered(transport: Any, sites: list[str], words: dict[str, Any], folder: Path, aborted: Callable[[], bool]) -> None:
    if words.get("fails"):
        raise ZeroDivisionError("in the function")
    (folder / "progress.json").write_text(json.dumps([sites, words, aborted()]))


def server(words: dict[str, Any], entry: str = f"{__name__}:entered", run: str = "one") -> flare.Server:
    return flare.Server(entry, quote(json.dumps(words)), run, ["north"])


def test_the_servers_owner_says_what_may_run_and_where(collab: SimpleNamespace, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rookery\.toml could not be read .* socket = .* runs = .* entries = "):
        server({}).main()
    own = tmp_path / "rookery.toml"
    own.write_text(f'runs = "{tmp_path}/runs"\n')
    with pytest.raises(ConfigError, match=r"needs entries: write entries = \[\"agreed:train\"\]; got None"):
        server({}).main()
    own.write_text(f'runs = "{tmp_path}/runs"\nentries = ["{__name__}:entered", "{__name__}:missing"]\n')
    with pytest.raises(ConfigError, match="'os:system' is not among what may run at this server"):
        server({}, "os:system").main()
    with pytest.raises(ConfigError, match="has no function 'missing'"):
        server({}, f"{__name__}:missing").main()
    with pytest.raises(ConfigError, match=r"the name of a run begins .* got '\.\./elsewhere'"):
        server({}, run="../elsewhere").main()
    server({"a": [{"b": "{c}"}]}).main()
    folder = tmp_path / "runs" / "one"
    assert json.loads((folder / "progress.json").read_text()) == [["north"], {"a": [{"b": "{c}"}]}, False]
    assert json.loads((folder / "flare.json").read_text()) == {"job": "job-1", "ended": "done"}
    assert (tmp_path / "job-1/rookery-run/progress.json").read_bytes() == (folder / "progress.json").read_bytes()


def test_how_a_run_ended_is_written_down(collab: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "rookery.toml").write_text(f'runs = "{tmp_path}/runs"\nentries = ["{__name__}:entered"]\n')
    with pytest.raises(ZeroDivisionError):
        server({"fails": True}).main()
    assert json.loads((tmp_path / "runs/one/flare.json").read_text()) == {"job": "job-1", "ended": "ZeroDivisionError: in the function"}


def test_progress_goes_to_the_log_of_the_job(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flare, "POLL", 0.01)
    file = tmp_path / "progress.json"
    file.write_text("of a job before")
    ends = time.monotonic() + 60
    with caplog.at_level("INFO", "rookery"), flare._logged(file):
        for text in ('{"round": 1}', '{"round": 2}'):
            file.write_text(text)
            while f"progress of the run: {text}" not in caplog.messages:
                assert time.monotonic() < ends
                time.sleep(0.01)
    assert not any("before" in line for line in caplog.messages)
