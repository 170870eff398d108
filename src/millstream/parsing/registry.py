"""Formats by name, their detection, and the parser of a request."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from millstream.ir.request import Tool
from millstream.parsing.events import Parser
from millstream.parsing.reasoning import format as reasoning
from millstream.parsing.reasoning.format import ReasoningFormat
from millstream.parsing.reasoning.split import ReasoningSplit, visible_text
from millstream.parsing.scan.machine import Machine
from millstream.parsing.tools import (
    deepseek,
    gemma,
    generic,
    glm,
    granite,
    harmony,
    hermes,
    kimi,
    llama3,
    minimax,
    mistral,
    phi4,
    pythonic,
    qwen3_coder,
)
from millstream.parsing.tools.format import Toolbox, ToolFormat

TOOL_FORMATS: dict[str, ToolFormat] = {
    format.name: format
    for format in (
        harmony.FORMAT,
        deepseek.V32,
        deepseek.V3,
        deepseek.V31,
        kimi.FORMAT,
        mistral.FORMAT,
        minimax.M2,
        minimax.M1,
        gemma.NATIVE,
        gemma.FORMAT,
        glm.FORMAT,
        qwen3_coder.SEED_OSS,
        qwen3_coder.FORMAT,
        phi4.FORMAT,
        granite.FORMAT,
        pythonic.FORMAT,
        hermes.FORMAT,
        llama3.FORMAT,
        generic.FORMAT,
    )
}
"""By name, in the order in which detection asks them: those with the most telling markup first."""

REASONING_FORMATS: dict[str, ReasoningFormat] = reasoning.FORMATS


def detect_tool_format(template_source: str, special_token_names: Collection[str] = ()) -> str:
    """Name of the tool format that a chat template teaches; ``generic`` if it teaches none."""
    for name, format in TOOL_FORMATS.items():
        if format.detect(template_source, special_token_names):
            return name
    return generic.FORMAT.name


def detect_reasoning_format(template_source: str, special_token_names: Collection[str] = ()) -> str:
    """Name of the reasoning format that a chat template knows; ``none`` if it knows none."""
    if harmony.FORMAT.detect(template_source, special_token_names):
        return reasoning.HARMONY.name
    for name, format in REASONING_FORMATS.items():
        if format.close and (format.close in template_source or format.close in special_token_names):
            return name
    return reasoning.NONE.name


def compose(format: ReasoningFormat, tools: Machine | None, *, opened: bool = False) -> Parser:
    """The reasoning stage in front of the tool stage; either may be missing."""
    visible = tools if tools is not None else Machine(visible_text)
    return ReasoningSplit(format, visible, opened=opened) if format.open else visible


def create_parser(
    tool_format: str, reasoning_format: str, tools: Sequence[Tool] = (), *, reasoning_opened: bool = False
) -> Parser:
    """A fresh parser for one choice.

    Args:
        tools: those of the request; without any, no text is taken for a call.
        reasoning_opened: whether the prompt ends inside a block of reasoning.

    Raises:
        KeyError: no format has this name.
    """
    split = REASONING_FORMATS[reasoning_format]
    chosen = TOOL_FORMATS[tool_format]
    if chosen.reasoning is None and split is reasoning.HARMONY:
        chosen = harmony.FORMAT
    machine = Machine(chosen.steps(Toolbox(tools))) if tools or chosen.reasoning else None
    return compose(split if chosen.reasoning is None else reasoning.NONE, machine, opened=reasoning_opened)
