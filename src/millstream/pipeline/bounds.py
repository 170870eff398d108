"""What is certain not to fit the context is refused by its length, before it is tokenised."""

from __future__ import annotations

from millstream.ir.errors import ApiError, context_length_exceeded
from millstream.ir.threads import beside
from millstream.models.interfaces import Tokenizer

LONG_TEXT = 32_768
"""Characters from which a prompt is made beside the event loop, so that it does not stall the streams of others."""

LONGEST_TEXT = 4_194_304
"""Characters of a text, or of a rendered conversation, that is tokenised at all, whatever the context is."""

SHRINKING = 4
"""A tokenizer's normaliser (NFC) makes no text shorter than this part of its bytes."""


class LengthBound:
    """The least number of tokens that a text can have, from the longest token of a vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._longest: int | None = None

    async def check(self, text: str, longest: int | None, *, param: str, answered: bool = True) -> None:
        """Refuse a text that cannot have ``longest`` tokens or fewer (None: any number); ``answered``: an answer must
        follow.

        Raises:
            ApiError: 400; 413 for what is too long to be tokenised at all.
        """
        if len(text) < LONG_TEXT:
            return
        if longest is not None:
            least = len(text) // (SHRINKING * await self._longest_token())
            if least > longest:
                raise context_length_exceeded(least, longest + answered, param=param, at_least=True, answered=answered)
        if len(text) > LONGEST_TEXT:
            raise ApiError(
                f"The text has {len(text)} characters, but one request may have {LONGEST_TEXT} tokenised. Divide it.",
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
