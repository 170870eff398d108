"""Which answers are held to a grammar, to which one, and what is said of grammars that cannot be held."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from millstream.grammars.matcher import Compiler, Matcher
from millstream.ir.errors import ApiError
from millstream.ir.request import ChatRequest, Message, ResponseFormat, Tool, ToolChoice
from millstream.models.template import CHATML_TEMPLATE, JinjaChatTemplate
from millstream.pipeline.checks import GrammarChecker
from millstream.pipeline.dialect import Dialect, Turn
from support.scripted_model import EOS, THINK, TURN, UNTHINK, TinyTokenizer, engine, provider, run
from support.scripted_model import ask as plain

HERMES = "{% for tool in tools or [] %}{{ tool | tojson }}<tool_call>{% endfor %}{{ messages[-1].content }}"
THINKING = HERMES + "{% if think %}<think>\n{% elif think is false %}<think>\n\n</think>\n{% endif %}"
SCHEMA = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}
CLOSED = {**SCHEMA, "additionalProperties": False}
WEATHER = Tool("weather", parameters=CLOSED)
TIME = Tool("time", parameters={"type": "object", "properties": {}, "additionalProperties": False})
ROME = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
PARIS = ROME.replace("Rome", "Paris")
NOON = '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'
JSON = ResponseFormat("json_schema", schema={"type": "object", "properties": {"a": {"type": "integer"}}})


class TextTags(TinyTokenizer):
    """Think tags are ordinary text, as in Qwen 3; in `TinyTokenizer` they are control tokens."""

    def is_special(self, token_id: int) -> bool:
        return super().is_special(token_id) and token_id not in (THINK, UNTHINK)


def turn(*tools: Tool, source: str = HERMES, tags: bool = False, **fields: Any) -> Turn:
    request = ChatRequest(model="tiny", messages=(Message("user", "hi"),), tools=tools, **fields)
    dialect = Dialect(JinjaChatTemplate(source), TinyTokenizer() if tags else TextTags())
    return dialect.turn(request)


def matcher(turned: Turn) -> Matcher:
    tokenizer = TinyTokenizer()
    tokens = [tokenizer.token_bytes(token_id) for token_id in range(tokenizer.vocab_size)]
    # The think tags are in no text here but as tokens of their own.
    compiler = Compiler(tokens, special_ids=[*tokenizer.eos_ids, THINK, UNTHINK], eos_ids=[EOS, TURN])
    assert turned.grammar is not None
    return compiler.matcher(turned.grammar.text)


def accepts(turned: Turn, text: str, *, tags: bool = False) -> bool:
    """Whether the grammar allows exactly this answer."""
    match = matcher(turned)
    ids = TinyTokenizer().encode(text, parse_special=tags)
    for token_id in ids:
        match.advance(token_id)
    if match.error:
        return False
    return match.finished or match._matcher.is_accepting()


FORCED = {"tool_choice": ToolChoice("required")}


@pytest.mark.parametrize("source", [HERMES, CHATML_TEMPLATE], ids=["template with tools", "without"])
def test_a_required_call_is_held_to_the_tools_schemas(source: str) -> None:
    held = turn(WEATHER, TIME, source=source, **FORCED)
    assert accepts(held, ROME)
    assert accepts(held, NOON)
    assert accepts(held, ROME + "\n" + NOON)
    assert not accepts(held, PARIS)
    assert not accepts(held, "No.")
    assert not accepts(held, ROME + " So it is.")


def test_a_named_tool_is_the_only_one_and_called_once() -> None:
    held = turn(WEATHER, TIME, tool_choice=ToolChoice("required", ("time",)))
    assert accepts(held, NOON)
    assert not accepts(held, ROME)
    assert not accepts(held, NOON + "\n" + NOON)
    assert '"weather"' in held.prompt  # the prompt, and with it the prefix cache, does not depend on the choice


def test_without_parallel_calls_there_is_one() -> None:
    held = turn(WEATHER, TIME, parallel_tool_calls=False, **FORCED)
    assert accepts(held, ROME)
    assert not accepts(held, ROME + "\n" + NOON)


def test_a_free_choice_is_free_unless_something_is_to_be_enforced() -> None:
    assert turn(WEATHER).grammar is None
    strict = turn(Tool("weather", parameters=CLOSED, strict=True))
    assert accepts(strict, "Let me see. " + ROME)
    assert accepts(strict, "No.")
    assert not accepts(strict, "Let me see. " + PARIS)
    narrowed = turn(WEATHER, TIME, tool_choice=ToolChoice("auto", ("time",)))
    assert accepts(narrowed, NOON)
    assert not accepts(narrowed, ROME)
    assert accepts(narrowed, "No.")


def test_beside_tools_a_response_format_holds_the_text() -> None:
    held = turn(WEATHER, response_format=JSON)
    assert accepts(held, '{"a": 1}')
    assert accepts(held, ROME)
    assert not accepts(held, PARIS)
    assert not accepts(held, "No.")
    forced = turn(WEATHER, response_format=JSON, **FORCED)
    assert not accepts(forced, '{"a": 1}')
    assert accepts(forced, ROME)
    none = turn(WEATHER, response_format=JSON, tool_choice=ToolChoice("none"))
    assert accepts(none, '{"a": 1}')
    assert not accepts(none, ROME)


@pytest.mark.parametrize(
    ("format", "good", "bad"),
    [
        (ResponseFormat("json_object"), '{"x": [1, {}]}', "[1]"),
        (JSON, '{"a": 1, "b": null}', '{"a": "1"}'),
        (ResponseFormat("json_schema"), "{}", "1"),
        (ResponseFormat("json_schema", schema={"oneOf": [{"const": 1}, {"const": "b"}]}), '"b"', "2"),
        (ResponseFormat("regex", pattern=r"\d{3}/[a-c]+\/?"), "123/ab/", "12/ab"),
        (ResponseFormat("regex", pattern="a\nb"), "a\nb", "ab"),
        (ResponseFormat("grammar", pattern='start: "yes" | "no" tail?\ntail: /!+/'), "no!!", "yes!"),
    ],
    ids=str,
)
def test_response_formats_hold(format: ResponseFormat, good: str, bad: str) -> None:
    held = turn(response_format=format)
    assert accepts(held, good)
    assert not accepts(held, bad)
    assert turn(response_format=ResponseFormat()).grammar is None


@pytest.mark.parametrize("tags", [False, True], ids=["tags as text", "tags as control tokens"])
def test_the_grammar_starts_after_reasoning(tags: bool) -> None:
    thoughts = 'I think {"a": no} of <b>it</b>'
    free = turn(source=THINKING, tags=tags, response_format=JSON)
    for text in ('{"a": 1}', f"<think>{thoughts}</think>\n\n" + '{"a": 1}'):
        assert accepts(free, text, tags=tags)
    for text in (thoughts, f"<think>{thoughts}", f"<think>{thoughts}</think>{thoughts}", f"<think>{thoughts}</think>"):
        assert not accepts(free, text, tags=tags)
    opened = turn(source=THINKING, tags=tags, response_format=JSON, template_kwargs={"think": True})
    assert accepts(opened, thoughts + "</think>" + '{"a": 1}', tags=tags)
    assert not accepts(opened, '{"a": 1}', tags=tags)
    closed = turn(source=THINKING, tags=tags, response_format=JSON, template_kwargs={"think": False})
    assert accepts(closed, '{"a": 1}', tags=tags)
    assert not accepts(closed, f"<think>{thoughts}</think>" + '{"a": 1}', tags=tags)
    forced = turn(WEATHER, source=THINKING, tags=tags, **FORCED)
    assert accepts(forced, f"<think>{thoughts}</think>" + ROME, tags=tags)
    assert not accepts(forced, f"<think>{thoughts}</think>" + PARIS, tags=tags)


HARMONY = "{% for tool in tools or [] %}{{ tool }}{% endfor %}<|channel|><|message|>"
HEADERS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>")


class HarmonyTokenizer(TinyTokenizer):
    """The tiny vocabulary with the control tokens of gpt-oss."""

    def __init__(self) -> None:
        super().__init__()
        self.first = self.vocab_size
        self.vocab_size += len(HEADERS)

    def encode(self, text: str, *, add_bos: bool = False, parse_special: bool = True) -> list[int]:
        ids: list[int] = super().encode("", add_bos=add_bos)
        for part in re.split("(" + "|".join(map(re.escape, HEADERS)) + ")", text):
            ids += [self.first + HEADERS.index(part)] if part in HEADERS else super().encode(part)
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        if token_id >= self.first:
            return HEADERS[token_id - self.first].encode()
        return super().token_bytes(token_id)


def harmony_turn(*tools: Tool, **fields: Any) -> Turn:
    request = ChatRequest(model="tiny", messages=(Message("user", "hi"),), tools=tools, **fields)
    return Dialect(JinjaChatTemplate(HARMONY), HarmonyTokenizer()).turn(request)


def harmony_accepts(turned: Turn, text: str) -> bool:
    tokenizer = HarmonyTokenizer()
    tokens = [tokenizer.token_bytes(token_id) for token_id in range(tokenizer.vocab_size)]
    special = [*range(EOS - 1, len(tokens))]
    assert turned.grammar is not None
    match = Compiler(tokens, special_ids=special, eos_ids=[EOS]).matcher(turned.grammar.text)
    for token_id in tokenizer.encode(text):
        match.advance(token_id)
    return not match.error and (match.finished or match._matcher.is_accepting())


ANALYSIS = "<|channel|>analysis<|message|>Rome, Paris.<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>"
HARMONY_ROME = '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Rome"}'
HARMONY_PARIS = HARMONY_ROME.replace("Rome", "Paris")


def test_gpt_oss_is_held_to_calls_behind_its_analysis() -> None:
    held = harmony_turn(WEATHER, TIME, **FORCED)
    for before in ("", ANALYSIS, ANALYSIS + ANALYSIS):
        assert harmony_accepts(held, before + HARMONY_ROME)
        assert not harmony_accepts(held, before + HARMONY_PARIS)
        assert not harmony_accepts(held, before + FINAL + "No.")
    named = harmony_turn(WEATHER, TIME, tool_choice=ToolChoice("required", ("time",)))
    assert not harmony_accepts(named, HARMONY_ROME)


def test_gpt_oss_holds_its_final_message_to_a_response_format() -> None:
    held = harmony_turn(response_format=JSON)
    assert harmony_accepts(held, ANALYSIS + FINAL + '{"a": 1}')
    assert not harmony_accepts(held, ANALYSIS + FINAL + '{"a": "1"}')
    assert not harmony_accepts(held, FINAL + "No.")
    both = harmony_turn(WEATHER, response_format=JSON)
    assert harmony_accepts(both, HARMONY_ROME)
    assert not harmony_accepts(both, HARMONY_PARIS)
    assert harmony_accepts(both, FINAL + '{"a": 1}')


@pytest.mark.parametrize("fields", [{}, {"tool_choice": ToolChoice("auto", ("weather",))}], ids=["strict", "narrowed"])
def test_strict_and_narrowed_tools_are_held_where_the_model_may_choose(fields: dict[str, Any]) -> None:
    tool = Tool("weather", parameters=CLOSED, strict=not fields)
    held = harmony_turn(tool, TIME, **fields)
    assert harmony_accepts(held, ANALYSIS + FINAL + "No.")
    assert harmony_accepts(held, ANALYSIS + HARMONY_ROME)
    assert not harmony_accepts(held, ANALYSIS + HARMONY_PARIS)
    assert harmony_accepts(held, HARMONY_ROME.replace("weather", "time").replace('"city": "Rome"', "")) == (not fields)
    llama = "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}<|python_tag|>"
    free = turn(tool, TIME, source=llama, **fields)
    call = '{"name": "weather", "parameters": {"city": "Rome"}}'
    for text in ("No.", "{1}", call, f"<|python_tag|>{call}; {call}"):
        assert accepts(free, text), text
    for text in (call.replace("Rome", "Paris"), f"<|python_tag|>{call}".replace("Rome", "Paris"), '{"function": "x"'):
        assert not accepts(free, text), text
    assert accepts(free, call.replace("weather", "time").replace('"city": "Rome"', "")) == (not fields)


def test_a_budget_says_what_opens_and_closes_reasoning() -> None:
    asked: dict[str, Any] = {"reasoning_budget": 5}
    assert turn(source=THINKING, **asked).thoughts == ("<think>", "</think>")
    assert turn(source=THINKING, template_kwargs={"think": True}, **asked).thoughts == ("", "</think>")
    assert turn(source=THINKING, template_kwargs={"think": False}, **asked).thoughts is None
    assert turn(source=HERMES, **asked).thoughts is None
    harmony = harmony_turn(**asked)
    assert harmony.thoughts == ("<|channel|>analysis<|message|>", "<|end|>")
    # Thoughts that were ended do not begin anew.
    assert harmony_accepts(harmony, ANALYSIS + FINAL + "No.")
    assert not harmony_accepts(harmony, ANALYSIS + ANALYSIS + FINAL + "No.")
    assert not harmony_accepts(harmony_turn(WEATHER, **asked, **FORCED), ANALYSIS + ANALYSIS + HARMONY_ROME)
    assert harmony_turn().grammar is None


@pytest.mark.parametrize("fields", [{"response_format": JSON}, FORCED], ids=["format", "call"])
def test_what_a_format_cannot_hold_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ApiError, match="harmony") as caught:
        turn(WEATHER, source=HARMONY, **fields)
    assert caught.value.param == next(iter(fields))


CODER = "{% for tool in tools or [] %}{{ tool }}{% endfor %}<tool_call><function=f><parameter=p>"


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"properties": {"a b": {"type": "string"}}, "required": ["a b"]}, "at /properties/a b in"),
        ({"properties": {"a": {"not": {}}}, "required": ["a"]}, "at /properties/a in"),
        ({"properties": {}, "minProperties": 1}, "'minProperties'"),
        ({"properties": {"a": {"type": "string", "pattern": "^a|b$"}}}, "at /properties/a/pattern in"),
    ],
)
def test_a_form_without_objects_names_what_it_cannot_hold(schema: dict[str, Any], place: str) -> None:
    tool = Tool("bad", parameters={"type": "object", **schema}, strict=True)
    with pytest.raises(ApiError, match="'bad' cannot be enforced") as caught:
        turn(WEATHER, tool, source=CODER)
    assert caught.value.param == "tools[1]"
    assert place in caught.value.message
    assert "qwen3-coder" in caught.value.message


def refusal(request: ChatRequest) -> ApiError:
    playing = engine([EOS])
    with pytest.raises(ApiError) as caught:
        run(provider(playing).stream(request))
    assert playing.requests == []
    assert caught.value.status == 400
    return caught.value


def asked(**fields: Any) -> ChatRequest:
    return ChatRequest(model="tiny", messages=plain().messages, **fields)


def bad_tool(**extra: Any) -> Tool:
    inner = {"type": "object", "properties": {"b/c": {"type": "array", "items": {"type": "strnig"}}}}
    return Tool("bad", parameters={"type": "object", "properties": {"ok": {"type": "string"}, "a": inner}}, **extra)


def test_a_bad_schema_is_refused_with_the_tool_and_the_place() -> None:
    error = refusal(asked(tools=(WEATHER, bad_tool()), **FORCED))
    assert error.param == "tools[1]"
    assert "'bad' cannot be enforced at /properties/a/properties/b~1c/items: Invalid type: strnig" in error.message
    assert refusal(asked(tools=(WEATHER, bad_tool(strict=True)))).param == "tools[1]"


def test_a_bad_tool_that_is_not_enforced_is_no_fault() -> None:
    playing = engine([EOS])
    run(_drain(playing, asked(tools=(bad_tool(),))))
    assert playing.requests[0].grammar is None


def test_keywords_that_no_grammar_holds_are_refused_only_where_strictness_is_asked() -> None:
    unique = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    playing = engine([EOS])
    run(_drain(playing, asked(tools=(Tool("f", parameters=unique),), **FORCED)))
    assert playing.requests[0].grammar is not None
    error = refusal(asked(tools=(Tool("f", parameters=unique, strict=True),), **FORCED))
    assert "uniqueItems" in error.message
    assert "at /properties/a" in error.message


@pytest.mark.parametrize(
    ("format", "words"),
    [
        (
            ResponseFormat("json_schema", schema={"properties": {"a": {"pattern": "("}}}),
            "schema cannot be enforced at /p",
        ),
        (ResponseFormat("json_schema", schema={"$ref": "#"}), "nothing satisfies it"),
        (ResponseFormat("json_schema", schema=False), "cannot be enforced"),
        (ResponseFormat("json_schema", schema={"const": "\ud800"}), "hex escape"),
        (ResponseFormat("regex", pattern="("), "pattern cannot be enforced: "),
        (ResponseFormat("regex", pattern="a\x00/ /b("), "pattern cannot be enforced: "),
        (ResponseFormat("grammar", pattern="start: nothing"), "grammar cannot be enforced: "),
    ],
    ids=str,
)
def test_a_bad_format_is_refused(format: ResponseFormat, words: str) -> None:
    error = refusal(asked(response_format=format))
    assert (error.param, error.code) == ("response_format", "invalid_schema")
    assert words in error.message


def test_the_engine_gets_the_grammar() -> None:
    playing = engine([EOS])
    run(_drain(playing, asked(response_format=JSON, n=2)))
    first, second = (json.loads(request.grammar or "") for request in playing.requests)
    assert first == second
    assert first["grammars"][1]["json_schema"]["properties"] == {"a": {"type": "integer"}}


async def _drain(playing: Any, request: ChatRequest) -> None:
    async for _ in await provider(playing).stream(request):
        pass


def test_a_costly_check_holds_up_nothing_else() -> None:
    wide = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(3000)}}
    held = turn(response_format=ResponseFormat("json_schema", schema=wide))

    async def work() -> int:
        assert held.grammar is not None
        task = asyncio.ensure_future(GrammarChecker(()).check(held.grammar))
        turns = 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        await asyncio.gather(task, return_exceptions=True)
        return turns

    assert asyncio.run(work()) > 10
