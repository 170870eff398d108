"""Who may: the key of a request, what it allows, and its limits. Once there are keys, everything is denied that is not
on the list of `millstream.server.paths`.

Without keys everybody may use the model, and the operator's paths answer this machine alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millstream.ir.errors import ApiError
from millstream.keys.key import Key
from millstream.keys.ledger import Ledger
from millstream.server.dialect import surface_of
from millstream.server.errors import error_response
from millstream.server.limit_headers import limit_headers
from millstream.server.origins import host_allowed, is_loopback
from millstream.server.paths import is_local, is_open, is_operators
from millstream.server.settings import Settings
from millstream.server.tenants import CLAIM, KEY, STRANGER, TENANT

_PROXIED = frozenset((b"forwarded", b"x-forwarded-for", b"x-real-ip"))
"""Headers of requests that a proxy on this machine passes on for somebody else."""


class Access:
    """Pure ASGI; sets what `millstream.server.tenants` reads."""

    def __init__(self, app: ASGIApp, *, ledger: Ledger, settings: Settings) -> None:
        self._app = app
        self._ledger = ledger
        self._ring = ledger.ring
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            key = self._key(scope)
        except ApiError as error:
            await error_response(error, surface_of(scope))(scope, receive, send)
            return
        if key is None:
            await self._app(_with(scope, **{STRANGER: self._ring.guarded}), receive, send)
        else:
            await self._serve(key, scope, receive, self._telling(key, scope, send))

    def _key(self, scope: Scope) -> Key | None:
        """The key of a request; None: it needs none and has none. Raises `ApiError` (401, 403)."""
        path = scope["path"]
        if not self._ring.guarded:
            if is_local(path) and not _from_here(scope, self._settings.allow_hosts or ()):
                raise _local_only()
            return None
        try:
            key = self._owner(_tokens(scope))
        except ApiError:
            if is_open(path):
                return None
            raise
        if is_operators(path) and not key.admin:
            self._ledger.refused(key)
            raise _admins_only(key)
        return key

    def _owner(self, tokens: Mapping[bytes, set[bytes]]) -> Key:
        """The one key that is valid among a request's tokens. Raises `ApiError` (401)."""
        if any(len(values) > 1 for values in tokens.values()):
            raise _ambiguous("a header more than once, with different values")
        found = {key.id: key for (token,) in tokens.values() if (key := self._ring.find(token)) is not None}
        valid = [key for key in found.values() if not self._ring.expired(key)]
        if len(valid) > 1:
            raise _ambiguous("two keys")
        if valid:
            return valid[0]
        if found:
            raise _expired(next(iter(found.values())))
        raise _wrong_key() if tokens else _no_key()

    async def _serve(self, key: Key, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of a key. Those that ask for work count; those that look something up do not."""
        owner: dict[str, object] = {TENANT: key.id, KEY: key}
        if scope["method"] != "POST" or is_operators(scope["path"]) or is_open(scope["path"]):
            await self._app(_with(scope, **owner), receive, send)
            return
        try:
            claim = self._ledger.admit(key)
        except ApiError as error:
            await error_response(error, surface_of(scope))(scope, receive, send)
            return
        try:
            await self._app(_with(scope, **owner, **{CLAIM: claim}), receive, send)
        finally:
            claim.close()

    def _telling(self, key: Key, scope: Scope, send: Send) -> Send:
        """A ``send`` that tells how the key stands with its limits when the answer begins."""
        if key.requests_per_minute is None and key.tokens_per_minute is None:
            return send
        anthropic = surface_of(scope) is not None

        async def telling(message: Message) -> None:
            if message["type"] == "http.response.start":
                told = limit_headers(self._ledger.standing(key), anthropic=anthropic)
                message["headers"] = [*message.get("headers", ()), *told]
            await send(message)

        return telling


def _with(scope: Scope, **state: object) -> Scope:
    return {**scope, "state": {**scope.get("state", {}), **state}}


def _tokens(scope: Scope) -> dict[bytes, set[bytes]]:
    """The tokens that a request names, by header: as OpenAI's clients do, or as Anthropic's. Clients that send both
    send one of them for form's sake, so any of them may be the key."""
    tokens: dict[bytes, set[bytes]] = {}
    for name, value in scope["headers"]:
        token = value.strip()
        if name == b"authorization":
            scheme, _, token = token.partition(b" ")
            token = token.strip() if scheme.lower() == b"bearer" else b""
        elif name != b"x-api-key":
            continue
        if token:
            tokens.setdefault(name, set()).add(token)
    return tokens


def _from_here(scope: Scope, hosts: tuple[str, ...]) -> bool:
    """Whether somebody on this machine asks: over loopback, under a name of it (a web page may have made its own name
    point here), and not through a proxy."""
    client = scope.get("client")
    headers = dict(scope["headers"])
    host = headers.get(b"host", b"").decode("latin-1")
    return (
        client is not None
        and is_loopback(client[0])
        and (not host or host_allowed(host, hosts))
        and not _PROXIED & headers.keys()
    )


_HOW = "Send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'."


def _no_key() -> ApiError:
    return ApiError(f"This server needs an API key. {_HOW}", code="missing_api_key", status=401)


def _wrong_key() -> ApiError:
    return ApiError(f"The API key is not valid. {_HOW}", code="invalid_api_key", status=401)


def _ambiguous(what: str) -> ApiError:
    return ApiError(f"The request has {what}; it must have one. {_HOW}", code="ambiguous_api_key", status=401)


def _expired(key: Key) -> ApiError:
    return ApiError(f"The API key {key.name!r} has expired.", code="expired_api_key", status=401)


def _admins_only(key: Key) -> ApiError:
    return ApiError(
        f"The API key {key.name!r} has no admin rights, which this path needs. The operator gives them: millstream "
        f"keys edit {key.name!r} --admin",
        code="admin_key_required",
        status=403,
    )


def _local_only() -> ApiError:
    return ApiError(
        "Without API keys this path answers only callers on the server's own machine, addressed as 127.0.0.1 or "
        "localhost and not through a proxy. To ask from elsewhere, make an admin key there: millstream keys create "
        "NAME --admin",
        code="local_only",
        status=403,
    )
