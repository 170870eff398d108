"""Fill-in-the-middle: how models that were trained to write what stands between two texts are asked to."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from millstream.models.interfaces import Tokenizer


class InfillNames(msgspec.Struct, frozen=True):
    """Names of a family's control tokens. ``suffix_first``: the suffix stands before the prefix. ``middle`` may be
    empty: then the answer follows the second text at once. ``ends``: what such a model writes behind the middle."""

    prefix: str
    suffix: str
    middle: str
    suffix_first: bool = False
    ends: tuple[str, ...] = ()


FAMILIES = (
    InfillNames(
        "<|fim_prefix|>",
        "<|fim_suffix|>",
        "<|fim_middle|>",
        ends=("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|file_separator|>", "<|endoftext|>"),
    ),  # Qwen2.5-Coder, CodeGemma
    InfillNames("<fim_prefix>", "<fim_suffix>", "<fim_middle>", ends=("<file_sep>", "<|endoftext|>")),  # StarCoder
    InfillNames("<fim-prefix>", "<fim-suffix>", "<fim-middle>", ends=("<|endoftext|>",)),  # SantaCoder
    InfillNames("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek-Coder: begin, hole, end
    InfillNames("▁<PRE>", "▁<SUF>", "▁<MID>", ends=("▁<EOT>",)),  # Code Llama
    InfillNames("[PREFIX]", "[SUFFIX]", "", suffix_first=True),  # Codestral
)
"""From the models' own cards and tokenizer files."""


class Infill(msgspec.Struct, frozen=True):
    """A family's control tokens as ids."""

    prefix: int
    suffix: int
    middle: tuple[int, ...]
    suffix_first: bool
    ends: frozenset[int]

    def prompt(self, before: Sequence[int], after: Sequence[int]) -> list[int]:
        """The ids that ask for the text between ``before`` and ``after``."""
        if self.suffix_first:
            return [self.suffix, *after, self.prefix, *before, *self.middle]
        return [self.prefix, *before, self.suffix, *after, *self.middle]


def find_infill(tokenizer: Tokenizer) -> Infill | None:
    """The fill-in-the-middle tokens that a vocabulary has; None if it has no complete set."""
    for names in FAMILIES:
        prefix = _control_token(tokenizer, names.prefix)
        suffix = _control_token(tokenizer, names.suffix)
        middle = _control_token(tokenizer, names.middle) if names.middle else None
        if prefix is None or suffix is None or (names.middle and middle is None):
            continue
        ends = (_control_token(tokenizer, name) for name in names.ends)
        return Infill(
            prefix,
            suffix,
            () if middle is None else (middle,),
            names.suffix_first,
            frozenset(token for token in ends if token is not None),
        )
    return None


def _control_token(tokenizer: Tokenizer, name: str) -> int | None:
    ids = tokenizer.encode(name)
    if len(ids) == 1 and tokenizer.is_special(ids[0]) and tokenizer.token_bytes(ids[0]) == name.encode():
        return ids[0]
    return None
