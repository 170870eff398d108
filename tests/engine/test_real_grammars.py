"""Grammars on a vocabulary of 150,000 tokens: free text and calls stay within the limits of a step."""

from __future__ import annotations

import json

import numpy as np
import pytest

from millstream.grammars.matcher import Compiler
from millstream.ir.request import Tool
from millstream.models.gguf import GGUFFile
from millstream.models.tokenizer import GGUFTokenizer
from millstream.models.vocabulary import load_token_bytes
from millstream.parsing.registry import TOOL_FORMATS
from support.real_models import QWEN, real_model

TEXT = 'Let me look.\n\n```json\n[1, {"a": "b"}]\n```\nThe <b>weather</b> in "Zürich" {is} 日本 [fine]; `x` <tool'
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
TOOLS = (Tool("get_weather", parameters=SCHEMA, strict=True), Tool("get_time"))


@pytest.fixture(scope="module")
def real() -> tuple[GGUFTokenizer, Compiler]:
    with GGUFFile(real_model(QWEN)) as file:
        vocabulary, pieces = load_token_bytes(file)
        tokens = [pieces[token_id] for token_id in range(len(pieces))]
        special = [token_id for token_id in range(len(pieces)) if pieces.is_hidden(token_id)]
        return GGUFTokenizer(file), Compiler(tokens, special_ids=special, eos_ids=vocabulary.eos_ids)


@pytest.mark.parametrize("format", [name for name in TOOL_FORMATS if name != "harmony"])
def test_free_text_stays_within_the_limits(real: tuple[GGUFTokenizer, Compiler], format: str) -> None:
    tokenizer, compiler = real
    lark = TOOL_FORMATS[format].constraint(TOOLS, required=False)
    matcher = compiler.matcher(json.dumps({"grammars": [{"lark_grammar": lark}]}))
    mask = np.zeros(-(-tokenizer.vocab_size // 32), np.uint32)
    for token in tokenizer.encode(TEXT):
        matcher.mask(mask)
        assert matcher.error is None
        assert mask[token // 32] >> (token % 32) & 1
        matcher.advance(token)
