"""Reading token streams to their end."""

from __future__ import annotations

from millstream.engine.protocol import TokenStream


async def read(stream: TokenStream) -> tuple[list[int], str | None]:
    """All tokens of a stream, and how it ended."""
    tokens: list[int] = []
    finish = None
    async for delta in stream:
        tokens += delta.tokens
        finish = delta.finish
    return tokens, finish
