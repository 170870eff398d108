"""Refusal detection: does the visible text begin as models begin when they decline?

A refusal is told beside the text, never instead of it. The rule is plain and English: after an optional apology or
self-description, the first sentences say in the first person that the speaker cannot, will not or must not do what was
asked. It looks at the beginning only, so that an answer which mentions limits later on is none, and at whole words,
so that "I can't wait" and "I cannot recommend it enough" are none. It will miss refusals in other words and languages.
"""

from __future__ import annotations

import re

LIMIT = 400
"""Characters that are looked at; the rest is not kept."""

_QUOTES = str.maketrans({"’": "'", "‘": "'", "ʼ": "'"})
_APOLOGY = (
    r"(?:(?:i'?\s?a?m )?(?:so |very |really |truly )?sorry|i (?:do )?apologi[sz]e|(?:my )?apologies|unfortunately)"
)
_LEAD = rf"(?:{_APOLOGY}[^.!?\n]{{0,80}}?[,.;:!—–-]\s*|as an? [^,.\n]{{2,60}}, |no[,.] |but )"
_MODAL = (
    r"i(?: am|'m)(?: just)? (?:not able|unable|not allowed|not permitted|not comfortable)(?: to)?"
    r"|i (?:simply |really |just )?(?:can ?not|can't|could not|couldn't|will not|won't|may not|must not|shouldn't)"
)
_DECLINE = r"i (?:must|have to|need to|will have to|'ll have to) (?:respectfully |politely )?(?:decline|refuse)"
_VERB = (
    r"help|assist|provide|comply|fulfil|fulfill|create|generate|write|produce|engage|support|do (?:that|this|so)|answer"
    r"|discuss|participate|give you|share|offer|respond|continue|complete|carry out|facilitate|promote|encourage"
    r"|decline|refuse|advise|teach|explain how|describe how|tell you how|be of help|be part of|providing|helping"
    r"|assisting|discussing|creating|writing|sharing|with (?:that|this)"
)
_REFUSAL = re.compile(
    rf"^[\s*_#>\"']*(?:{_LEAD}){{0,4}}(?:but |however,? )?(?:{_DECLINE}|(?:{_MODAL})\s+"
    rf"(?:in good conscience |ethically |directly |be able to |in any way |and will not |or will not )?(?:{_VERB}))\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r".*?[.!?][*_\"')]*(?=\s|$)|.+", re.DOTALL)


class RefusalMatcher:
    """Fed with the visible text of one choice, in any pieces; keeps the first `LIMIT` characters of it."""

    def __init__(self) -> None:
        self._text = ""

    def feed(self, text: str) -> None:
        if len(self._text) < LIMIT:
            self._text += text[: LIMIT - len(self._text)]

    @property
    def refusal(self) -> str | None:
        """The sentences of the text up to the one that declines, if it is a refusal."""
        text = self._text
        match = _REFUSAL.match(text.translate(_QUOTES))
        if match is None:
            return None
        end = 0
        while end < match.end() and (sentence := _SENTENCE.match(text, end)):
            end = sentence.end()
        return text[:end].strip()
