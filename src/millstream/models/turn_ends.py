"""Which tokens end an answer.

A model file names one or two of them, and not always the right ones; the others are known by name. But a name means
different things in different formats: ``<|end|>`` ends Phi's turn, and only one message of several in gpt-oss's. So
what the format says, as the chat template shows it, comes before what the name or the file says.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

_ENDS = frozenset(
    {
        "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",
        "<end_of_utterance>", "<｜end▁of▁sentence｜>",
    }
)  # fmt: skip
"""They end a turn in every vocabulary that has them, whatever kind a converter gave them. ``<|eom_id|>`` hands over to
a tool, so the answer ends there too."""

_CONTROL_ENDS = frozenset(
    {"</s>", "<eos>", "<EOT>", "[EOT]", "[EOS]", "<|eot|>", "<|eom|>", "<turn|>", "<|END_OF_TURN_TOKEN|>"}
)
"""The same only as control tokens: some vocabularies have these as ordinary text (Gemma 3 has </s> as HTML)."""


class _Format(NamedTuple):
    """Where the names above are not the whole truth.

    Attributes:
        signs: what a chat template of this format holds, and a vocabulary of it without a template.
        ends: what ends a turn besides the names above, as control tokens.
        inner: what ends a message of a turn that goes on, whatever the names above or the model file say.
    """

    signs: frozenset[str]
    ends: frozenset[str]
    inner: frozenset[str] = frozenset()


_FORMATS = (
    # gpt-oss: thoughts, calls and the answer are messages of one turn.
    _Format(frozenset({"<|channel|>", "<|message|>"}), frozenset({"<|return|>", "<|call|>"}), frozenset({"<|end|>"})),
    # Solar Open: the same with a name of its own for each part.
    _Format(frozenset({"<|content|>", "<|end|>"}), frozenset({"<|flush|>", "<|calls|>"}), frozenset({"<|end|>"})),
    # GLM closes no turn: the model opens the next one, of the user or of a tool.
    _Format(frozenset({"<|observation|>", "<|user|>"}), frozenset({"<|observation|>", "<|user|>"})),
    # After its calls the model opens what the tools answer.
    _Format(frozenset({"<start_function_response>"}), frozenset({"<start_function_response>"})),  # FunctionGemma
    _Format(frozenset({"<|tool_response>"}), frozenset({"<|tool_response>"})),  # Gemma 4
)
"""From the models' own templates, tokenizer files and generation settings."""


def ends_of(names: Set[str], control: Set[str], told: Set[str], template: str) -> tuple[set[str], set[str]]:
    """Names of the tokens that end a turn, and of those that end a message within one.

    Args:
        names, control: all tokens of the vocabulary, and those that the file calls control tokens.
        told: those that the file says end a text, a turn or a message.
        template: the chat template; empty: the file has none.
    """
    ends = set(told) | (_ENDS & names) | (_CONTROL_ENDS & control)
    inner: set[str] = set()
    for format in _FORMATS:
        if not all(sign in template if template else sign in control for sign in format.signs):
            continue
        own = format.ends & (names if format.inner else control)
        ends |= own
        if own:  # else nothing would end the turn
            inner |= format.inner & names
    return ends - inner, inner
