"""What the API process needs of a model: names, tokenizer, chat template. Nothing native is imported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from millstream.ir.memory import give_back_pages
from millstream.models.errors import ModelFileError
from millstream.models.gguf import GGUFFile
from millstream.models.loader import load_model_file
from millstream.models.shelf import model_id
from millstream.models.template import CHATML_TEMPLATE, PLAIN_TEMPLATE, JinjaChatTemplate
from millstream.models.tokenizer import GGUFTokenizer

_SPECIAL_TOKENS = {
    "bos": "bos_token",
    "eos": "eos_token",
    "unknown": "unk_token",
    "padding": "pad_token",
    "seperator": "sep_token",
    "mask": "mask_token",
}
"""Special tokens: name in ``tokenizer.ggml.<name>_token_id`` -> variable of a template. (GGUF spells it like this.)"""


_POOLING = {0: "none", 1: "mean", 2: "cls", 3: "last", 4: "rank"}
"""``<architecture>.pooling_type`` of a GGUF file."""


class ModelAssets(NamedTuple):
    """``name``: the model's id in the API. ``title``: its name for people. ``pooling``: how the file says that
    embeddings are made, in llama.cpp's words (a number that these do not know is its own word); None: it does not say.
    """

    name: str
    title: str
    family: str
    path: Path
    tokenizer: GGUFTokenizer
    template: JinjaChatTemplate
    context_length: int
    vocab_size: int
    pooling: str | None

    @property
    def eos_ids(self) -> frozenset[int]:
        return self.tokenizer.eos_ids


def open_model(path: str | os.PathLike[str], *, name: str | None = None) -> ModelAssets:
    """Read a model file for serving; the file is closed again when this returns.

    ``name`` defaults to the file's stem made into an id. The whole file is checked (description, tensor names, shapes,
    types), so what this accepts the engine process can load.

    Raises:
        ModelFileError: the file cannot be served.
    """
    with load_model_file(path) as model:
        file, spec = model.file, model.spec
        tokenizer = GGUFTokenizer(file)
        if tokenizer.vocab_size > spec.vocab_size:
            file.fail(
                f"the vocabulary has {tokenizer.vocab_size} tokens, but the embedding table has {spec.vocab_size} "
                "rows; get another conversion of the model"
            )
        assets = ModelAssets(
            name=name or model_id(Path(path).stem),
            title=file.text("general.name", Path(path).stem),
            family=spec.family,
            path=Path(path),
            tokenizer=tokenizer,
            template=_template(file, tokenizer),
            context_length=spec.context_length,
            vocab_size=tokenizer.vocab_size,
            pooling=_pooling(file),
        )
    # Building a tokenizer frees as much as it keeps; without this, glibc holds on to 4 MB (SmolLM2) to 50 MB.
    give_back_pages()
    return assets


def _pooling(file: GGUFFile) -> str | None:
    key = f"{file.text('general.architecture', '')}.pooling_type"
    if key not in file:
        return None
    kind = file.integer(key)
    return _POOLING.get(kind, str(kind))


def _template(file: GGUFFile, tokenizer: GGUFTokenizer) -> JinjaChatTemplate:
    variables = {
        variable: tokenizer.token_bytes(token_id).decode("utf-8", "replace")
        for key, variable in _SPECIAL_TOKENS.items()
        if 0 <= (token_id := file.integer(f"tokenizer.ggml.{key}_token_id", -1)) < tokenizer.vocab_size
    }
    source = file.text("tokenizer.chat_template", "")
    if source:
        try:
            return JinjaChatTemplate(source, variables=variables)
        except ModelFileError as error:
            file.fail(str(error))
    markers = {"<|im_start|>", "<|im_end|>"}
    has_chatml = all(len(tokenizer.encode(marker)) == 1 for marker in markers)
    return JinjaChatTemplate(CHATML_TEMPLATE if has_chatml else PLAIN_TEMPLATE, variables=variables, is_fallback=True)
