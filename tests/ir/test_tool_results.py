"""Results of tools stand in the order of their calls, whatever order the client sent them in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.ir.request import Message, ToolCall
from millstream.ir.turns import results_in_call_order


def asked(*ids: str) -> Message:
    return Message("assistant", "", tool_calls=tuple(ToolCall(name, "f", "{}") for name in ids))


def result(name: str, text: str = "") -> Message:
    return Message("tool", text or name, tool_call_id=name)


USER = Message("user", "hi")


@given(st.data())
def test_any_order_of_results_is_that_of_the_calls(data: st.DataObject) -> None:
    conversation, shuffled = [USER], [USER]
    for count in data.draw(st.lists(st.integers(1, 4), max_size=3)):
        # Ids come again in later turns, as some models count from 0 each time.
        ids = data.draw(st.permutations([f"c{number}" for number in range(count)]))
        results = [result(name) for name in ids]
        conversation += [asked(*ids), *results, USER]
        shuffled += [asked(*ids), *data.draw(st.permutations(results)), USER]
    assert results_in_call_order(shuffled) == conversation


def test_calls_in_turns_of_their_own_count_too() -> None:
    ordered = results_in_call_order([asked("a"), asked("b"), result("b"), result("a")])
    assert ordered == [asked("a"), asked("b"), result("a"), result("b")]


def test_results_of_no_known_call_keep_their_order_behind_the_others() -> None:
    ordered = results_in_call_order([asked("a"), result("x"), result("y"), result("a")])
    assert ordered == [asked("a"), result("a"), result("x"), result("y")]


def test_results_do_not_leave_their_run() -> None:
    conversation = [asked("a", "b"), result("b"), USER, result("a")]
    assert results_in_call_order(conversation) == conversation
