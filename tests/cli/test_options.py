"""Sizes on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from cli.command import millstream
from millstream.cli.commands.serve import LONGEST_SECONDS
from millstream.cli.options import KvCache, parse_kv_cache, parse_reasoning_format, parse_tool_format
from millstream.surfaces.service import MAX_TIMEOUT


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512M", KvCache(bytes=512 << 20)),
        ("2g", KvCache(bytes=2 << 30)),
        ("1.5GiB", KvCache(bytes=3 << 29)),
        (" 64 KB ", KvCache(bytes=64 << 10)),
        ("32768t", KvCache(tokens=32768)),
        ("8192 tokens", KvCache(tokens=8192)),
    ],
)
def test_sizes(text: str, size: KvCache) -> None:
    assert parse_kv_cache(text) == size


@pytest.mark.parametrize(
    "text", ["", "512", "0M", "0t", "-1G", "M", "1e9M", "12Q", "nanM", "9" * 400 + "G", "1.5t", "2T"]
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a size"):
        parse_kv_cache(text)


@given(st.text(alphabet="0123456789.KMGTiBtokens -", max_size=24))
def test_any_text_is_a_positive_size_or_refused(text: str) -> None:
    try:
        size = parse_kv_cache(text)
    except typer.BadParameter:
        return
    (value,) = [value for value in (size.bytes, size.tokens) if value is not None]
    assert value > 0


def test_formats_are_known_by_name() -> None:
    assert parse_tool_format("hermes") == "hermes"
    assert parse_reasoning_format("think") == "think"
    for parse in (parse_tool_format, parse_reasoning_format):
        with pytest.raises(typer.BadParameter, match=r"'nonsense' is none of .*mistral"):
            parse("nonsense")


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--temperature", "5", "between 0 and 2"),
        ("--temperature", "-1", "between 0 and 2"),
        ("--temperature", "nan", "between 0 and 2"),
        ("--top-k", "-2", "between -1"),
        ("--top-p", "0", "above 0"),
        ("--top-p", "1.5", "above 0"),
        ("--min-p", "2", "between 0 and 1"),
        ("--repetition-penalty", "11", "above 0"),
        ("--presence-penalty", "3", "between -2 and 2"),
        ("--frequency-penalty", "-3", "between -2 and 2"),
        ("--seed", str(2**63), "between"),
        ("--max-tokens", "0", "between 1"),
        ("--stop", "", "not be empty"),
    ],
)
def test_sampling_is_refused_as_the_api_refuses_it(option: str, value: str, words: str) -> None:
    for command in (("run", "hi"), ("chat",)):
        result = millstream(*command, "--no-fetch", f"{option}={value}")
        text = " ".join(result.err.replace("│", " ").split())
        assert (result.code, result.out) == (2, "")
        assert f"'{option}'" in text
        assert words in text


@pytest.mark.parametrize("option", ["--request-timeout", "--stall-timeout", "--step-deadline"])
@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "1e308", "86401", "0", "-1", "soon", ""])
def test_a_time_limit_is_a_number_of_seconds_up_to_a_day(option: str, value: str, tmp_path: Path) -> None:
    result = millstream("serve", str(tmp_path / "none.gguf"), f"{option}={value}")
    assert (result.code, result.out) == (2, "")
    assert f"'{option}'" in result.err
    assert LONGEST_SECONDS == MAX_TIMEOUT
