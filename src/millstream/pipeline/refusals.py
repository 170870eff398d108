"""The last stage of a chat's choice, if the operator wants it: a refusal is recognised and told just before the end."""

from __future__ import annotations

from millstream.engine.protocol import TokenDelta
from millstream.ir.deltas import Content, Delta, Finish, Refusal, ToolCallStart
from millstream.parsing.refusal import RefusalMatcher
from millstream.pipeline.sequences import Decoder


class RefusalStage:
    """Adds one `Refusal` where the text is one and no tool was called; everything else passes unchanged."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._matcher = RefusalMatcher()
        self._has_calls = False

    @property
    def finished(self) -> bool:
        return self._decoder.finished

    def feed(self, step: TokenDelta) -> list[Delta]:
        deltas = self._decoder.feed(step)
        for delta in deltas:
            if isinstance(delta, Content):
                self._matcher.feed(delta.text)
            elif isinstance(delta, ToolCallStart):
                self._has_calls = True
        last = deltas[-1] if deltas else None
        if isinstance(last, Finish) and not self._has_calls and (text := self._matcher.refusal) is not None:
            deltas.insert(-1, Refusal(text, last.choice))
        return deltas
