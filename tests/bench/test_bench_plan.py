from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.bench.errors import BenchError
from millstream.bench.plan import Case, Plan, read_plan, standard_plan


def test_a_plan_of_the_harness_is_read(tmp_path: Path) -> None:
    """With the fields that a harness for several engines adds for itself."""
    path = tmp_path / "plan.json"
    case = {"name": "tg x2", "kind": "decode", "new_tokens": 64, "reps": [[[1, 2], [3]], [[4], [5]]]}
    path.write_text(
        json.dumps({"version": 1, "t0": 17.5, "threads": 2, "models": {"gguf_q4_1": "m.gguf"}, "cases": [case]})
    )
    plan = read_plan(path)
    assert plan == Plan([Case("tg x2", "decode", 64, [[[1, 2], [3]], [[4], [5]]])], {"gguf_q4_1": "m.gguf"}, 17.5)
    assert plan.cases[0].sequences == 2
    assert plan.cases[0].longest == 66


CASE = '{"name": "a", "kind": "prefill", "new_tokens": 1, "reps": [[[1]]]}'
UNPRINTABLE = CASE.replace('"a"', r'"a\u001b[2J"')


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "truncated|malformed"),
        ("{}", "cases"),
        ('{"cases": [{"name": "a", "kind": "other", "new_tokens": 1, "reps": []}]}', r"cases\[0\]\.kind"),
        ('{"cases": [{"name": "a", "kind": "decode", "new_tokens": 0, "reps": []}]}', "new_tokens"),
        ('{"cases": [{"name": "a", "kind": "decode", "new_tokens": 1, "reps": [[[]]]}]}', "reps"),
        ('{"cases": [{"name": "a", "kind": "decode", "new_tokens": 1, "reps": [[[-1]]]}]}', "reps"),
        (f'{{"cases": [{CASE}, {CASE.replace("1", "2")}]}}', "2 cases have the name 'a'"),
        (f'{{"cases": [{CASE.replace("prefill", "decode")}]}}', "'a' decodes.* at least 2"),
        (f'{{"cases": [{UNPRINTABLE}]}}', r"cannot be printed: 'a\\x1b\[2J'"),
    ],
)
def test_a_malformed_plan_is_refused_with_the_place(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(BenchError, match=reason):
        read_plan(path)


def test_a_missing_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="No such file"):
        read_plan(tmp_path / "none.json")


@settings(max_examples=10, deadline=None)
@given(vocab_size=st.integers(1, 300_000), context_length=st.integers(1, 10_000), quick=st.booleans())
def test_the_standard_plan_fits_the_model(vocab_size: int, context_length: int, quick: bool) -> None:
    plan = standard_plan(vocab_size=vocab_size, context_length=context_length, quick=quick)
    assert plan == standard_plan(vocab_size=vocab_size, context_length=context_length, quick=quick)
    assert all(case.longest <= context_length for case in plan.cases)
    assert all(0 <= token < vocab_size for case in plan.cases for s in case.reps for prompt in s for token in prompt)


def test_the_standard_plan_has_every_case() -> None:
    plan = standard_plan(vocab_size=49152, context_length=8192)
    names = ["pp128", "pp512", "pp2048", "tg x1", "tg x4", "tg x8", "tg x16", "tg x32", "tg x1 @2048"]
    assert [case.name for case in plan.cases] == names


def test_kv_tokens_hold_the_largest_sample_in_whole_blocks() -> None:
    plan = Plan([Case("a", "decode", 10, [[[1] * 60, [1] * 60]]), Case("b", "prefill", 1, [[[1] * 100]])])
    assert plan.kv_tokens(32) == 2 * (3 + 1) * 32
    assert Plan([]).kv_tokens(32) == 32
