"""Strict templates get conversations in a form that they take."""

from __future__ import annotations

import pytest

from millstream.ir.errors import ApiError
from millstream.ir.request import Message, ToolCall
from millstream.models.template import JinjaChatTemplate
from millstream.models.turns import simpler_forms

LINES = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
SYSTEM_FIRST = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}{% endfor %}"
)
ALTERNATING = (
    "{% set turns = messages[1:] if messages[0].role == 'system' else messages %}"
    "{% for m in turns %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}{% endfor %}"
)
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"

CLAUDE_CODE = [
    Message("system", "S"),
    Message("user", "a"),
    Message("system", "note"),
    Message("assistant", "b"),
    Message("user", "c"),
    Message("user", "d"),
]


def test_a_template_that_takes_the_conversation_gets_it_as_it_is() -> None:
    rendered = JinjaChatTemplate(LINES).render(CLAUDE_CODE)
    assert rendered == "system: S\nuser: a\nsystem: note\nassistant: b\nuser: c\nuser: d\n"


@pytest.mark.parametrize("rule", [SYSTEM_FIRST, ALTERNATING, SYSTEM_FIRST + ALTERNATING])
def test_later_instructions_join_the_user_turn(rule: str) -> None:
    rendered = JinjaChatTemplate(rule + LINES).render(CLAUDE_CODE)
    assert rendered == "system: S\nuser: a\n\nnote\nassistant: b\nuser: c\n\nd\n"


def test_without_a_system_role_the_first_turn_begins_with_it() -> None:
    rendered = JinjaChatTemplate(NO_SYSTEM + ALTERNATING + LINES).render(CLAUDE_CODE)
    assert rendered == "user: S\n\na\n\nnote\nassistant: b\nuser: c\n\nd\n"


def test_what_no_form_can_help_is_refused_in_the_templates_words() -> None:
    with pytest.raises(ApiError, match="roles must alternate") as caught:
        JinjaChatTemplate(ALTERNATING + LINES).render([Message("assistant", "a"), Message("user", "b")])
    assert caught.value.code == "template_refused"


def test_calls_and_results_keep_their_places() -> None:
    call = ToolCall("t", "f", "{}")
    messages = [
        Message("developer", "A"),
        Message("system", "B"),
        Message("user", "a"),
        Message("assistant", "b", reasoning="hm", tool_calls=(call,)),
        Message("tool", "1", tool_call_id="t"),
        Message("tool", "2", tool_call_id="u"),
        Message("system", "note"),
    ]
    first, second = simpler_forms(messages)
    assert first == [
        Message("developer", "A\n\nB"),
        *messages[2:6],
        Message("user", "note"),
    ]
    assert second == [Message("user", "A\n\nB\n\na"), *first[2:]]
