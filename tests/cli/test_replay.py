"""A live server records concurrent streams; all of them come out the same again, wherever they are run."""

from __future__ import annotations

import concurrent.futures
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from cli.command import Result, millstream, one_error_line
from millstream.cli.errors import CliError
from millstream.cli.http import base_url
from support.real_models import real_model
from support.served import Served, serve
from support.tiny_models import build_tiny_model


class Recorded(NamedTuple):
    """``asked``: requests before the replay over HTTP, one of which was left."""

    folder: Path
    model: Path
    over_http: Result
    asked: int


def requests(model: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every kind, most without a seed."""
    shared = {"model": model, "max_tokens": 12, "ignore_eos": True}
    chat = [{"role": "user", "content": "hi"}]
    for number in range(3):
        yield "/v1/chat/completions", {**shared, "messages": chat, "stream": number % 2 == 0}
    yield "/v1/chat/completions", {**shared, "messages": chat, "n": 2, "temperature": 1.5, "top_k": 20, "seed": -5}
    yield "/v1/chat/completions", {**shared, "messages": chat, "response_format": {"type": "json_object"}}
    yield "/v1/completions", {**shared, "prompt": ["a", "b"], "n": 2, "repetition_penalty": 1.3, "logprobs": 2}
    yield "/v1/completions", {**shared, "prompt": "stop", "stop": ["e", "a", "o"]}
    yield "/v1/messages", {"model": model, "max_tokens": 12, "messages": chat}
    yield "/v1/responses", {"model": model, "max_output_tokens": 12, "input": "hi"}
    yield "/v1/embeddings", {"model": model, "input": "hi"}
    yield "/v1/chat/completions", {"model": "nobody", "messages": chat}


def record(model: Path, folder: Path) -> Recorded:
    options = ("--journal", str(folder), "--threads", "1", "--kv-cache", "4096t")
    options += ("--kv-type", "int8", "--activations", "int8")  # which change what is answered
    with serve(model, *options) as server, httpx.Client(verify=False, trust_env=False, timeout=60) as client:
        name = client.get(f"{server.url}/v1/models").json()["data"][0]["id"]

        def ask(request: tuple[str, dict[str, Any]]) -> int:
            return client.post(f"{server.url}{request[0]}", json=request[1]).status_code

        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            statuses = list(pool.map(ask, requests(name)))
        assert statuses == [200] * 10 + [404]
        asked = len(statuses) + leave(server, client, name)
        server.wait_idle()
        over_http = millstream("replay", "--all", "-j", str(folder), "--url", f"{server.url}/v1/")
    return Recorded(folder, model, over_http, asked)


def leave(server: Served, client: httpx.Client, name: str) -> int:
    """Leave in the midst of an answer, which an operator holds meanwhile; how often it was asked for until it could be
    held before its end."""
    long = {"model": name, "prompt": "x", "stream": True, "max_tokens": 3000, "ignore_eos": True, "timeout": 300}
    admin = f"{server.url}/v1/admin/requests"
    for attempt in range(1, 21):
        with client.stream("POST", f"{server.url}/v1/completions", json=long) as answer:
            lines = answer.iter_lines()
            next(lines)
            for view in client.get(admin).json()["data"]:
                client.post(f"{admin}/{view['id']}/pause")
            while views := client.get(admin).json()["data"]:
                if views[0]["state"] == "paused":
                    return attempt
            assert list(lines)  # too late: it is read to its end
    raise AssertionError("no answer could be held before its end")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("recorded")
    return record(build_tiny_model(folder / "tiny llama.gguf"), folder / "journal")


def verdicts(result: Result) -> list[Any]:
    return [json.loads(line)["same"] for line in result.out.splitlines()]


def test_a_server_gives_the_same_again(recorded: Recorded) -> None:
    assert recorded.over_http.code == 0, recorded.over_http
    assert " 0 different, 2 not compared" in recorded.over_http.out  # a grammar, and a vector


def test_an_engine_gives_the_same_again(recorded: Recorded) -> None:
    result = millstream("replay", "--all", "-j", str(recorded.folder), "--json")
    assert result.code == 0, result
    assert verdicts(result) == [True] * len(verdicts(result))
    assert len(verdicts(result)) >= 15


def test_one_is_found_by_the_beginning_of_its_id(recorded: Recorded) -> None:
    listed = millstream("journal", "list", "-j", str(recorded.folder), "--json").out.splitlines()
    # Then come those of the replay by the server itself.
    lines = [json.loads(line) for line in listed][: recorded.asked]
    assert len(lines) == recorded.asked
    assert {line["surface"] for line in lines} == {"chat", "completions", "messages", "responses", "embeddings"}
    assert sum(not line["whole"] for line in lines) == 1
    chosen = next(line for line in lines if line["surface"] == "messages")
    shown = json.loads(millstream("journal", "show", chosen["id"][:20], "-j", str(recorded.folder)).out)
    assert shown["id"] == chosen["id"]
    assert json.loads(shown["body"])["messages"] == [{"role": "user", "content": "hi"}]
    assert shown["sequences"][0]["request"]["sampling"]["seed"] > 0
    assert len(shown["model"]["sha256"]) == 64
    result = millstream("replay", chosen["id"][:20], "-j", str(recorded.folder))
    assert result.out.endswith(f"1 the same, 0 different, 0 not compared; {chosen['tokens']} tokens\n")
    assert "could be any of" in one_error_line(millstream("replay", "req_", "-j", str(recorded.folder)))
    assert "no request 'nobody'" in one_error_line(millstream("journal", "show", "nobody", "-j", str(recorded.folder)))


def test_a_token_that_differs_is_shown_and_exits_1(recorded: Recorded, tmp_path: Path) -> None:
    (source,) = recorded.folder.glob("*.jsonl")
    rows = [json.loads(line) for line in source.read_text().splitlines()]
    changed = next(row for row in rows if row["surface"] == "messages")
    tokens = changed["sequences"][0]["tokens"]
    at = min(3, len(tokens) - 1)  # it has no seed, so it may end early
    before = tokens[at]
    tokens[at] = before + 1
    (tmp_path / source.name).write_text(json.dumps(changed) + "\n")
    result = millstream("replay", changed["id"], "-j", str(tmp_path))
    assert result.code == 1
    assert f"DIFFERENT at token {at} of the answer: recorded token {before + 1}, now token {before}" in result.out


def test_another_model_file_is_refused_unless_it_is_asked_for(recorded: Recorded, tmp_path: Path) -> None:
    (source,) = recorded.folder.glob("*.jsonl")
    text = source.read_text()
    moved = text.replace(str(recorded.model), str(tmp_path / "gone.gguf"))
    (tmp_path / source.name).write_text(moved)
    assert "give the file" in one_error_line(millstream("replay", "--all", "-j", str(tmp_path)))
    other = tmp_path / "gone.gguf"
    other.write_bytes(recorded.model.read_bytes() + b"\0")
    assert "is not the file that was recorded" in one_error_line(millstream("replay", "--all", "-j", str(tmp_path)))
    result = millstream("replay", "--all", "-j", str(tmp_path), "-m", str(recorded.model))
    assert result.code == 0


def test_wrong_usage_and_a_missing_journal_are_told(tmp_path: Path) -> None:
    assert millstream("replay", "-j", str(tmp_path)).code == 2
    assert millstream("replay", "a", "--all", "-j", str(tmp_path)).code == 2
    assert "is no folder" in one_error_line(millstream("replay", "--all", "-j", str(tmp_path / "none")))
    assert millstream("replay", "--all", "-j", str(tmp_path)).code == 1


def test_a_journal_that_cannot_be_written_ends_the_server(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    model = build_tiny_model(tmp_path / "tiny.gguf")
    result = millstream("serve", str(model), "--port", "0", "--journal", str(tmp_path / "file"))
    assert "cannot write a journal in" in one_error_line(result)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("localhost:8000", "http://localhost:8000"),
        ("http://localhost:8000/v1/", "http://localhost:8000"),
        ("https://host/proxy/v1/chat/completions", "https://host/proxy"),
        (" http://[::1]:80 ", "http://[::1]:80"),
    ],
)
def test_addresses_as_people_write_them(text: str, url: str) -> None:
    assert base_url(text) == url


@pytest.mark.parametrize("text", ["", "ftp://x", "http://", "http://x:port", "http://x?y", "http://[::1"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(CliError, match="no address of a server"):
        base_url(text)


@pytest.mark.thorough
def test_a_real_model_gives_the_same_again(tmp_path: Path) -> None:
    recorded = record(real_model("smollm2"), tmp_path / "journal")
    assert recorded.over_http.code == 0, recorded.over_http
    result = millstream("replay", "--all", "-j", str(tmp_path / "journal"), "--json")
    assert result.code == 0, result
    assert verdicts(result) == [True] * len(verdicts(result))
