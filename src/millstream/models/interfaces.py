"""What the pipeline needs of a tokenizer and of a chat template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from millstream.ir.request import Message, Tool


class Tokenizer(Protocol):
    """Text to ids and back, exactly: a token is a string of bytes."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end a turn (end of text, end of message)."""
        ...

    @property
    def bos_id(self) -> int | None: ...

    def encode(self, text: str, *, add_bos: bool = False, parse_special: bool = True) -> list[int]:
        """Ids of a text. ``add_bos`` follows the model's own rule (a no-op for models that use no BOS, and never a
        second one). ``parse_special``: markers such as ``<|im_end|>`` in the text become their control tokens."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for; for a control token the bytes of its name."""
        ...

    def is_special(self, token_id: int) -> bool:
        """Control tokens, which are never part of visible text."""
        ...


class ChatTemplate(Protocol):
    """A conversation as the model wants to read it."""

    @property
    def source(self) -> str: ...

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        kwargs: dict[str, Any] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """Raises `ApiError` (400) if the template refuses the conversation, with the template's own words."""
        ...
