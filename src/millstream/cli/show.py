"""`show`: what a model file holds, how it talks, and what it takes to serve it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from millstream.cli.errors import CliError
from millstream.cli.fetching import find_or_fetch
from millstream.cli.models import print_json
from millstream.cli.terminal import printable
from millstream.engine.config import EngineConfig
from millstream.engine.memory import memory_need
from millstream.ir.sizes import size
from millstream.models.assets import open_model
from millstream.models.errors import ModelFileError
from millstream.models.ggml import TENSOR_TYPES
from millstream.models.loader import ModelFile, load_model_file
from millstream.models.shelf import name_of, shelf
from millstream.pipeline.dialect import Dialect


class Quantisation(msgspec.Struct):
    """Tensors of one type: their parameters, and the bytes that they have in the file."""

    tensors: int = 0
    parameters: int = 0
    bytes: int = 0


class ModelFacts(msgspec.Struct, kw_only=True):
    """``parameters``: those in the file; an output head that is the embedding table counts once. ``chat_template``: the
    file has one of its own. ``memory_bytes``: what the model takes with a KV cache for one full context;
    ``least_memory_bytes``: without which it is not loaded."""

    name: str
    path: str
    title: str
    license: str
    architecture: str
    parameters: int
    layers: int
    hidden_size: int
    vocabulary: int
    context_length: int
    quantisation: dict[str, Quantisation]
    file_bytes: int
    chat_template: bool
    tool_format: str
    reasoning_format: str
    pooling: str | None
    weight_bytes: int
    kv_bytes_per_token: int
    memory_bytes: int
    least_memory_bytes: int


def show_model(ref: str | None, *, as_json: bool) -> None:
    """Print the facts of a model that is here.

    Raises:
        CliError: it is not here, or its file cannot be served.
    """
    path = find_or_fetch(ref, fetch=False)
    try:
        facts = describe(path)
    except (ModelFileError, OSError) as error:
        raise CliError(str(error)) from None
    if as_json:
        print_json(facts)
        return
    lines = list(_lines(facts))
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        print(f"{name.ljust(width)}  {printable(value, sys.stdout)}")


def describe(path: Path) -> ModelFacts:
    """The facts of a model file. Raises `ModelFileError`."""
    assets = open_model(path)
    dialect = Dialect(assets.template, assets.tokenizer)
    with load_model_file(path) as model:
        spec, file = model.spec, model.file
        need = memory_need(model, max_rows=_config(path).max_rows)
        known = next((each for each in shelf(path.parent).values() if each.path == path), None)
        return ModelFacts(
            name=name_of(path),
            path=str(path),
            title=assets.title,
            license=(known.license if known is not None else "") or file.text("general.license", ""),
            architecture=file.text("general.architecture"),
            parameters=sum(weight.rows * weight.cols for weight in model.weights),
            layers=len(spec.layers),
            hidden_size=spec.hidden,
            vocabulary=assets.vocab_size,
            context_length=spec.context_length,
            quantisation=_quantisation(model),
            file_bytes=path.stat().st_size,
            chat_template=not assets.template.is_fallback,
            tool_format=dialect.tool_format,
            reasoning_format=dialect.reasoning_format,
            pooling=assets.pooling,
            weight_bytes=need.weights,
            kv_bytes_per_token=need.token,
            memory_bytes=need.weights + need.working + need.token * spec.context_length,
            least_memory_bytes=need.least(spec.context_length, None),
        )


def _config(path: Path) -> EngineConfig:
    return EngineConfig(model_path=str(path), model_name="")


def _quantisation(model: ModelFile) -> dict[str, Quantisation]:
    """By type, the largest part first."""
    found: dict[str, Quantisation] = {}
    for weight in model.weights:
        part = found.setdefault(TENSOR_TYPES[weight.tensor.ggml_type].name, Quantisation())
        part.tensors += 1
        part.parameters += weight.rows * weight.cols
        part.bytes += weight.tensor.nbytes
    return dict(sorted(found.items(), key=lambda item: -item[1].bytes))


def _lines(facts: ModelFacts) -> Iterator[tuple[str, str]]:
    yield "name", facts.name
    yield "file", f"{facts.path} ({size(facts.file_bytes)})"
    yield "title", facts.title
    yield "license", facts.license or "the file does not say"
    yield "architecture", f"{facts.architecture}: {facts.layers} layers, hidden size {facts.hidden_size}"
    yield "parameters", f"{facts.parameters / 1e6:,.0f} million"
    yield "vocabulary", f"{facts.vocabulary:,} tokens"
    yield "context", f"{facts.context_length:,} tokens"
    for name, part in facts.quantisation.items():
        yield "weights", f"{name}: {part.parameters / 1e6:,.1f} million in {part.tensors} tensors, {size(part.bytes)}"
    yield "chat template", "yes" if facts.chat_template else "no: ChatML or plain text is used instead"
    yield "tool calls", facts.tool_format
    yield "reasoning", facts.reasoning_format
    yield "embeddings", facts.pooling or "the file does not say; mean"
    yield "KV cache", f"{size(facts.kv_bytes_per_token)} per token"
    yield "memory", f"{size(facts.memory_bytes)} with one full context, at least {size(facts.least_memory_bytes)}"
