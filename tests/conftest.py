"""Settings of the whole suite: how thorough a run is, and in which order parallel workers take the files."""

from __future__ import annotations

import gc
import signal
from collections.abc import Generator

import pytest
from hypothesis import settings

from support.heavy import heaviest_first
from support.other_core import use_other_core

use_other_core()

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # Shells start what runs in the background so, and processes that are started from here would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: a busy machine is no reason to fail.
settings.register_profile("millstream", deadline=None, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=500)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--thorough", action="store_true", help="run the tests marked so too, and properties with more examples"
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("thorough" if config.getoption("thorough") else "millstream")


@pytest.fixture(scope="session")
def thorough(pytestconfig: pytest.Config) -> bool:
    """For tests that say the same of less data unless asked to be thorough."""
    return bool(pytestconfig.getoption("thorough"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("thorough"):
        left_out = [item for item in items if item.get_closest_marker("thorough")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]
    if hasattr(config, "workerinput"):  # of pytest-xdist
        heaviest_first(items)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage: the millions of objects all stay, and later looks pass them over."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
