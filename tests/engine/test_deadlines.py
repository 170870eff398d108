from hypothesis import given
from hypothesis import strategies as st

from millstream.engine.deadlines import Deadlines


def test_what_is_due_comes_in_order_and_once() -> None:
    deadlines = Deadlines()
    for name, at in (("late", 9.0), ("soon", 1.0), ("gone", 2.0), ("then", 3.0)):
        deadlines.add(name, at)
    deadlines.remove("gone")
    deadlines.remove("unknown")
    assert deadlines.next == 1.0
    assert deadlines.due(0.5) == []
    assert deadlines.due(3.0) == ["soon", "then"]
    assert deadlines.due(3.0) == []
    assert deadlines.next == 9.0


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=80))
def test_requests_that_ended_leave_nothing_behind(requests: list[tuple[float, bool]]) -> None:
    deadlines = Deadlines()
    for index, (at, ends) in enumerate(requests):
        deadlines.add(str(index), at)
        if ends:
            deadlines.remove(str(index))
    left = [(at, str(index)) for index, (at, ends) in enumerate(requests) if not ends]
    assert len(deadlines._heap) <= 2 * len(left) + 16
    assert deadlines.due(100.0) == [name for _, name in sorted(left)]
    assert deadlines.next is None
