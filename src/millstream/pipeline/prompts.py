"""Raw prompts, as completions and embeddings get them: texts or token ids, measured before they are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from millstream.ir.errors import context_length_exceeded, invalid
from millstream.ir.threads import beside
from millstream.models.interfaces import Tokenizer
from millstream.pipeline.bounds import LONG_TEXT, LengthBound
from millstream.pipeline.sequences import check_ids

Wire = str | tuple[int, ...]
"""A prompt as the request has it."""


class Read(Protocol):
    """What a prompt becomes; at least its token ids."""

    @property
    def ids(self) -> list[int]: ...


P = TypeVar("P", bound=Read)


class PromptReader:
    """Makes token ids of the prompts of a request. ``vocab_size``: of the model, padding included."""

    def __init__(self, tokenizer: Tokenizer, bound: LengthBound, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._bound = bound
        self._vocab_size = vocab_size

    async def read(
        self, prompts: Sequence[Wire], make: Callable[[Wire, str], P], *, field: str, longest: int, answered: bool
    ) -> list[P]:
        """What ``make`` makes of each prompt and its path; long ones are made beside the event loop.

        ``longest``: most tokens that a prompt may have; ``answered``: because an answer must follow.

        Raises:
            ApiError: 400 for what is too long, by its path, and what ``make`` raises.
        """
        paths = [field if len(prompts) == 1 else f"{field}[{index}]" for index in range(len(prompts))]
        # What an answer must follow fits the context less one; the message tells the context.
        context = longest + answered
        for prompt, path in zip(prompts, paths, strict=True):
            if isinstance(prompt, str):
                await self._bound.check(len(prompt), longest, param=path, answered=answered)
            elif len(prompt) > longest:
                raise context_length_exceeded(len(prompt), context, param=path, answered=answered)

        def make_all() -> list[P]:
            made = []
            for prompt, path in zip(prompts, paths, strict=True):
                each = make(prompt, path)
                if len(each.ids) > longest:
                    raise context_length_exceeded(len(each.ids), context, param=path, answered=answered)
                made.append(each)
            return made

        if sum(map(len, prompts)) < LONG_TEXT:
            return make_all()
        return await beside(make_all)

    def encode(self, prompt: Wire, path: str) -> list[int]:
        """Token ids of one prompt; an empty one is the token that begins a text, if the model has one.

        Raises:
            ApiError: 400; ids outside the vocabulary, no tokens at all, text that is none.
        """
        if isinstance(prompt, str):
            ids = self.encode_text(prompt, path, add_bos=True)
        else:
            check_ids(prompt, self._vocab_size, path)
            ids = list(prompt)
        if not ids and self._tokenizer.bos_id is not None:
            ids = [self._tokenizer.bos_id]
        if not ids:
            raise invalid(f"{path} is empty, and this model has no token to begin a text with.", param=path)
        return ids

    def encode_text(self, text: str, path: str, *, add_bos: bool = False, parse_special: bool = True) -> list[int]:
        """Token ids of a text; none of an empty one."""
        try:
            return self._tokenizer.encode(text, add_bos=add_bos, parse_special=parse_special)
        except UnicodeEncodeError:
            raise invalid("The text contains a lone surrogate, which is no character.", param=path) from None
