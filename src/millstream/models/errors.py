"""The one error of model files."""

from __future__ import annotations


class ModelFileError(Exception):
    """A model file cannot be used. The message names the file, what is wrong, where, and what to do."""
