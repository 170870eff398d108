"""Who may call: the web pages whose requests are answered, and the names under which the server may be addressed.

A browser sends any page's requests to any address it can reach, this machine included, and tells in ``Origin`` whose
they are. A page can also make its own name point to this machine (DNS rebinding): then the request is of the page's own
origin, and only ``Host`` shows that it was not meant for this server.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.types import Scope

from millstream.ir.errors import ApiError

_DEFAULT_PORTS = {"http": 80, "https": 443}
_SAFE_METHODS = ("GET", "HEAD")


def is_loopback(name: str) -> bool:
    """Whether a host name or address (no port, no brackets) always means this machine."""
    name = name.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def check_caller(scope: Scope, *, hosts: tuple[str, ...] | None, origins: tuple[str, ...]) -> None:
    """Refuse a request that a stranger's page made.

    ``hosts``: names in ``Host`` that are taken besides loopback ones; None takes any. ``origins``: pages that may call
    besides the server's own (``*``: any). Requests without ``Origin`` or ``Host`` come from no browser.

    Raises:
        ApiError: 403 that names the option which would allow it.
    """
    headers = dict(scope["headers"])
    host = headers.get(b"host", b"").decode("latin-1")
    if hosts is not None and host and not host_allowed(host, hosts):
        raise ApiError(
            f"The server is addressed as {_shown(host)}, which is not a name of this machine. If it should be, start "
            f"the server with --allow-host {_shown(_name_of(host))}.",
            code="host_not_allowed",
            status=403,
        )
    origin = headers.get(b"origin")
    if origin is None or (scope["path"] in ("/health", "/ready") and scope["method"] in _SAFE_METHODS):
        return
    text = origin.decode("latin-1")
    if "*" not in origins and text not in origins and not _same_origin(text, host):
        raise ApiError(
            f"Web pages of {_shown(text)} may not call this server. If they should, start the server with "
            f"--allow-origin {_shown(text)}.",
            code="origin_not_allowed",
            status=403,
        )


def host_allowed(host: str, hosts: tuple[str, ...]) -> bool:
    """Whether a ``Host`` header names this machine, or is one of ``hosts``."""
    name = _name_of(host)
    return is_loopback(name) or name in {allowed.lower().rstrip(".") for allowed in hosts}


def _name_of(host: str) -> str:
    """The name in a ``Host`` header, without port and brackets; the whole text if it is none."""
    try:
        return (urlsplit(f"//{host}").hostname or host).rstrip(".")
    except ValueError:
        return host


def _same_origin(origin: str, host: str) -> bool:
    """Whether a page comes from where its request goes. A proxy may have ended TLS: both schemes are the server's."""
    scheme = origin.partition("://")[0].lower()
    if scheme not in _DEFAULT_PORTS or not host:
        return False
    try:
        page, own = urlsplit(origin), urlsplit(f"{scheme}://{host}")
        port = _DEFAULT_PORTS[scheme]
        return (page.hostname, page.port or port) == (own.hostname, own.port or port)
    except ValueError:
        return False


def _shown(text: str) -> str:
    return ascii(text[:200])[1:-1]
