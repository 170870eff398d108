"""What can be wrong with a server, in words for the person at the terminal."""

from __future__ import annotations

import os

import httpx
import msgspec

from millstream.tui.text import line

_MESSAGE_WIDTH = 300


class ServerError(Exception):
    """A request to the server failed. ``message`` is one line, safe to show. ``status``: of HTTP, if one came.
    ``retry_after``: seconds, where the server said so."""

    def __init__(self, message: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.retry_after = retry_after


class _Problem(msgspec.Struct):
    message: str = ""


class _Envelope(msgspec.Struct):
    error: _Problem


def problem_text(body: bytes) -> str:
    """The message of an error body, in the OpenAI envelope or as plain text; empty if there is none to show."""
    try:
        return line(msgspec.json.decode(body, type=_Envelope).error.message, _MESSAGE_WIDTH)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = body[: _MESSAGE_WIDTH * 4].decode("utf-8", "replace").strip()
        return "" if text.startswith(("<", "{", "[")) else line(text, _MESSAGE_WIDTH)


def refusal(status: int, body: bytes, headers: httpx.Headers) -> ServerError:
    """The error of an answer with a status that is none of success."""
    said = problem_text(body)
    if status == 401:
        text = f"401: the server wants a key: --key or MILLSTREAM_API_KEY. {said}"
    elif status == 403:
        text = f"403: {said or 'this key may not do that; an admin key is needed.'}"
    elif status == 404:
        text = f"404: {said or 'the server does not know this path; is it Millstream?'}"
    elif 300 <= status < 400:
        text = f"{status}: the server redirects to {line(headers.get('location', 'nowhere'), 120)}; give that as --url."
    else:
        text = f"{status}: {said or 'no reason given'}"
    return ServerError(text.rstrip(), status=status, retry_after=_seconds(headers.get("retry-after")))


def failure(error: Exception) -> ServerError:
    """What an exception of httpx means. The exception's own words are used where they are the operating system's."""
    if isinstance(error, httpx.ConnectTimeout):
        return ServerError("no answer to the connection attempt; is the address right?")
    if isinstance(error, httpx.ReadTimeout):
        return ServerError("the server is silent; it hangs, or the network does.")
    if isinstance(error, httpx.TimeoutException):
        return ServerError("the server does not take the request; it is overloaded or hangs.")
    if isinstance(error, httpx.ConnectError):
        return ServerError(f"no connection ({_system_words(error)}); is the server running?")
    if isinstance(error, (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)):
        return ServerError(f"the connection broke ({_system_words(error)}).")
    if isinstance(error, httpx.DecodingError):
        return ServerError("the server's compressed answer is broken.")
    return ServerError(f"the request failed ({_system_words(error)}).")


def _system_words(error: BaseException) -> str:
    """The innermost reason: httpx wraps the operating system's words twice and calls them attempts."""
    seen = error
    while (inner := seen.__cause__ or seen.__context__) is not None and inner is not seen:
        seen = inner
    if isinstance(seen, OSError) and (seen.errno or 0) > 0:
        return os.strerror(seen.errno or 0).lower()  # asyncio's own text is "Connect call failed", with the address
    return line(str(seen) or str(error) or type(error).__name__, 120).rstrip(".")


def _seconds(header: str | None) -> float | None:
    try:
        return min(3600.0, max(0.0, float(header))) if header is not None else None
    except ValueError:
        return None
