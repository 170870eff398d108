"""What every surface asks of the tools and schemas of a request, whatever its own spelling of them."""

from __future__ import annotations

from typing import Any

from millstream.ir.errors import invalid, missing
from millstream.ir.request import ResponseFormat
from millstream.surfaces.openai_params import check_depth
from millstream.surfaces.wire import Limits


def check_tool_count(count: int, limits: Limits) -> None:
    """Refuse more tools than the operator allows."""
    if count > limits.tools:
        raise invalid(f"tools: at most {limits.tools} are allowed, got {count}.", param="tools")


def check_parameters(schema: dict[str, Any] | None, path: str, limits: Limits) -> None:
    """Refuse parameters that are no object's schema, or nested without end."""
    if schema is None:
        return
    check_depth(path, schema, limits.schema_depth, code="invalid_schema")
    kind = schema.get("type", "object")
    if kind != "object":
        raise invalid(
            f"{path} must be the schema of an object (type 'object'), got type {str(kind)[:64]!r}.",
            param=path,
            code="invalid_schema",
        )


def schema_format(
    schema: dict[str, Any] | bool | None,
    path: str,
    limits: Limits,
    *,
    name: str | None = None,
    strict: bool | None = None,
) -> ResponseFormat:
    """Visible text that a schema describes; ``path`` is where the schema stands."""
    if schema is None:
        raise missing(path)
    check_depth(path, schema, limits.schema_depth, code="invalid_schema")
    return ResponseFormat("json_schema", schema=schema, name=name, strict=strict)
