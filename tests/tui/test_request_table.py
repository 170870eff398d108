"""What a row of the request table says in words."""

from __future__ import annotations

import pytest

from millstream.admin.views import RequestView
from millstream.tui.widgets.request_table import wait_of


@pytest.mark.parametrize(
    ("done", "reason", "words"),
    [(0, None, ""), (8_576, None, "44% read"), (19_106, None, ""), (8_576, "step_budget", "step budget")],
)
def test_how_far_a_prompt_is(done: int, reason: str | None, words: str) -> None:
    request = RequestView(id="a", state="prefill", prompt_tokens=19_106, prompt_done=done, wait_reason=reason)
    assert wait_of(request) == words
