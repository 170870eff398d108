"""`doctor`: each fault is found, named and comes with a way to mend it."""

from __future__ import annotations

import errno
import http.server
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.command import millstream
from millstream.cli.doctor.access import check_access
from millstream.cli.doctor.machine import check_machine, cpu_quota
from millstream.cli.doctor.model import check_model
from millstream.cli.doctor.places import check_folder, check_secret
from millstream.cli.doctor.planned import Planned
from millstream.cli.doctor.port import check_port
from millstream.engine.memory import NotEnoughMemory, memory_need, require_room
from millstream.models.catalogue import CATALOGUE
from millstream.models.fetch import space_needed
from millstream.models.loader import load_model_file
from support.tiny_models import build_tiny_model


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf")


def test_a_sound_machine_has_no_problem(tiny: Path) -> None:
    result = millstream("doctor", "-m", str(tiny), "--port", "0", "--json")
    report: dict[str, Any] = json.loads(result.out)
    states = {finding["name"]: finding["state"] for finding in report["findings"]}
    assert (result.code, report["ok"]) == (0, True), report
    for name in ("system", "processors", "native core", "model folder", "data folder", "model", "memory", "port"):
        assert states[name] in ("ok", "warning")
    assert all(finding.get("mend") for finding in report["findings"] if finding["state"] != "ok")


def test_a_problem_is_exit_code_1_and_has_a_way_out(tmp_path: Path, home: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text("[serve]\nprot = 1\n")
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"no model")
    result = millstream("doctor", "-m", str(bad), "--port", "0")
    assert result.code == 1
    assert f"problem  configuration: {home / 'config.toml'}:2: serve.prot" in result.out
    assert "problem  model: " in result.out
    assert result.out.count("         -> ") >= 2


def test_a_catalogue_file_that_was_changed_is_found(tiny: Path, tmp_path: Path) -> None:
    known = CATALOGUE[0]
    path = tmp_path / known.filename
    path.write_bytes(tiny.read_bytes())
    first, second, _ = check_model(str(path))
    assert (first.state, first.mend) == ("problem", f"remove it and fetch it again: millstream pull {known.name}")
    assert "checksum" not in second.text


def test_a_model_that_can_be_fetched_is_only_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    known = CATALOGUE[0]
    disk_with(monkeypatch, space_needed(known))
    (finding,) = check_model(None)
    assert (finding.state, finding.mend.split(" (")[0]) == ("warning", f"millstream pull {known.name}")
    (finding,) = check_model("nonsense")
    assert (finding.state, finding.mend) == (
        "problem", "`millstream list` shows the names; or give the path of a .gguf file",
    )  # fmt: skip


def test_a_model_that_the_disk_has_no_room_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk_with(monkeypatch, space_needed(CATALOGUE[0]) - (3 << 20))
    (finding,) = check_model(None)
    assert finding.state == "problem"
    assert finding.mend == f"free 3 MB in {home / 'models'}, or set MILLSTREAM_HOME to a folder on another disk"


@pytest.mark.parametrize(
    ("free", "state", "words"),
    [
        (15 << 20, "problem", "free some space on the disk of "),
        (900 << 20, "warning", "free some space on that disk, or set MILLSTREAM_HOME"),
        (2 << 30, "ok", ""),
    ],
)
def test_a_disk_that_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, state: str, words: str
) -> None:
    disk_with(monkeypatch, free)
    (finding,) = check_folder("data folder", tmp_path / "new")
    assert finding.state == state
    assert finding.mend.startswith(words)
    assert ("the disk is full" in finding.text) is (state == "problem")


def disk_with(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))


