"""What the tests of the official clients share: one live server a module, and a client of it without TLS."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from support.live import Live, serving


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with serving(keep_alive_seconds=0.1) as live:
        yield live


@pytest.fixture
def live(server: Live) -> Live:
    """The server, its provider as new."""
    server.provider.__init__()
    return server


@pytest.fixture
async def client(live: Live) -> AsyncIterator[AsyncOpenAI]:
    # No TLS here, and loading its certificates takes longer than most tests.
    http = DefaultAsyncHttpxClient(verify=False, trust_env=False)
    async with AsyncOpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0, http_client=http) as client:
        yield client
