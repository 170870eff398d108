"""Texts drawn at random from a grammar: at each position one of the tokens that it allows."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence

import numpy as np

from millstream.grammars.matcher import Compiler
from millstream.parsing.events import Piece

MARKUP = (
    *("<tool_call>", "</tool_call>", "<seed:tool_call>", "</seed:tool_call>", "<function=", "</function>"),
    *("<parameter=", "</parameter>", "\n</parameter>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    *("<minimax:tool_call>", "</minimax:tool_call>", '<invoke name="', "</invoke>", '<parameter name="', '">', ">"),
    *("<｜DSML｜function_calls>", "</｜DSML｜function_calls>", '<｜DSML｜invoke name="', "</｜DSML｜invoke>"),
    *('<｜DSML｜parameter name="', '" string="true">', '" string="false">', "</｜DSML｜parameter>"),
    *("<tool_calls>", "</tool_calls>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "<function_call>", "functools["),
    *("<|tool_call|>", "<|/tool_call|>", "```", "```json", "```tool_code", "```tool_call"),
    *(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁sep｜>",
    ),
    *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_end|>"),
    *("<|tool_call_argument_begin|>", "functions.", "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"),
    *("<|end|>", "analysis", "commentary", "final", "assistant", " to=", "json", "<think>", "</think>"),
    *("<start_function_call>", "<end_function_call>", "<escape>", "<|tool_call>", "<tool_call|>", '<|"|>', "call:"),
    *("<|python_start|>", "<|python_end|>", "<|tool_call_start|>", "<|tool_call_end|>", "<function_calls>"),
    *("</function_calls>", '"name"', '"arguments"', '"parameters"', '"function"', '{"name": "', '{"', '"}', "]}"),
)
LETTERS = tuple("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 \n\t{}[]()<>｜▁\"'\\/|,;:=-_.+*#éÀ日")
_CLOSERS = frozenset({"\n</parameter>", '"', "}", "]", ")", "<escape>", '<|"|>'})


class Vocabulary:
    """Markup, single characters, and ``words`` as tokens; ``control``: the names that are control tokens."""

    def __init__(self, words: Sequence[str] = (), control: Sequence[str] = ()) -> None:
        self.control = {name: number for number, name in enumerate(control)}
        plain = dict.fromkeys((*MARKUP, *LETTERS, *words))
        self.texts = [*control, *plain, "<eos>"]
        self.eos = len(self.texts) - 1
        tokens = [text.encode() for text in self.texts]
        self.compiler = Compiler(tokens, special_ids=self.control.values(), eos_ids=[self.eos])
        self.words = frozenset(words)

    def pieces(self, ids: Sequence[int]) -> list[Piece]:
        return [Piece(self.texts[number], special=number < len(self.control)) for number in ids]

    def draw(
        self, grammar: str, seed: int, *, steps: int = 400, likes: Mapping[str, float] | None = None
    ) -> list[int] | None:
        """Token ids of one text without its end; None: it did not come to one within ``steps``."""
        generator = random.Random(seed)
        matcher = self.compiler.matcher(grammar)
        mask = np.zeros(-(-len(self.texts) // 32), np.uint32)
        ids: list[int] = []
        for step in range(steps):
            matcher.mask(mask)
            assert matcher.error is None, (matcher.error, "".join(self.texts[number] for number in ids))
            allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
            assert allowed, "".join(self.texts[number] for number in ids)
            if self.eos in allowed and (len(allowed) == 1 or generator.random() < 0.2 + step / 100):
                return ids
            allowed = [number for number in allowed if number != self.eos]
            hurry = 1 if step < 60 else 30
            weights = [self._weight(number, hurry) * (likes or {}).get(self.texts[number], 1) for number in allowed]
            (token,) = generator.choices(allowed, weights)
            ids.append(token)
            matcher.advance(token)
            if matcher.finished:
                return ids
        return None

    def _weight(self, number: int, hurry: int) -> float:
        text = self.texts[number]
        if number < len(self.control) or text.startswith("</") or text in _CLOSERS:
            return 4.0 * hurry
        return 3.0 if len(text) > 1 else 1.0


def grammar_text(lark: str) -> str:
    """A format's grammar as the whole of an answer's."""
    return json.dumps({"grammars": [{"lark_grammar": lark}]})
