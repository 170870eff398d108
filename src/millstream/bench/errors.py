"""What stops a benchmark."""

from __future__ import annotations


class BenchError(Exception):
    """The benchmark cannot go on; the message is for the person who runs it."""
