"""Loading weights beside what else a start has to do."""

from __future__ import annotations

import threading

import pytest

from millstream.engine.loading import Beside


def test_what_the_function_returns_is_there_when_it_is_asked_for() -> None:
    with Beside(lambda: threading.current_thread().name) as loading:
        assert loading.result() == "loading" != threading.current_thread().name


@pytest.mark.parametrize("error", [ValueError("slot q is missing"), MemoryError(), RuntimeError()])
def test_an_error_of_the_function_is_raised_where_its_result_is_wanted(error: Exception) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught, Beside(fail) as loading:
        loading.result()
    assert caught.value is error


def test_the_body_ends_after_the_function() -> None:
    done = []
    with Beside(lambda: done.append(True)):
        pass
    assert done


@pytest.mark.parametrize("why", [KeyboardInterrupt, ImportError])
def test_an_interrupted_body_does_not_wait_for_the_function(why: type[BaseException]) -> None:
    hold = threading.Event()
    try:
        with pytest.raises(why), Beside(lambda: hold.wait(60)):
            raise why
        assert any(thread.name == "loading" and thread.daemon for thread in threading.enumerate())
    finally:
        hold.set()
