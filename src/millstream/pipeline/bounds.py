"""What is certain not to fit the context is refused by its length, before it is tokenised."""

from __future__ import annotations

import msgspec

from millstream.ir.errors import ApiError, context_length_exceeded
from millstream.ir.request import ChatRequest
from millstream.ir.threads import beside
from millstream.models.interfaces import Tokenizer

LONG_TEXT = 32_768
"""Characters from which a prompt is made beside the event loop, so that it does not stall the streams of others."""

LONGEST_TEXT = 4_194_304
"""Characters of a text, or of a conversation before and after it is rendered, that are worked on at all, whatever the
context is. A chat template can write twice as many (`millstream.models.sandbox`) before it is stopped."""

SHRINKING = 4
"""A tokenizer's normaliser (NFC) makes no text shorter than this part of its bytes."""


def text_length(request: ChatRequest) -> int:
    """Characters that a conversation gives the chat template: contents, reasoning, calls and tools."""
    tools = len(msgspec.json.encode(request.tools).decode()) if request.tools else 0
    return tools + sum(
        len(message.content)
        + len(message.reasoning or "")
        + sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
        for message in request.messages
    )


class LengthBound:
    """The least number of tokens that a text can have, from the longest token of a vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._longest: int | None = None

    async def check(self, length: int, longest: int | None, *, param: str, answered: bool = True) -> None:
        """Refuse a text of so many characters if it cannot have ``longest`` tokens or fewer (None: any number);
        ``answered``: an answer must follow.

        Raises:
            ApiError: 400; 413 for what might fit but is too long to be worked on at all.
        """
        if length < LONG_TEXT:
            return
        if longest is not None:
            least = length // (SHRINKING * await self._longest_token())
            if least > longest:
                raise context_length_exceeded(least, longest + answered, param=param, at_least=True, answered=answered)
        if length > LONGEST_TEXT:
            raise ApiError(
                f"The text has {length} characters, but one request may have {LONGEST_TEXT}. Divide it.",
                code="text_too_long",
                param=param,
                status=413,
            )

    async def _longest_token(self) -> int:
        """Bytes of the longest token; looked for when the first long text comes."""
        if self._longest is None:
            tokenizer = self._tokenizer
            self._longest = await beside(
                lambda: max(len(tokenizer.token_bytes(token_id)) for token_id in range(tokenizer.vocab_size))
            )
        return self._longest
