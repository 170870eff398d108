"""One file a model family; a family is found by ``general.architecture``."""

from __future__ import annotations

from millstream.models.families import gemma3, llama, qwen2
from millstream.models.families.base import Family
from millstream.models.gguf import GGUFFile

FAMILIES: dict[str, Family] = {module.FAMILY.architecture: module.FAMILY for module in (llama, qwen2, gemma3)}


def find_family(file: GGUFFile) -> Family:
    """The family of a file. Raises `ModelFileError` that lists the supported ones."""
    architecture = file.text("general.architecture")
    family = FAMILIES.get(architecture)
    if family is None:
        file.fail(f"has the architecture {architecture!r}, which is not supported; supported: {', '.join(FAMILIES)}")
    return family
