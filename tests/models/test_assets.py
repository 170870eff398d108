"""Opening a model for serving: the whole way from a file, and files that must be refused without a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from gguf_files import spm_vocabulary, write_model
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.ir.request import Message
from millstream.models.assets import open_model
from millstream.models.errors import ModelFileError
from millstream.models.gguf import GGUFFile
from millstream.models.shelf import model_id
from support.real_models import SMOLLM2, real_model

CHAT_IDS = [
    1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2, 198, 1,
    4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198,
]  # fmt: skip


def test_default_model() -> None:
    assets = open_model(real_model(SMOLLM2))
    assert assets.name == SMOLLM2
    assert assets.family == "llama"
    assert assets.context_length == 8192
    assert assets.vocab_size == 49152
    assert assets.eos_ids == {0, 2}
    assert not assets.template.is_fallback
    prompt = assets.template.render([Message("user", "What is the capital of France?")])
    assert assets.tokenizer.encode(prompt, add_bos=True) == CHAT_IDS


def test_names(tmp_path: Path) -> None:
    path = write_model(tmp_path / "My Model (v2).gguf", **{"general.name": "My Model"})
    assert open_model(path).name == "My-Model-v2"
    assert open_model(path).title == "My Model"
    assert open_model(path, name="mine").name == "mine"
    assert model_id("…") == "model"


def test_fallback_templates(tmp_path: Path) -> None:
    chatml = open_model(write_model(tmp_path / "chatml.gguf")).template
    assert chatml.is_fallback
    assert chatml.render([Message("user", "hi")]) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    vocabulary = spm_vocabulary()
    # As many rows as the embedding table of the byte-level model has.
    extra = [f"pad{n}" for n in range(269 - len(vocabulary["tokenizer.ggml.tokens"]))]
    vocabulary["tokenizer.ggml.tokens"] = (vocabulary["tokenizer.ggml.tokens"] + extra)[:269]
    for key in ("tokenizer.ggml.scores", "tokenizer.ggml.token_type"):
        vocabulary[key] = vocabulary[key][:269]
    removed = {"tokenizer.ggml.merges": None, "tokenizer.ggml.pre": None}
    plain = open_model(write_model(tmp_path / "plain.gguf", **vocabulary, **removed)).template
    assert plain.is_fallback
    messages = [Message("system", "Be brief."), Message("user", "hi"), Message("assistant", "yo"), Message("user", "?")]
    assert plain.render(messages) == "Be brief.\n\nUser: hi\nAssistant: yo\nUser: ?\nAssistant:"


def test_special_tokens_reach_the_template(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", **{"tokenizer.chat_template": "{{ bos_token + '|' + eos_token }}"})
    assert open_model(path).template.render([]) == "<|endoftext|>|<|im_end|>"


@pytest.mark.parametrize(
    ("kind", "pooling"),
    [(None, None), (0, "none"), (1, "mean"), (2, "cls"), (3, "last"), (4, "rank"), (9, "9")],
)
def test_how_the_file_says_that_embeddings_are_made(tmp_path: Path, kind: int | None, pooling: str | None) -> None:
    assert open_model(write_model(tmp_path / "m.gguf", **{"llama.pooling_type": kind})).pooling == pooling


def test_a_pooling_type_that_is_no_number_is_a_file_error(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="pooling_type should be an integer"):
        open_model(write_model(tmp_path / "m.gguf", **{"llama.pooling_type": "mean"}))


def test_bad_template_is_a_file_error(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", **{"tokenizer.chat_template": "{% for x in %}"})
    with pytest.raises(ModelFileError, match=r"m\.gguf.*chat template is not valid \(line 1\)"):
        open_model(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, int]:
    """A model file, and where its tensor data begins."""
    path = write_model(tmp_path_factory.mktemp("whole") / "m.gguf", **{"tokenizer.chat_template": "{{ messages }}"})
    with GGUFFile(path) as file:
        return path.read_bytes(), min(tensor.offset for tensor in file.tensors.values())


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damage_never_gives_another_error(
    whole: tuple[bytes, int], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever bytes of the header are overwritten, the file opens or is refused with the one error."""
    content, start = bytearray(whole[0]), whole[1]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(4, start - 1))
        patch = data.draw(st.binary(min_size=1, max_size=8))
        content[at : at + len(patch)] = patch
    path = tmp_path_factory.mktemp("damaged") / "m.gguf"
    path.write_bytes(content)
    try:
        assets = open_model(path)
    except ModelFileError as error:
        message = str(error)
    else:
        message = str(path)
        for token_id in range(assets.tokenizer.vocab_size):
            assets.tokenizer.token_bytes(token_id)
        assets.tokenizer.encode("hello world <|im_end|> é")
    assert str(path) in message


def test_opening_a_model_loads_nothing_native() -> None:
    code = (
        "import sys, millstream.models.assets;"
        "print([m for m in ('millstream.native', 'numpy', 'millstream.native._core') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
