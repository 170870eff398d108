"""What the tests of the default model share: one server process a module, the official client, and two schemas."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import openai
import pytest

from support.real_models import DEFAULT_MODEL, real_model
from support.served import Served, serve


@pytest.fixture(scope="module")
def options() -> tuple[str, ...]:
    """Of `millstream serve`; a module may have its own."""
    return ("--max-batch", "4", "--ctx", "2048")


@pytest.fixture(scope="module")
def served(options: tuple[str, ...]) -> Iterator[Served]:
    with serve(real_model(DEFAULT_MODEL), *options) as server:
        yield server


@pytest.fixture
async def client(served: Served) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client
