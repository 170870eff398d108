"""Chat templates: what they see, what they may do, and what becomes of their errors."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from millstream.ir.errors import ApiError
from millstream.ir.request import Message, Tool, ToolCall
from millstream.models.errors import ModelFileError
from millstream.models.template import CHATML_TEMPLATE, PLAIN_TEMPLATE, JinjaChatTemplate

USER = [Message("user", "hi")]
CALL = Message("assistant", tool_calls=(ToolCall("c1", "f", '{"b": [1, null], "a": "é<"}'),))


def render(source: str, messages: Sequence[Message] = USER, **options: Any) -> str:
    return JinjaChatTemplate(source).render(messages, **options)


def refusal(source: str, messages: Sequence[Message] = USER, **options: Any) -> ApiError:
    with pytest.raises(ApiError) as error:
        render(source, messages, **options)
    assert error.value.status == 400
    return error.value


def test_whitespace_is_controlled_as_templates_expect() -> None:
    assert (
        render("{% for m in messages %}\n    {% if true %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}") == "hi\n"
    )


def test_messages_are_dictionaries() -> None:
    source = "{{ messages | tojson }}"
    assert render(source) == '[{"role": "user", "content": "hi"}]'
    named = [Message("user", "a", name="bob"), Message("assistant", "b", reasoning="r")]
    wanted = (
        '[{"role": "user", "content": "a", "name": "bob"}, {"role": "assistant", "content": "b", '
        '"reasoning_content": "r", "reasoning": "r", "thinking": "r"}]'
    )
    assert render(source, named) == wanted


def test_tool_calls_and_results() -> None:
    conversation = [*USER, CALL, Message("tool", "42", tool_call_id="c1")]
    assert render("{{ messages[1].tool_calls[0] | tojson }}", conversation) == (
        '{"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"b": [1, null], "a": "é<"}}}'
    )
    assert render("{{ messages[2].name }} {{ messages[2].tool_call_id }}", conversation) == "f c1"
    assert (
        render("{{ messages[1].content == '' }} {{ messages[0].tool_calls is defined }}", conversation) == "True False"
    )


def test_arguments_are_text_for_templates_that_join_them() -> None:
    source = "{{ 'call ' + messages[0].tool_calls[0].function.arguments }}"
    assert render(source, [CALL]) == 'call {"b": [1, null], "a": "é<"}'


def test_arguments_that_are_no_json_stay_text() -> None:
    broken = Message("assistant", tool_calls=(ToolCall("c", "f", "{oops"), ToolCall("d", "g", "")))
    assert render("{% for c in messages[0].tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}", [broken]) == (
        '"{oops"{}'
    )


def test_tools_in_openai_form() -> None:
    tools = [Tool("f", "does f", {"type": "object"}, strict=True), Tool("g")]
    assert render("{{ tools | tojson }}", tools=tools) == (
        '[{"type": "function", "function": {"name": "f", "description": "does f", "parameters": {"type": "object"}}}, '
        '{"type": "function", "function": {"name": "g"}}]'
    )
    assert render("{{ tools is none }}{% if tools %}x{% endif %}") == "True"


def test_developer_is_system_unless_the_template_knows_it() -> None:
    messages = [Message("developer", "x")]
    assert render("{{ messages[0].role }}", messages) == "system"
    assert render("{{ messages[0].role }}{# developer #}", messages) == "developer"


def test_variables_of_the_caller() -> None:
    source = "{{ bos_token }}{% if enable_thinking is defined and not enable_thinking %}quiet{% endif %}"
    template = JinjaChatTemplate(source, variables={"bos_token": "<s>"})
    assert template.render(USER, kwargs={"enable_thinking": False}) == "<s>quiet"
    assert template.render(USER) == "<s>"
    assert template.source == source
    for name in ("messages", "tools", "add_generation_prompt"):
        assert name in refusal("", kwargs={name: 1}).message


def test_generation_prompt_and_generation_blocks() -> None:
    source = "{% generation %}a{% endgeneration %}{% if add_generation_prompt %}>{% endif %}"
    assert render(source) == "a>"
    assert render(source, add_generation_prompt=False) == "a"


def test_helpers_of_transformers() -> None:
    assert render("{{ strftime_now('%Y') }}") == time.strftime("%Y")
    assert render("{{ {'b': '<é>', 'a': 1} | tojson }}") == '{"b": "<é>", "a": 1}'
    assert render("{{ {'a': 1} | tojson(indent=2) }}") == '{\n  "a": 1\n}'
    assert render("{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}"
                  "{{ i }}{% endfor %}") == "02"  # fmt: skip
    assert (
        render("{% set ns = namespace(n=1) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}")
        == "4"
    )
    assert render("{% macro m(x) %}[{{ x ~ 1 }}]{% endmacro %}{{ m('a') }}{{ dict(a=2).a }}") == "[a1]2"
    assert (
        render("{{ ' a,b '.strip().split(',') | join('-') }}{{ 'x' * 3 }}{{ [1] + [2] }}{{ 2 ** 3 }}")
        == "a-bxxx[1, 2]8"
    )
    assert render("{{ '%s=%d' % ('a', 1) }}{{ '{}-{}'.format('b', 2) }}{{ 'aXb'.replace('X', '--') }}") == "a=1b-2a--b"


def test_refusals_have_the_words_of_the_template() -> None:
    error = refusal("{{ raise_exception('Roles must alternate!') }}")
    assert "Roles must alternate!" in error.message
    assert (error.param, error.code) == ("messages", "template_refused")


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[9].content }}", "{{ 1 / 0 }}", "{{ messages.x.y }}", "{{ 'a' + 1 }}", "{{ none() }}",
        "{% include 'x' %}", "{{ messages | first | round }}", "{{ 'a' | int('x', base=99) }}{{ undefined_call() }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ],
)  # fmt: skip
def test_failures_are_a_400_in_clear_words(source: str) -> None:
    error = refusal(source)
    assert "cannot render this conversation" in error.message
    assert "Traceback" not in error.message


@pytest.mark.parametrize("source", ["{% for %}", "{{", "{% endif %}", "{{ x | no_such_filter }}", "{{ " + "(" * 5000])
def test_bad_source_is_a_model_error(source: str) -> None:
    with pytest.raises(ModelFileError, match="chat template"):
        JinjaChatTemplate(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({}) }}",
        "{{ raise_exception.__globals__.x }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ namespace(__html__=1) }}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{{ self._TemplateReference__context.environment.globals['x'].y }}",
        "{{ '{0.__class__.__mro__}'.format('') }}",
        "{{ messages | attr('__class__') | attr('__mro__') | string | upper }}{{ none.x.y }}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    assert "cannot render" in refusal(source).message


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% set r = range(99999) %}{% for a in r %}{% for b in r %}{% for c in r %}{% endfor %}{% endfor %}"
        "{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
        "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(n=9) %}{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
        "{{ 'x' * 10 ** 12 }}",
        "{{ [0] * 10 ** 10 }}",
        "{{ 9 ** (9 ** 9) }}",
        "{{ '%9999999999d' % 1 }}",
        "{{ '%*d' % (999999999, 1) }}",
        "{{ '{:9999999999}'.format(1) }}",
        "{{ '{:{}}'.format(1, 9999999999) }}",
        "{{ 'x'.center(10 ** 10) }}",
        "{{ 'x'.zfill(10 ** 10) }}",
        "{{ ('a' * 100000).replace('', 'b' * 100000) }}",
        "{{ ('b' * 100000).join(['a'] * 100000) }}",
        "{{ (['a'] * 100000) | join('b' * 100000) }}",
        "{{ ('a' * 100000) | replace('a', 'b' * 100000) }}",
        "{{ ('a\n' * 100000) | indent(100000) }}",
        "{{ 'x' | center(10 ** 10) }}",
        "{{ '%9999999999d' | format(1) }}",
        "{{ [1] | slice(10 ** 9) | list }}",
        "{{ (1).to_bytes(10 ** 10, 'big') }}",
        "{{ ('\t' * 100000).expandtabs(10000) }}",
        "{% set x = 'y' * 1000000 %}{% for i in range(99999) %}{{ x }}{% endfor %}",
        "{% set x = 'y' * 1000000 %}{% set z %}{% for i in range(99999) %}{{ x }}{% endfor %}{% endset %}",
        "{{ [1] | tojson(indent=10 ** 9) }}",
        "{{ strftime_now('%9999999999Y') }}",
    ],
)
def test_hostile_templates_are_stopped(source: str) -> None:
    start = time.thread_time()
    assert "was stopped" in refusal(source).message
    # Far above the budget of 2 s, far below what any of these would take.
    assert time.thread_time() - start < 20


def test_fallback_templates_are_marked() -> None:
    assert JinjaChatTemplate(CHATML_TEMPLATE, is_fallback=True).is_fallback
    assert not JinjaChatTemplate("x").is_fallback
    assert render(CHATML_TEMPLATE) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert render(PLAIN_TEMPLATE, add_generation_prompt=False) == "User: hi\n"


def test_long_conversations_are_within_the_budget() -> None:
    messages = [Message("user", "word " * 200)] * 2000
    assert len(render(CHATML_TEMPLATE, messages)) > 2_000_000
