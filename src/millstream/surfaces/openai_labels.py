"""What OpenAI's surfaces read alike of fields that change nothing of an answer: its metadata and its service tier."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.ir.errors import invalid

PAIRS = 16
KEY_LENGTH = 64
VALUE_LENGTH = 512
TIERS = ("auto", "default", "flex", "scale", "priority", "fast")
"""What the official types allow to ask for."""
TIER = "default"
"""The tier that serves every request, whatever was asked for."""


def check_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """Metadata within OpenAI's bounds.

    Raises:
        ApiError: 400 for too many pairs, a key or a value that is too long.
    """
    if len(metadata) > PAIRS:
        raise invalid(f"metadata: at most {PAIRS} pairs are allowed, got {len(metadata)}.", param="metadata")
    for key, value in metadata.items():
        if len(key) > KEY_LENGTH:
            raise invalid(f"metadata: keys have at most {KEY_LENGTH} characters.", param="metadata")
        if len(value) > VALUE_LENGTH:
            raise invalid(f"metadata.{key}: values have at most {VALUE_LENGTH} characters.", param=f"metadata.{key}")
    return dict(metadata)


def one_of(name: str, value: str | None, known: tuple[str, ...]) -> str | None:
    """One of the known words. Raises `ApiError` (400) that lists them."""
    if value is not None and value not in known:
        raise invalid(f"{name} must be one of {', '.join(known)}, got {value[:64]!r}.", param=name)
    return value
