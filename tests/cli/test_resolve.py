"""What a user's word for a model means."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.models.catalogue import (
    CATALOGUE,
    CatalogueModel,
    ModelUnavailable,
    find_model,
    model_folder,
    resolve_model,
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def fetched(model: CatalogueModel) -> Path:
    return Path("fetched") / model.name


def test_home_overrides_the_cache_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert model_folder() == home / "models"
    monkeypatch.delenv("MILLSTREAM_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert model_folder() == Path("/somewhere/millstream/models")


@pytest.mark.parametrize(
    ("ref", "name"),
    [
        (None, "smollm2-135m-instruct"),
        ("smollm2", "smollm2-135m-instruct"),
        ("Gemma-3-270m", "gemma-3-270m"),
        ("qwen", "qwen2.5-coder-0.5b-instruct"),
    ],
)
def test_names_and_beginnings_of_names_are_fetched(ref: str | None, name: str) -> None:
    assert resolve_model(ref, fetched) == Path("fetched") / name


def test_a_file_comes_before_the_beginning_of_a_name(tmp_path: Path) -> None:
    (tmp_path / "qwen").touch()
    assert resolve_model("qwen", fetched) == Path("qwen")


def test_a_cached_model_is_used(home: Path) -> None:
    model = CATALOGUE[0]
    path = home / "models" / model.filename
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(model.size)
    assert resolve_model(None) == path


def test_without_fetching_the_command_is_named() -> None:
    with pytest.raises(ModelUnavailable, match="millstream pull smollm2-135m-instruct"):
        resolve_model(None)


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        ("nothing", "no model or file named 'nothing'; models known by name: smollm2"),
        ("nothing.gguf", "no such file"),
        ("no/such/place", "no such file"),
        (".", "not a file"),
        ("", "no model or file"),
        ("a\0b", "no model or file"),
        ("x" * 5000, "no model or file"),
    ],
)
def test_what_is_neither_is_told(ref: str, words: str) -> None:
    with pytest.raises(ModelUnavailable, match=words):
        resolve_model(ref, fetched)


def test_an_ambiguous_beginning_is_no_name() -> None:
    assert find_model("") is None
