"""``chat_template_kwargs``: what a caller may set in the model's chat template."""

from __future__ import annotations

import keyword
from typing import Any

from millstream.ir.errors import invalid
from millstream.surfaces.openai_params import check_depth
from millstream.surfaces.wire import Limits

FIELD = "chat_template_kwargs"

_SERVERS = frozenset({"messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"})
_LANGUAGE = frozenset(
    {"self", "super", "caller", "loop", "varargs", "kwargs", "true", "false", "none", "range", "dict", "namespace",
     "cycler", "joiner", "raise_exception", "strftime_now"}
)  # fmt: skip
"""Names that mean something in a template already."""

_SHOWN = 64


def template_variables(wire: dict[str, Any] | None, limits: Limits) -> dict[str, Any]:
    """The variables, each with a name that a template can read.

    Raises:
        ApiError: 400 that names the variable.
    """
    variables = dict(wire or {})
    check_depth(FIELD, variables, limits.json_depth)
    for name in variables:
        param = f"{FIELD}.{name[:_SHOWN]}"
        if name in _SERVERS or name in _LANGUAGE:
            raise invalid(f"{FIELD} may not set '{name}'.", param=param)
        if not name.isidentifier() or name.startswith("_") or keyword.iskeyword(name):
            raise invalid(f"{FIELD}: {name[:_SHOWN]!r} is no name of a variable.", param=param)
    return variables
