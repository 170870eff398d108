"""`doctor`: each fault is found, named and comes with a way to mend it."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.command import millstream
from millstream.cli.doctor.findings import size
from millstream.cli.doctor.machine import check_machine, cpu_quota, memory_limit
from millstream.cli.doctor.model import check_model
from millstream.cli.doctor.places import check_folder, check_secret
from millstream.cli.doctor.port import check_port
from millstream.models.catalogue import CATALOGUE
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
    first = next(iter(check_model(str(path))))
    assert first.state == "problem"
    assert f"millstream pull {known.name}" in first.mend


def test_a_model_that_can_be_fetched_is_only_a_warning() -> None:
    (finding,) = check_model(None)
    assert (finding.state, finding.mend.split(" (")[0]) == ("warning", f"millstream pull {CATALOGUE[0].name}")
    (finding,) = check_model("nonsense")
    assert finding.state == "problem"


def test_too_little_memory_is_found(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.engine.sizing.available_memory", lambda: 100 << 20)
    assert [finding.state for finding in check_model(str(tiny))] == ["ok", "problem"]


def test_limits_of_a_control_group(tmp_path: Path) -> None:
    assert (cpu_quota(tmp_path), memory_limit(tmp_path)) == (None, None)
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    assert (cpu_quota(tmp_path), memory_limit(tmp_path)) == (1.5, 600)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert (cpu_quota(tmp_path), memory_limit(tmp_path)) == (None, None)


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


def test_who_has_the_port(model_server: int) -> None:
    (finding,) = check_port("127.0.0.1", model_server)
    assert finding.state == "problem"
    assert "taken by a server of tiny (Millstream)" in finding.text
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        other.settimeout(0.01)
        (finding,) = check_port("127.0.0.1", other.getsockname()[1])
    assert "taken by another program" in finding.text
    (finding,) = check_port("256.0.0.1", 1)
    assert finding.state == "problem"


def test_sizes_are_written_as_the_options_take_them() -> None:
    assert [size(each) for each in (1023, 1 << 20, 3 << 29)] == ["1K", "1.0M", "1.5G"]
