"""Stages around a choice of a completion: which prompt it belongs to, and the prompt's own text before it."""

from __future__ import annotations

from msgspec.structs import replace

from millstream.engine.protocol import TokenDelta
from millstream.ir.deltas import Content, Delta, Finish, Start, Usage
from millstream.pipeline.choice import ChoiceDecoder


class PromptStage:
    """Tells the number of the choice's prompt, and echoes its ``text`` (None: no echo)."""

    def __init__(self, decoder: ChoiceDecoder, *, prompt: int, choice: int, text: str | None) -> None:
        self._decoder = decoder
        self._prompt = prompt
        self._choice = choice
        self._text = text

    @property
    def finished(self) -> bool:
        return self._decoder.finished

    def feed(self, step: TokenDelta) -> list[Delta]:
        out: list[Delta] = []
        for delta in self._decoder.feed(step):
            if isinstance(delta, Start):
                out.append(replace(delta, prompt=self._prompt))
                if self._text:
                    out.append(Content(self._text, self._choice))
            else:
                out.append(delta)
        return out


def echoed(text: str, *, prompt: int, choice: int, tokens: int) -> list[Delta]:
    """A choice that is its prompt and nothing else."""
    return [
        Start(tokens, prompt=prompt),
        Content(text, choice),
        Finish("length", Usage(prompt_tokens=tokens), choice),
    ]
