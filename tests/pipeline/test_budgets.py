"""A budget for reasoning on its way to the engine."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.engine.protocol import ThinkingBudget
from millstream.ir.fold import collect
from millstream.ir.request import ChatRequest, Message
from millstream.models.template import JinjaChatTemplate
from millstream.pipeline.local import LocalProvider
from support.scripted_model import EOS, UNTHINK, TinyTokenizer, engine, run

TEMPLATE = "{{ messages[-1].content }}{% if think %}<think>{% elif think is false %}<think></think>{% endif %}"


def asked_of_the_engine(source: str, **fields: Any) -> ThinkingBudget | None:
    playing = engine([EOS])
    provider = LocalProvider(playing, tokenizer=TinyTokenizer(), template=JinjaChatTemplate(source))
    request = ChatRequest(model="tiny", messages=(Message("user", "hi"),), **fields)

    async def work() -> None:
        await collect(await provider.stream(request))

    run(work())
    return playing.requests[0].thinking


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({}, ThinkingBudget(7, "</think>", [UNTHINK], "<think>")),
        ({"think": True}, ThinkingBudget(7, "</think>", [UNTHINK], "")),
        ({"think": False}, None),
    ],
    ids=str,
)
def test_the_engine_is_told_what_closes_reasoning(kwargs: dict[str, Any], expected: ThinkingBudget | None) -> None:
    assert asked_of_the_engine(TEMPLATE + "{# </think> #}", template_kwargs=kwargs, reasoning_budget=7) == expected


def test_without_a_budget_nothing_is_asked() -> None:
    assert asked_of_the_engine(TEMPLATE) is None
