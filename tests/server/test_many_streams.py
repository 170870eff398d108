"""Many streams at once through one process: each gets its own text and one end."""

from __future__ import annotations

import pytest

from millstream.bench.api_client import Connections, body_of, http_request
from millstream.bench.api_script import MODEL, prompt_of, scripted_provider, text_of
from millstream.bench.api_surfaces import API_SURFACES
from support.live import serving

STREAMS = 500
TOKENS = 12


def test_500_streams_at_once_over_all_surfaces() -> None:
    """All are open before any is read, and each answer is that of its own prompt."""
    surfaces = list(API_SURFACES.values())
    provider, engine = scripted_provider()
    with serving(provider) as live, Connections(("127.0.0.1", live.port), STREAMS) as connections:
        asked = [surfaces[number % len(surfaces)] for number in range(STREAMS)]
        requests = [
            http_request(surface.path, surface.body(MODEL, prompt_of(number, TOKENS), TOKENS + 1), "localhost")
            for number, surface in enumerate(asked)
        ]
        for _ in range(2):  # the second time over the same connections
            answers = connections.ask(requests, seconds=60)
            for number, (surface, answer) in enumerate(zip(asked, answers, strict=True)):
                told = surface.read(body_of(answer))
                assert told.text == text_of(number, TOKENS)
                assert (told.ends, told.ends_last) == (1, True)
    assert len(engine.requests) == 2 * STREAMS
    assert engine.aborted == []


@pytest.mark.parametrize("name", API_SURFACES)
def test_one_event_per_token(name: str) -> None:
    surface = API_SURFACES[name]
    provider, _ = scripted_provider()
    with serving(provider) as live, Connections(("127.0.0.1", live.port), 1) as connections:
        body = surface.body(MODEL, prompt_of(3, TOKENS), TOKENS + 1)
        (answer,) = connections.ask([http_request(surface.path, body, "localhost")], seconds=20)
    assert surface.read(body_of(answer)).events == TOKENS
