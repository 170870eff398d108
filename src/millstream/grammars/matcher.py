"""From a grammar to the tokens that it allows at each position.

A grammar is text in llguidance's form: a JSON list of grammars (Lark dialect, JSON schemas) that refer to each other by
name. Grammars come from strangers, so every resource that one may take is bounded; what goes over a bound is refused,
and in the middle of an answer allows no token any more.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from numpy.typing import NDArray

CACHED_BYTES = 64 << 20
"""Memory that compiled grammars are kept in, the least recently used dropped first."""

_BYTES = 128 << 10
_BYTES_PER_CHARACTER = 200
"""A compiled grammar takes no more: measured on schemas of 60 to 230,000 characters, hostile ones among them, it grows
with the text and not with what the text means, as the automaton of the lexer is made while it is used."""

GRAMMAR_CHARACTERS = 256 * 1024
"""Longest grammar: with it, the deepest chain of rules or references that can be written fits `_STACK_BYTES`."""

_STACK_BYTES = 256 << 20
"""llguidance follows chains of rules by recursion, about 5 kB a level; a usual stack ends at 1,500 levels, and with it
the process. Only what is touched of a stack takes memory."""

_stack_lock = threading.Lock()

_LIMITS = LLParserLimits(
    max_items_in_row=8_000,
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=200_000,
    step_max_items=50_000,
    max_lexer_states=20_000,
    max_grammar_size=200_000,
    verbose_errors=False,
)
"""On one core of 2024: at most about a second to compile, 20 ms for a step, 40 MB for the states of the lexer."""


class GrammarError(ValueError):
    """A grammar that cannot be compiled, or that no text satisfies; the message is for who wrote it."""


class Matcher:
    """The grammar over one sequence. Its state depends on nothing but the tokens that it was advanced by."""

    __slots__ = ("_matcher", "_scratch", "_words")

    def __init__(self, matcher: LLMatcher, scratch: NDArray[np.uint32]) -> None:
        """``scratch`` [words of a mask]: written by `forced`."""
        self._matcher = matcher
        self._words = len(scratch)
        self._scratch = scratch

    def mask(self, out: NDArray[np.uint32]) -> None:
        """Write the allowed tokens into ``out`` [ceil(vocab / 32)]: bit t % 32 of word t / 32; none after an error.

        ``out`` may be longer than the tokenizer's vocabulary needs, as embedding tables are padded.
        """
        out[self._words :] = 0
        if not self._matcher.is_error():
            self._matcher.unsafe_compute_mask_ptr(out.ctypes.data, self._words * 4)
        if self._matcher.is_error():
            out.fill(0)

    def forced(self) -> int | None:
        """The only token that `mask` would allow. None also if there is one and llguidance does not find it at once.

        Text that is forced can be cut into tokens in several ways, so llguidance's proposal counts only if the mask is
        that token alone.
        """
        if self._matcher.is_stopped():
            return None
        proposal = self._matcher.compute_ff_tokens()
        if not proposal:
            return None
        token = proposal[0]
        self.mask(self._scratch)
        alone = self._scratch[token // 32] == 1 << token % 32 and np.count_nonzero(self._scratch) == 1
        return token if alone else None

    def advance(self, token: int) -> None:
        """The token was sampled."""
        self._matcher.consume_token(token)

    @property
    def finished(self) -> bool:
        """Whether the text is whole and nothing can follow."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    @property
    def error(self) -> str | None:
        """Why no token is allowed any more, if the grammar went over a bound or was given a token it forbids."""
        return _summary(self._matcher.get_error()) if self._matcher.is_error() else None


