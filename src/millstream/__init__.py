"""Millstream: an LLM inference server with a native CPU engine."""

from importlib.metadata import version

__version__ = version("millstream")