def test_memory_is_judged_as_the_server_judges_it(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with load_model_file(tiny) as model:
        need, context = memory_need(model, max_rows=64), model.spec.context_length
    whole = need.weights + need.working + 2 * need.token * context

    def told(free: int) -> tuple[str, str]:
        monkeypatch.setattr("millstream.engine.sizing.available_memory", lambda: free)
        found = list(check_model(str(tiny)))
        assert [each.name for each in found] == ["model", "memory"]
        return found[-1].state, found[-1].mend

    others = "end other programs, take a smaller model, or a machine with more memory"
    assert told(whole) == ("ok", "")
    assert told(whole - 2 * need.token) == (
        "warning",
        f"requests of up to {context - 1:,} of the model's {context:,} tokens will fit; for more, {others}",
    )
    least = need.least(context, None)
    assert told(least)[0] == "warning"
    assert told(least - 1) == ("problem", others)
    with pytest.raises(NotEnoughMemory):
        require_room(need, context_length=context, kv_bytes=None, free_bytes=least - 1)


def test_the_limit_of_a_control_group(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert cpu_quota(tmp_path) == 1.5
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert cpu_quota(tmp_path) is None


def test_a_forced_level_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_ISA", "nonsense")
    finding = next(each for each in check_machine() if each.name in ("instruction set", "native core"))
    assert finding.state in ("problem", "ok")  # the level is chosen once a process


def test_folders(tmp_path: Path) -> None:
    assert [finding.state for finding in check_folder("x", tmp_path / "a" / "b")] in (["ok"], ["warning"])
    assert list((tmp_path).iterdir()) == []
    (tmp_path / "file").touch()
    (finding,) = check_folder("x", tmp_path / "file" / "b")
    assert finding.state == "problem"


def test_it_looks_at_the_server_that_is_set_up(
    tiny: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    keys = tmp_path / "other-keys.json"
    keys.write_text("no keys")
    keys.chmod(0o600)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        (home / "config.toml").write_text(
            f'[serve]\nmodels = ["{tiny}", "{tmp_path / "none.gguf"}"]\nport = {port}\nkeys-file = "{keys}"\n'
        )
        findings = report()
        assert findings["port"] == [
            ("problem", "stop that program, or serve with another --port (0 picks a free one)"),
        ]
        monkeypatch.setenv("MILLSTREAM_SERVE_PORT", "0")
        assert report()["port"] == [("ok", "")]
    assert [state for state, _ in findings["model"]] == ["ok", "problem"]
    ((state, mend),) = findings["keys"]
    assert state == "problem"
    assert "name another file with --keys-file" in mend


def report(*args: str) -> dict[str, list[tuple[str, str]]]:
    """State and advice of every finding, by name."""
    found: dict[str, list[tuple[str, str]]] = {}
    for each in json.loads(millstream("doctor", "--json", *args).out)["findings"]:
        found.setdefault(each["name"], []).append((each["state"], each["mend"]))
    return found


def test_who_may_use_the_server(home: Path, tmp_path: Path) -> None:
    plan = Planned("127.0.0.1", 0, [None], None, single_key=False)
    make = "make one: millstream keys create NAME --admin"

    def told(plan: Planned) -> list[tuple[str, str]]:
        return [(each.state, each.mend) for each in check_access(plan)]

    assert told(plan) == []
    assert told(plan._replace(host="0.0.0.0")) == [("warning", make)]
    assert told(plan._replace(host="0.0.0.0", single_key=True)) == [("ok", "")]
    assert told(plan._replace(keys_file=tmp_path / "none.json")) == [("warning", make)]
    assert millstream("keys", "create", "one").code == 0
    assert told(plan._replace(host="0.0.0.0")) == [("ok", "")]
    for nasty in (tmp_path / "pipe", tmp_path / "folder"):
        os.mkfifo(nasty) if nasty.name == "pipe" else nasty.mkdir()
        ((state, _),) = told(plan._replace(keys_file=nasty))
        assert state == "problem"


@pytest.mark.parametrize(
    ("host", "port", "words"),
    [
        ("192.0.2.1", 8000, "no interface of this machine has that address"),
        ("no.such.name.invalid", 8000, "'no.such.name.invalid' cannot be looked up"),
    ],
)
def test_an_address_where_nobody_can_listen(host: str, port: int, words: str) -> None:
    (finding,) = check_port(host, port)
    assert finding.state == "problem"
    assert words in finding.mend


def test_a_port_that_needs_privileges(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(host: str, port: int) -> socket.socket:
        raise OSError(errno.EACCES, f"Cannot listen on {host}:{port}: Permission denied")

    monkeypatch.setattr("millstream.server.binding.bind", refused)
    (finding,) = check_port("127.0.0.1", 80)
    assert finding.mend == "ports below 1024 need privileges: serve with --port 8000"


def test_secrets_that_others_can_read(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    assert list(check_secret("keys", path)) == []
    path.write_text('{"keys": []}')
    for mode, states in ((0o600, []), (0o644, ["warning"]), (0o666, ["problem"])):
        path.chmod(mode)
        found = list(check_secret("keys", path))
        assert [finding.state for finding in found] == states
        assert all(finding.mend == f"chmod 600 {path}" for finding in found)


ANSWERS = {
    "/v1/models": {"data": [{"id": "tiny"}]},
    "/openapi.json": {"info": {"title": "Millstream"}, "paths": {}},
}


class _Models(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(ANSWERS[self.path]).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def model_server() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Models) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_who_has_the_port(model_server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.cli.doctor.port._SECONDS", 60.0)
    (finding,) = check_port("127.0.0.1", model_server)
    assert finding.state == "problem"
    assert "taken by a server of tiny (Millstream)" in finding.text
    assert finding.mend == "stop that program, or serve with another --port (0 picks a free one)"
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        monkeypatch.setattr("millstream.cli.doctor.port._SECONDS", 0.5)
        (finding,) = check_port("127.0.0.1", other.getsockname()[1])
    assert "taken by another program" in finding.text
