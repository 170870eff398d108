"""`bench service`, the part about drafts: pairs in turns, the same answers, what is made of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from millstream.bench.drafts import EDIT, Answer, Turns, measure_edit, measure_other
from millstream.bench.errors import BenchError
from millstream.bench.service import _Server
from millstream.ir.deltas import Content, Finish, Start, Usage
from millstream.ir.request import Request
from support.live import serving
from support.provider import ScriptedProvider, Step


def answer(seconds: float, processor: float, accepted: int = 0) -> Answer:
    return Answer(tokens=101, accepted=accepted, seconds=seconds, processor=processor)


def test_ratios_are_of_pairs_and_of_sums() -> None:
    turns = Turns([answer(1, 1, 50), answer(2, 1), answer(1, 1)], [answer(2, 3), answer(2, 1), answer(4, 2)])
    assert turns.ratios == [2, 1, 4]
    assert (turns.overall, turns.processor) == (2, 2)
    assert turns.accepted == pytest.approx(50 / 303)
    assert turns.line("text") == (
        "text: 100.0 tokens/s with drafts, 50.0 without (medians of 3); 2.00 times as fast (1.00 to 4.00), "
        "in sum 2.000, by processor time 2.000; 17 % drafted"
    )


def test_pairs_begin_in_turns_and_each_has_its_own_text() -> None:
    asked: list[dict[str, Any]] = []

    def ask(prompt: str, **fields: Any) -> tuple[str, Answer]:
        asked.append(fields)
        return f"{prompt} {fields.get('seed')}", answer(1.0 if fields["speculation"] else 2.0, 1.0)

    assert measure_edit(ask, 3).ratios == [2, 2, 2]
    assert [fields["speculation"] for fields in asked] == [True, False, False, True, True, False]
    asked.clear()
    measure_other(ask, 2)
    assert [fields["seed"] for fields in asked] == [0, 0, 1, 1]


def test_drafts_that_change_an_answer_are_an_error() -> None:
    def ask(prompt: str, **fields: Any) -> tuple[str, Answer]:
        return str(fields["speculation"]), answer(1, 1)

    with pytest.raises(BenchError, match="another one"):
        measure_edit(ask, 1)


def test_the_file_of_the_edit_is_one() -> None:
    """Sixty lines that compile, with the name in them that is to be changed."""
    code = EDIT.partition("```python\n")[2].removesuffix("```")
    compile(code, "booking.py", "exec")
    assert code.count("\n") > 55
    assert code.count("owner") > 5


def test_an_answer_of_a_server_is_measured_after_its_first_token() -> None:
    readings = iter([(10.0, 3.0), (12.5, 4.0)])
    said: list[str] = []
    when: list[int] = []

    def script(request: Request) -> Iterable[Step]:
        assert request.messages[-1].content == "Copy this."
        usage = Usage(prompt_tokens=5, completion_tokens=4, drafted_tokens=3, accepted_tokens=2)
        yield from (Start(prompt_tokens=5), 0.1)
        for text in ("a", "bcd"):
            said.append(text)
            yield Content(text)
        yield Finish("stop", usage)

    def meter() -> tuple[float, float]:
        when.append(len(said))
        return next(readings)

    with serving(ScriptedProvider(script)) as live:
        server = _Server(live.port, "key", "key", meter=meter)
        text, found = server.answer("Copy this.", speculation=False)
    assert text == "abcd"
    assert found == Answer(tokens=4, accepted=2, seconds=2.5, processor=1.0)
    assert when[0] >= 1
    assert when[1] == 2
