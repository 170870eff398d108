"""Reasoning formats: a pair of tags around the thoughts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReasoningFormat:
    """Thoughts stand between ``open`` and ``close``. Both empty: there are none.

    Attributes:
        name: as in flags.
    """

    name: str
    open: str = ""
    close: str = ""


NONE = ReasoningFormat("none")
THINK = ReasoningFormat("think", "<think>", "</think>")
DEEPSEEK = ReasoningFormat("deepseek", "<think>", "</think>")
THOUGHT = ReasoningFormat("thought", "<thought>", "</thought>")
REASONING = ReasoningFormat("reasoning", "<reasoning>", "</reasoning>")
MISTRAL = ReasoningFormat("mistral", "[THINK]", "[/THINK]")
HARMONY = ReasoningFormat("harmony")
"""Channels: the parser of the tool format of the same name does the split."""

FORMATS = {format.name: format for format in (NONE, THINK, DEEPSEEK, THOUGHT, REASONING, MISTRAL, HARMONY)}
