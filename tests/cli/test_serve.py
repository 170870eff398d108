"""`serve` and `run` whole: a tiny model, the engine process, HTTP, and the end by Ctrl-C."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from cli.command import environment, millstream, one_error_line
from millstream.models.catalogue import CatalogueModel, ModelUnavailable
from support.tiny_models import build_tiny_model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("models") / "tiny llama.gguf")


@pytest.fixture
def server(tiny: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running `serve` and its ready line."""
    child = subprocess.Popen(
        [
            sys.executable, "-m", "millstream", "serve", str(tiny), "--port", "0", "--threads", "1",
            "--kv-cache", "256t", "--kv-type", "int8", "--activations", "int8",
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    assert child.stdout is not None
    try:
        yield child, child.stdout.readline()
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate(timeout=30)


def test_ready_means_that_it_answers_and_ctrl_c_exits_0(server: tuple[subprocess.Popen[str], str]) -> None:
    child, ready = server
    match = re.fullmatch(
        r"ready: (\S+) on (http://127\.0\.0\.1:\d+) \(.*KV cache 256 tokens in int8, activations in int8\)\n", ready
    )
    assert match, (ready, child.stderr and child.stderr.read())
    name, url = match.groups()
    assert name == "tiny-llama"
    assert [model["id"] for model in httpx.get(f"{url}/v1/models", timeout=60).json()["data"]] == [name]
    body = {"model": name, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "ignore_eos": True}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).json()
    assert answer["usage"]["completion_tokens"] == 5
    assert answer["choices"][0]["finish_reason"] == "length"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out, err) == (0, "", "")


def test_a_taken_port_is_one_line_that_says_what_to_do(tiny: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        told = one_error_line(millstream("serve", str(tiny), "--port", str(port)))
    assert told.startswith(f"Cannot listen on 127.0.0.1:{port}: Address already in use")
    assert "another --port" in told
    assert "millstream doctor" in told


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models that are asked for from now on, none of which comes."""
    names: list[str] = []

    def fetch(model: CatalogueModel) -> Path:
        names.append(model.name)
        raise ModelUnavailable("the network is down")

    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path))
    monkeypatch.setattr("millstream.cli.serve.fetch_shown", fetch)
    return names


def test_what_is_missing_is_fetched(tiny: Path, fetched: list[str]) -> None:
    told = one_error_line(
        millstream("serve", "gemma", str(tiny), "smollm2", "gemma", "--model-name", "a", "--port", "0")
    )
    assert told == "the network is down"
    assert fetched == ["gemma-3-270m"]


def test_nothing_is_fetched_for_a_server_that_cannot_start(
    tiny: Path, fetched: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"no model")
    with socket.create_server(("127.0.0.1", 0)) as holder:
        for args, words in (
            (
                ("gemma", str(tiny), "--ctx", "100000"),
                "tiny-llama: the context length must be between 1 and the model's",
            ),
            (("gemma", str(broken)), "broken: "),
            (("gemma", str(tmp_path / "none.gguf")), "no such file"),
            (("gemma", "gemma"), "two models would be called 'gemma-3-270m'"),
            (("gemma", "smollm2", "--model-name", "gemma-3-270m", "--model-name", "gemma-3-270m"), "two models"),
            (("gemma", "--port", "0", "--journal", str(broken / "journal")), "cannot write a journal"),
            (("gemma", "--port", "0", "--otlp-endpoint", "collector"), "is no address of a collector"),
            (("gemma", "--port", str(holder.getsockname()[1])), "Address already in use"),
        ):
            assert words in one_error_line(millstream("serve", *args))
        monkeypatch.setattr("millstream.cli.serve.available_memory", lambda: 1000)
        assert "tiny-llama: not enough memory" in one_error_line(millstream("serve", "gemma", str(tiny)))
    assert fetched == []


def test_run_gives_the_same_answer_for_the_same_seed(tiny: Path) -> None:
    args = ("run", "hi", "-m", str(tiny), "--seed", "3", "-n", "8", "--threads", "1", "--kv-cache", "1M")
    first, second = millstream(*args), millstream(*args)
    assert first.code == 0, first.err
    assert first == second
    assert first.out


@pytest.mark.parametrize(
    ("options", "words"), [(("--ctx", "100000"), "context length"), (("--kv-cache", "1K"), "KV cache")]
)
def test_an_engine_that_cannot_start_is_one_line(tiny: Path, options: tuple[str, ...], words: str) -> None:
    assert words in one_error_line(millstream("run", "hi", "-m", str(tiny), *options))
