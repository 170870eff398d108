"""How a model's template and the request decide the prompt, the parser and the grammar of an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.ir.fold import ChoiceAnswer, Text, Thinking, collect
from millstream.ir.request import ChatRequest, Message, Output, Tool, ToolCall, ToolChoice
from millstream.models.template import CHATML_TEMPLATE, JinjaChatTemplate
from millstream.pipeline.dialect import Dialect
from millstream.pipeline.local import LocalProvider
from support.scripted_model import EOS, THINK, UNTHINK, TinyTokenizer, engine, run
from support.strategies import cuts

HERMES = (
    "{% if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools><tool_call>{% endif %}"
    "{% for message in messages %}{{ message.role }}:{{ message.content }}"
    "{% for call in message.tool_calls %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<turn>"
    "{% endfor %}assistant:"
)
THINKING = HERMES + "{% if enable_thinking is false %}<think></think>{% elif enable_thinking %}<think>{% endif %}"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Tool("get_weather", "Tells the weather.", SCHEMA)
TIME = Tool("get_time")
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'


class PlainTokenizer(TinyTokenizer):
    """Think tags are ordinary text here, as in Qwen 3."""

    def is_special(self, token_id: int) -> bool:
        return super().is_special(token_id) and token_id not in (THINK, UNTHINK)


def dialect(source: str = HERMES, **how: Any) -> Dialect:
    return Dialect(JinjaChatTemplate(source), PlainTokenizer(), **how)


def request(*tools: Tool, messages: tuple[Message, ...] = (Message("user", "hi"),), **fields: Any) -> ChatRequest:
    return ChatRequest(model="tiny", messages=messages, tools=tools, **fields)


def answer(text: str, asked: ChatRequest, *, at: tuple[int, ...] | None = None, source: str = HERMES) -> ChoiceAnswer:
    """The fold of what a model says, in steps that begin ``at`` these places."""

    async def work() -> ChoiceAnswer:
        playing = engine([*PlainTokenizer().encode(text), EOS], cuts=at, context_length=10_000)
        provider = LocalProvider(playing, tokenizer=PlainTokenizer(), template=JinjaChatTemplate(source))
        (choice,) = (await collect(await provider.stream(asked))).choices
        return choice

    return run(work())


def test_formats_are_those_of_the_template_unless_forced() -> None:
    assert (dialect().tool_format, dialect().reasoning_format) == ("hermes", "none")
    assert dialect(THINKING).reasoning_format == "think"
    assert (dialect(CHATML_TEMPLATE).tool_format, dialect(CHATML_TEMPLATE).reasoning_format) == ("generic", "none")
    forced = dialect(tool_format="mistral", reasoning_format="mistral")
    assert (forced.tool_format, forced.reasoning_format) == ("mistral", "mistral")
    assert len(forced.new_call_id()) == 9
    for wrong in ({"tool_format": "nonsense"}, {"reasoning_format": "nonsense"}):
        with pytest.raises(ValueError, match=r"'nonsense'; known: .*mistral"):
            dialect(**wrong)


def test_a_template_with_tools_renders_them() -> None:
    prompt = dialect().turn(request(WEATHER)).prompt
    assert prompt.startswith('<tools>{"type": "function", "function": {"name": "get_weather"')
    assert "tool_response" not in prompt


def test_a_template_without_tools_gets_the_generic_prompt_and_history() -> None:
    talk = (
        Message("user", "weather?"),
        Message("assistant", "", tool_calls=(ToolCall("c1", "get_weather", '{"city": "Paris"}'),)),
        Message("tool", "sunny", tool_call_id="c1"),
    )
    prompt = dialect(CHATML_TEMPLATE).turn(request(WEATHER, messages=talk)).prompt
    assert prompt.startswith("<|im_start|>system\n# Tools")
    assert '"name": "get_weather", "description": "Tells the weather."' in prompt
    assert '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call><|im_end|>' in prompt
    assert "<|im_start|>user\n<tool_response>\nsunny\n</tool_response><|im_end|>" in prompt
    without = dialect(CHATML_TEMPLATE).turn(request(messages=talk)).prompt
    assert "# Tools" not in without
    assert "<tool_response>\nsunny" in without


@pytest.mark.parametrize("asked", [request(), request(WEATHER, tool_choice=ToolChoice("none"))])
def test_without_tools_to_call_there_is_no_tool_parser(asked: ChatRequest) -> None:
    turn = dialect().turn(asked)
    assert (turn.parser, turn.grammar) == (None, None)
    assert "<tools>" not in turn.prompt
    choice = answer(CALL, asked)
    assert (choice.text, choice.tool_calls, choice.finish_reason) == (CALL, (), "stop")


def test_a_call_is_read_with_its_arguments() -> None:
    choice = answer("Let me see.\n" + CALL, request(WEATHER))
    (call,) = choice.tool_calls
    assert (choice.text, choice.finish_reason) == ("Let me see.", "tool_calls")
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    assert call.id.startswith("call_")


def test_one_call_at_a_time_if_asked() -> None:
    assert len(answer(CALL + "\n" + CALL, request(WEATHER)).tool_calls) == 2
    single = answer(CALL + "\n" + CALL, request(WEATHER, parallel_tool_calls=False))
    assert (len(single.tool_calls), single.finish_reason) == (1, "tool_calls")
    assert single.usage.completion_tokens < len(PlainTokenizer().encode(CALL)) + 2


def test_the_sequence_is_aborted_at_the_end_of_its_only_call() -> None:
    playing = engine([*PlainTokenizer().encode(CALL + CALL), EOS], context_length=10_000)
    provider = LocalProvider(playing, tokenizer=PlainTokenizer(), template=JinjaChatTemplate(HERMES))

    async def work() -> None:
        await collect(await provider.stream(request(WEATHER, parallel_tool_calls=False, n=2)))

    run(work())
    assert sorted(playing.aborted) == sorted(asked.id for asked in playing.requests)
    assert playing.generated < 2 * len(PlainTokenizer().encode(CALL)) + 2


@pytest.mark.parametrize(
    ("kwargs", "text", "blocks"),
    [
        ({}, "<think>hm</think>yes", (Thinking("hm"), Text("yes"))),
        ({}, "yes", (Text("yes"),)),
        ({"enable_thinking": True}, "hm</think>yes", (Thinking("hm"), Text("yes"))),
        ({"enable_thinking": False}, "yes", (Text("yes"),)),
    ],
    ids=str,
)
def test_the_end_of_the_prompt_says_whether_reasoning_is_open(
    kwargs: dict[str, Any], text: str, blocks: tuple[Any, ...]
) -> None:
    choice = answer(text, request(template_kwargs=kwargs), source=THINKING)
    assert choice.blocks == blocks
    assert bool(choice.usage.reasoning_tokens) == (len(blocks) == 2)


def test_a_users_tag_opens_no_reasoning() -> None:
    asked = request(messages=(Message("user", "What does <think> mean?"),))
    assert answer("yes", asked, source=THINKING).blocks == (Text("yes"),)


SPOKEN = f"<think>The user €ntered</think>\n\nLet me <b>see</b>.\n{CALL}\n{CALL} é"


@given(cuts(len(PlainTokenizer().encode(SPOKEN))))
def test_however_an_answer_is_cut_its_fold_is_the_same(at: tuple[int, ...]) -> None:
    asked = request(WEATHER, output=Output(token_ids=True))
    whole, cut = (answer(SPOKEN, asked, at=steps, source=THINKING) for steps in ((), at))
    assert _plain(whole) == _plain(cut)
    assert list(cut.token_ids) == [*PlainTokenizer().encode(SPOKEN), EOS]
    assert [type(block) for block in cut.blocks] == [Thinking, Text, ToolCall, ToolCall, Text]


@given(st.integers(0, len(PlainTokenizer().encode(SPOKEN))), st.data())
def test_a_truncated_answer_is_truncated_alike(size: int, data: st.DataObject) -> None:
    text = bytes(SPOKEN.encode()[:size]).decode("utf-8", "ignore")
    asked = request(WEATHER, output=Output(token_ids=True))
    at = data.draw(cuts(len(PlainTokenizer().encode(text))))
    assert _plain(answer(text, asked, source=THINKING)) == _plain(answer(text, asked, at=at, source=THINKING))


def _plain(choice: ChoiceAnswer) -> tuple[Any, ...]:
    """All of a choice but the ids that are minted anew each time."""
    blocks = [
        ToolCall("", block.name, block.arguments) if isinstance(block, ToolCall) else block for block in choice.blocks
    ]
    return blocks, choice.finish_reason, choice.usage, choice.token_ids
