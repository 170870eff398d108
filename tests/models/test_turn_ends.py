"""Which tokens end an answer, family by family: their control tokens, what their templates hold, what files say."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf_files import bpe_vocabulary, write_gguf

from millstream.models.gguf import GGUFFile
from millstream.models.tokenizer import GGUFTokenizer
from millstream.models.turn_ends import ends_of

HARMONY = ["<|return|>", "<|call|>", "<|end|>", "<|start|>", "<|channel|>", "<|message|>", "<|endoftext|>"]
HARMONY_TEMPLATE = "<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>"
SOLAR = ["<|begin|>", "<|think|>", "<|content|>", "<|end|>", "<|flush|>", "<|calls|>"]
GLM = ["<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"]


@pytest.mark.parametrize(
    ("control", "told", "template", "expected"),
    [
        (HARMONY, "<|return|>", HARMONY_TEMPLATE, {"<|return|>", "<|call|>", "<|endoftext|>"}),
        (HARMONY, "<|end|>", HARMONY_TEMPLATE, {"<|return|>", "<|call|>", "<|endoftext|>"}),
        (HARMONY, "<|return|>", "", {"<|return|>", "<|call|>", "<|endoftext|>"}),
        # The same vocabulary under another template: there the name means what it means to Phi.
        (HARMONY, "<|end|>", "<|user|>{{ m.content }}<|end|><|assistant|>", {"<|end|>", "<|endoftext|>"}),
        (
            ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"],
            "<|endoftext|>",
            "<|user|>{{ m.content }}<|end|><|assistant|>",
            {"<|end|>", "<|endoftext|>"},
        ),
        (SOLAR, "<|flush|>", "<|begin|>assistant<|content|>{{ m.content }}<|end|>", {"<|flush|>", "<|calls|>"}),
        (
            ["<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|python_tag|>"],
            "<|eot_id|>",
            "<|python_tag|>",
            {"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"},
        ),
        (["<|eot|>", "<|eom|>", "<|end_of_text|>"], "<|eot|>", "", {"<|eot|>", "<|eom|>", "<|end_of_text|>"}),
        (["<eos>", "<end_of_turn>", "<start_of_turn>"], "<eos>", "<end_of_turn>", {"<eos>", "<end_of_turn>"}),
        (
            ["<eos>", "<end_of_turn>", "<start_function_response>"],
            "<eos>",
            "<end_of_turn><start_function_response>",
            {"<eos>", "<end_of_turn>", "<start_function_response>"},
        ),
        (
            ["<eos>", "<turn|>", "<|turn>", "<|tool_response>", "<tool_response|>"],
            "<eos>",
            "<|turn>model<turn|><|tool_response>",
            {"<eos>", "<turn|>", "<|tool_response>"},
        ),
        (
            GLM,
            "<|endoftext|>",
            "<|user|>{{ m.content }}<|assistant|><|observation|>",
            {"<|endoftext|>", "<|user|>", "<|observation|>"},
        ),
        (["<|im_end|>", "<|im_start|>"], "<|im_end|>", "<|im_start|><|im_end|>", {"<|im_end|>"}),
    ],
)
def test_the_format_decides_what_ends_a_turn(control: list[str], told: str, template: str, expected: set[str]) -> None:
    ends, inner = ends_of({*control, "a"}, set(control), {told}, template)
    assert ends == expected
    assert not ends & inner


def test_without_another_end_a_message_end_stays_one() -> None:
    ends, inner = ends_of({"<|end|>", "<|channel|>", "<|message|>"}, {"<|end|>"}, set(), HARMONY_TEMPLATE)
    assert (ends, inner) == ({"<|end|>"}, set())


def test_names_in_ordinary_text_end_nothing() -> None:
    ends, _ = ends_of({"</s>", "<turn|>", "<|user|>", "<|observation|>"}, set(), set(), "<|user|><|observation|>")
    assert ends == set()


@pytest.mark.parametrize("kind", [1, 3, 4], ids=["normal", "control", "user-defined"])
def test_a_tokenizer_of_gpt_oss_goes_on_after_its_thoughts(tmp_path: Path, kind: int) -> None:
    metadata = bpe_vocabulary()
    first = len(metadata["tokenizer.ggml.tokens"])
    names = HARMONY[:-1]
    metadata["tokenizer.ggml.tokens"] += names
    metadata["tokenizer.ggml.token_type"] += [3, 3, kind, 3, 3, 3]
    metadata["tokenizer.ggml.eos_token_id"] = first
    metadata["tokenizer.ggml.eot_token_id"] = first + names.index("<|end|>")
    metadata["tokenizer.chat_template"] = HARMONY_TEMPLATE
    with GGUFFile(write_gguf(tmp_path / "v.gguf", metadata)) as file:
        tokenizer = GGUFTokenizer(file)
    ends = {tokenizer.token_bytes(token_id).decode() for token_id in tokenizer.eos_ids}
    assert {"<|return|>", "<|call|>"} <= ends
    assert "<|end|>" not in ends
    assert tokenizer.is_special(first + names.index("<|end|>"))
