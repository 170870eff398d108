"""Lists that are read page by page, as OpenAI's clients ask for them: ``limit``, ``after``, ``order``."""

from __future__ import annotations

from typing import Literal

from starlette.datastructures import QueryParams

from millstream.ir.errors import invalid
from millstream.server.store import PageQuery

Order = Literal["asc", "desc"]

MOST = 100
DEFAULT = 20


def page_query(query: QueryParams, *, order: Order) -> PageQuery:
    """What a list request asks for; ``order`` is the one that holds if it says nothing.

    Raises:
        ApiError: 400 that names the parameter.
    """
    limit = query.get("limit", str(DEFAULT))
    if not (limit.isascii() and limit.isdecimal() and len(limit) < 4 and 1 <= int(limit) <= MOST):
        raise invalid(f"limit must be between 1 and {MOST}.", param="limit")
    asked = query.get("order", order)
    if asked not in ("asc", "desc"):
        raise invalid("order must be asc or desc.", param="order")
    return PageQuery(int(limit), after=query.get("after") or None, descending=asked == "desc")
