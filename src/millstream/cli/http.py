"""Small calls to a running server: JSON in and out, failures as one line that says what to try."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from millstream.cli.errors import CliError

DEFAULT_URL = "http://127.0.0.1:8000"
_SURFACE_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/v1")


def base_url(text: str) -> str:
    """The address of a server as people write it (``localhost:8000``, with ``/v1``, with a path of the API) as
    ``scheme://host:port`` and any path of a proxy before it. Raises `CliError`."""
    whole = text.strip() if "://" in text else f"http://{text.strip()}"
    try:
        parts = urlsplit(whole)
        port = parts.port
    except ValueError as error:
        raise CliError(f"{text!r} is no address of a server: {error}; write http://host:port") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or port == 0:
        raise CliError(f"{text!r} is no address of a server; write http://host:port")
    path = parts.path.rstrip("/")
    for known in _SURFACE_PATHS:
        path = path.removesuffix(known)
    return f"{parts.scheme}://{parts.netloc}{path.rstrip('/')}"


class Client:
    """Calls to one server. ``key``: sent as a bearer token."""

    def __init__(self, url: str, *, key: str | None = None, seconds: float = 600.0) -> None:
        """Raises `CliError`: ``url`` is no address."""
        self.url = base_url(url)
        self._headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
        self._seconds = seconds

    def get(self, path: str) -> Any:
        """The JSON at a path. Raises `CliError`."""
        return self._call(path, None)

    def post(self, path: str, body: Any) -> Any:
        """The JSON of an answer. Raises `CliError`."""
        return self._call(path, json.dumps(body).encode())

    def _call(self, path: str, body: bytes | None) -> Any:
        request = urllib.request.Request(self.url + path, data=body, headers=self._headers)
        try:
            with urllib.request.urlopen(request, timeout=self._seconds) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise CliError(self._refusal(path, error)) from None
        except (urllib.error.URLError, OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise CliError(f"cannot reach {self.url}: {reason}; is the server running? `millstream serve`") from None
        except ValueError:
            raise CliError(f"{self.url}{path} did not answer JSON; is this an LLM server?") from None

    def _refusal(self, path: str, error: urllib.error.HTTPError) -> str:
        try:
            said = json.loads(error.read(1 << 20))
            message = str((said.get("error") or {}).get("message"))
        except (ValueError, AttributeError, OSError):
            message = "the answer is no JSON; is this an LLM server? The address goes without a path: http://host:port"
        if error.code == 401:
            message += " (give a key with --key or MILLSTREAM_API_KEY)"
        return f"{self.url}{path}: {error.code}: {message}"
