"""Long texts are tokenised part by part: the tokenizers library takes 150 to 400 bytes of memory per character.

A part ends between a letter and one of `WORD_ENDS`. All of `millstream.models.pretokenizers` cut there, whatever stands
before or after, so the parts' tokens are those of the whole text. Where nothing cuts into words (SentencePiece), no
merge can reach across as long as no token of the vocabulary holds such a pair.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from millstream.ir.errors import ApiError

PART = 65_536
"""Characters from which a part ends at the next place where it can."""

LONGEST_PART = 524_288
"""Characters within which there must be such a place."""

WORD_ENDS = " \n,.;:!?、。，！？"

_PAIR = re.compile(rf"([^\W\d_])([{WORD_ENDS}])")


def word_ends(tokens: Iterable[str]) -> str:
    """Those of `WORD_ENDS` that follow a letter in none of these tokens."""
    found = {end for token in tokens for letter, end in _PAIR.findall(token) if letter.isalpha()}
    return "".join(end for end in WORD_ENDS if end not in found)


def parts(text: str, ends: str, *, part: int = PART, longest: int = LONGEST_PART) -> Iterator[str]:
    """A text in parts that end before one of ``ends``.

    Raises:
        ApiError: 413; there is a stretch of more than ``longest`` characters that cannot be cut.
    """
    pair = re.compile(rf"[^\W\d_](?=[{ends}])") if ends else None
    begin = 0
    while len(text) - begin > part:
        end = _cut(pair, text, begin + part, begin + longest) if pair is not None else None
        if end is None and len(text) - begin > longest:
            raise ApiError(
                f"A stretch of more than {longest} characters has no end of a word at which it could be divided, which "
                "is too long to be tokenised.",
                code="text_too_long",
                status=413,
            )
        if end is None:
            break
        yield text[begin:end]
        begin = end
    yield text[begin:]


def _cut(pair: re.Pattern[str], text: str, begin: int, end: int) -> int | None:
    """The first place behind a letter of ``text[begin:end]`` where a part may end."""
    for match in pair.finditer(text, begin, end):
        if match[0].isalpha():
            return match.end()
    return None
