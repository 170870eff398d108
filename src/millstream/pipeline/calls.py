"""Ids of tool calls."""

from __future__ import annotations

import secrets
import string

_ALPHABET = string.ascii_letters + string.digits


def new_call_id() -> str:
    """``call_`` and 24 random letters and digits, as OpenAI's ids look."""
    return "call_" + "".join(secrets.choice(_ALPHABET) for _ in range(24))


def new_mistral_id() -> str:
    """Nine random letters and digits: Mistral's chat templates refuse a conversation with any other id."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(9))