class Compiler:
    """Compiles grammars for one vocabulary. Not for use by several threads at once, nor are the matchers' `forced`.

    ``compiled`` and ``reused`` count the matchers that a grammar was compiled for, and those of a kept one.

    Args:
        tokens: the bytes of each token.
        special_ids: control tokens, which only a grammar that names them by id allows.
        eos_ids: tokens that end a text; allowed wherever the grammar allows an end.
    """

    def __init__(self, tokens: Sequence[bytes], *, special_ids: Iterable[int], eos_ids: Iterable[int]) -> None:
        eos = sorted(eos_ids)
        if not eos:
            raise GrammarError("the model has no token that ends a text, so no grammar can hold")
        encoder = _GreedyEncoder(tokens, sorted({*special_ids, *eos}), eos[0])
        self._tokenizer = LLTokenizer(TokenizerWrapper(encoder), eos_token=eos)
        encoder.tokenizer = self._tokenizer
        self._scratch = np.zeros(-(-len(tokens) // 32), np.uint32)
        self._kept: OrderedDict[tuple[str, str], LLMatcher] = OrderedDict()
        self._kept_bytes = 0
        self.compiled = 0
        self.reused = 0

    @property
    def kept_bytes(self) -> int:
        """Estimate of the memory of the grammars that are kept."""
        return self._kept_bytes

    def matcher(self, grammar: str, tokens: Sequence[int] = (), *, tenant: str = "") -> Matcher:
        """A matcher that has been advanced by ``tokens``.

        Tenants do not share what is kept: how long it takes would tell one that another has the same grammar.

        Raises:
            GrammarError: the grammar cannot be compiled.
        """
        key = (tenant, grammar)
        compiled = self._kept.get(key)
        if compiled is not None:
            self._kept.move_to_end(key)
            self.reused += 1
        else:
            compiled = self._compile(grammar)
            self.compiled += 1
            self._keep(key, compiled)
        matcher = Matcher(compiled.deep_copy(), self._scratch)
        for token in tokens:
            matcher.advance(token)
        return matcher

    def _keep(self, key: tuple[str, str], compiled: LLMatcher) -> None:
        self._kept[key] = compiled
        self._kept_bytes += _estimate(key)
        while self._kept_bytes > CACHED_BYTES:
            dropped, _ = self._kept.popitem(last=False)
            self._kept_bytes -= _estimate(dropped)

    def _compile(self, grammar: str) -> LLMatcher:
        if len(grammar) > GRAMMAR_CHARACTERS:
            raise GrammarError(f"it is too long: {len(grammar)} characters, at most {GRAMMAR_CHARACTERS}")
        done: list[LLMatcher] = []
        build = threading.Thread(
            target=lambda: done.append(LLMatcher(self._tokenizer, grammar, limits=_LIMITS, log_level=0))
        )
        with _stack_lock:  # the size of a stack is a setting of the process
            usual = threading.stack_size(_STACK_BYTES)
            try:
                build.start()
            except RuntimeError:
                raise GrammarError("there is no memory to compile it") from None
            finally:
                threading.stack_size(usual)
        build.join()
        if not done:
            raise GrammarError("it cannot be compiled")
        if done[0].is_error():
            raise GrammarError(_summary(done[0].get_error()))
        return done[0]

    def check(self, grammar: str) -> None:
        """Compile a grammar, which is not kept, and see whether a text can begin.

        Raises:
            GrammarError: it cannot be compiled, or no text satisfies it.
        """
        matcher = Matcher(self._compile(grammar), self._scratch)
        mask = np.zeros(len(self._scratch), np.uint32)
        matcher.mask(mask)
        if matcher.error is not None:
            nothing = "NoExtension" in matcher.error
            raise GrammarError("nothing satisfies it" if nothing else matcher.error)
        if not mask.any():
            raise GrammarError("nothing satisfies it")


def _estimate(key: tuple[str, str]) -> int:
    return _BYTES + _BYTES_PER_CHARACTER * len(key[1])


def byte_compiler(special_ids: Iterable[int] = ()) -> Compiler:
    """A compiler for checks: control tokens have their own ids, the ordinary tokens are the single bytes, at ids that
    are free. It costs next to nothing, whatever the size of the real vocabulary."""
    special = sorted(set(special_ids))
    free = [token_id for token_id in range(len(special) + 257) if token_id not in set(special)][:257]
    tokens = [b""] * (max([*free, *special]) + 1)
    for value, token_id in enumerate(free[:256]):
        tokens[token_id] = bytes([value])
    for token_id in special:
        tokens[token_id] = b"<[%d]>" % token_id
    return Compiler(tokens, special_ids=special, eos_ids=[free[256]])


class _GreedyEncoder:
    """What llguidance wants to know of a tokenizer.

    Where a grammar leaves one text only, llguidance asks for its tokens, so that the model reads text as it is used
    to. The longest match is taken for them: it is what BPE gives but for rare words, and needs no merges here.
    """

    bos_token_id = None

    def __init__(self, tokens: Sequence[bytes], special_ids: Sequence[int], eos_id: int) -> None:
        self.tokens = tokens
        self.special_token_ids = special_ids
        self.eos_token_id = eos_id
        self.tokenizer: LLTokenizer | None = None

    def __call__(self, text: bytes) -> list[int]:
        if self.tokenizer is None:  # a probe, before there is a tokenizer
            return []
        return self.tokenizer.greedy_tokenize(text.decode())


def _summary(message: str) -> str:
    """llguidance's complaint in one line: what failed, and the reason that a regular expression's parser gives."""
    lines = [line.strip() for line in message.splitlines() if line.strip() and "<non-verbose/>" not in line]
    if not lines:
        return "it is too complex"
    reason = next((line.removeprefix("error: ") for line in lines[1:] if line.startswith("error: ")), "")
    return f"{lines[0]} {reason}".strip()
