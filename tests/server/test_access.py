"""Who may: every path of the app, with and without keys."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from millstream.engine.scripted import ScriptedEngine as TokenScript
from millstream.ir.errors import ApiError
from millstream.keys.key import digest_of
from millstream.server.app import create_app
from millstream.server.paths import is_open, is_operators
from millstream.server.settings import Settings
from support.keyed import Keys
from support.provider import ScriptedEngine, ScriptedProvider
from support.scripted_model import info, provider

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
ANTHROPIC = {"anthropic-version": "2023-06-01"}
HERE = ("127.0.0.1", 40000)
ENDLESS = ("/v1/events", "/v1/admin/logs")


def app_with(**settings: Any) -> Starlette:
    return create_app(ScriptedProvider(), ScriptedEngine().stats, Settings(**settings))


class Caller:
    """Asks an app without a network."""

    def __init__(self, app: Starlette, client: tuple[str, int] = HERE, host: str = "127.0.0.1") -> None:
        self.app = app
        self._http = httpx.AsyncClient(transport=httpx.ASGITransport(app=app, client=client), base_url=f"http://{host}")

    async def ask(self, path: str, *, method: str = "GET", headers: Any = (), json: Any = None) -> httpx.Response:
        if method in ("GET", "HEAD") and path in ENDLESS:
            return await self._begun(method, path, headers)
        return await self._http.request(method, path, headers=headers, json=json)

    async def _begun(self, method: str, path: str, headers: Any) -> httpx.Response:
        """An answer up to its first piece; nobody waits for the end of one that has none."""
        told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        request = self._http.build_request(method, path, headers=headers)
        sent = [(name.lower(), value) for name, value in request.headers.raw]
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": sent,
            "server": ("127.0.0.1", 80),
            "client": HERE,
            "root_path": "",
            "extensions": {},
        }

        async def receive() -> dict[str, Any]:
            return await asyncio.Future()

        answering = asyncio.ensure_future(self.app(scope, receive, told.put))
        start, body = await told.get(), await told.get()
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
        return httpx.Response(start["status"], headers=start["headers"], content=body.get("body", b""))

    async def chat(self, headers: Any = (), **fields: Any) -> httpx.Response:
        return await self.ask("/v1/chat/completions", method="POST", headers=headers, json={**CHAT, **fields})


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    made = Keys(tmp_path)
    made.add("user")
    made.add("boss", admin=True)
    return made


@pytest.fixture
def caller(keys: Keys) -> Caller:
    return Caller(app_with(keys_path=keys.path))


def operations(app: Starlette) -> Iterator[tuple[str, str]]:
    """Every method of every path of the app, and some that it does not have."""
    for route in app.routes:
        assert isinstance(route, Route)
        path = route.path.replace("{id}", "x_1").replace("{model:path}", "tiny").replace("{file:path}", "app.js")
        yield from ((method, path) for method in sorted(route.methods or ()))
    for path in ("/nothing", "/v1/admin", "/v1/admin/", "/v1/admin/nothing", "/v1/events", "/health/", "/Health",
                 "/%2e%2e/health", "/health%2f..%2fv1/models", "/ready;x"):  # fmt: skip
        yield from (("GET", path), ("POST", path))
    yield from (("PUT", "/v1/models"), ("OPTIONS", "/v1/chat/completions"), ("PATCH", "/metrics"))


OPERATIONS = sorted(set(operations(app_with())))
OPEN = {"/", "/health", "/ready", "/assets/app.js"}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        ANTHROPIC,
        {"authorization": "Bearer wrong"},
        {"x-api-key": "wrong"},
        {"authorization": "Basic dXNlcjpwdw=="},
        {"authorization": "Bearer "},
    ],
)
async def test_everything_is_denied_that_is_not_open(caller: Caller, headers: dict[str, str]) -> None:
    for method, path in OPERATIONS:
        answer = await caller.ask(path, method=method, headers=headers)
        if path in OPEN:
            assert answer.status_code not in (401, 403), (method, path)
            continue
        assert answer.status_code == 401, (method, path)
        assert answer.headers["www-authenticate"] == 'Bearer realm="millstream"'
        assert answer.headers["x-request-id"]
        if method == "HEAD":
            continue
        error = answer.json()["error"]
        anthropic = path.startswith("/v1/messages") or (
            path.startswith("/v1/models") and "anthropic-version" in headers
        )
        if anthropic:
            assert (answer.json()["type"], error["type"]) == ("error", "authentication_error")
        else:
            assert error["code"] in ("missing_api_key", "invalid_api_key")


async def test_the_operators_paths_need_an_admin(caller: Caller, keys: Keys) -> None:
    for method, path in OPERATIONS:
        user = await caller.ask(path, method=method, headers=keys.header("user"))
        boss = await caller.ask(path, method=method, headers=keys.header("boss"))
        assert 401 not in (user.status_code, boss.status_code), (method, path)
        assert boss.status_code != 403, (method, path)
        assert (user.status_code == 403) is is_operators(path), (method, path)
        if user.status_code == 403 and method != "HEAD":
            assert user.json()["error"]["code"] == "admin_key_required"


def test_the_list_of_open_paths_is_short() -> None:
    assert {path for _, path in OPERATIONS if is_open(path)} == OPEN
    assert [is_open(path) for path in ("/assets/page.js", "/assetsx", "/index.html")] == [True, False, False]
    admin = {path for _, path in OPERATIONS if path == "/v1/admin" or path.startswith("/v1/admin/")}
    assert {"/v1/admin/keys", "/v1/admin/logs", "/v1/admin/requests"} < admin
    assert {path for _, path in OPERATIONS if is_operators(path)} == {"/metrics", "/v1/events", *admin}


@pytest.mark.parametrize("form", ["Bearer {}", "bearer {}", "BEARER  {} "])
async def test_how_a_key_is_sent(caller: Caller, keys: Keys, form: str) -> None:
    token = keys.tokens["user"]
    assert (await caller.chat({"authorization": form.format(token)})).status_code == 200


async def test_any_of_the_keys_that_are_sent_may_be_the_one(caller: Caller, keys: Keys) -> None:
    token = keys.tokens["user"]
    for headers in (
        {"x-api-key": token},
        {"x-api-key": token, "authorization": "Bearer unused"},
        {"x-api-key": "unused", "authorization": f"Bearer {token}"},
    ):
        assert (await caller.chat(headers)).status_code == 200


async def test_one_that_has_expired_is_no_reason_to_refuse_another(caller: Caller, keys: Keys) -> None:
    keys.add("old", expires=1.0)
    token = {"x-api-key": keys.tokens["user"]}
    assert (await caller.chat({**keys.header("old"), **token})).status_code == 200


async def test_two_keys_at_once_are_nobodys(caller: Caller, keys: Keys) -> None:
    """Whose limits would it be, and whose answers? Proxies do not keep the order of headers."""
    one, other = keys.header("user"), {"x-api-key": keys.tokens["boss"]}
    for headers in ({**one, **other}, {**other, **one}):
        answer = await caller.chat(headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "ambiguous_api_key")
        assert (await caller.ask("/v1/admin/keys", headers=headers)).status_code == 401
        assert (await caller.ask("/health", headers=headers)).json() == {"status": "ready"}
    assert (await caller.chat({**one, "x-api-key": keys.tokens["user"]})).status_code == 200


async def test_a_request_is_one_guess(caller: Caller, keys: Keys) -> None:
    """A header that comes twice is what a proxy and this server may read differently."""
    right = ("authorization", f"Bearer {keys.tokens['user']}")
    for headers in ([right, ("authorization", "Bearer x")], [("authorization", "Bearer x"), right]):
        answer = await caller.ask("/v1/models", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "ambiguous_api_key")
    assert (await caller.ask("/v1/models", headers=[right, right])).status_code == 200


@pytest.mark.parametrize(
    "value", ["Bearer \xff\xfe", "Bearer schl\xfcssel", "Bearer " + "x" * 60_000, "Bearer", "\t", "Bearer\tx"]
)
async def test_odd_tokens_are_wrong_ones(caller: Caller, value: str) -> None:
    for name in ("authorization", "x-api-key"):
        answer = await caller.ask("/v1/models", headers=[(name.encode(), value.encode("latin-1"))])
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] in ("invalid_api_key", "missing_api_key")


async def test_keys_are_not_taken_from_the_query_or_cookies(caller: Caller, keys: Keys) -> None:
    token = keys.tokens["user"]
    assert (await caller.ask(f"/v1/models?api_key={token}&key={token}")).status_code == 401
    assert (await caller.ask("/v1/models", headers={"cookie": f"x-api-key={token}"})).status_code == 401


async def test_a_change_of_the_file_counts_with_the_next_request(caller: Caller, keys: Keys) -> None:
    token = keys.add("new")
    headers = {"authorization": f"Bearer {token}"}
    assert (await caller.chat(headers)).status_code == 200
    keys.change("new", admin=True)
    assert (await caller.ask("/metrics", headers=headers)).status_code == 200
    keys.revoke("new")
    answer = await caller.chat(headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")


async def test_the_first_key_closes_a_running_server(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    caller = Caller(app_with(keys_path=keys.path))
    assert (await caller.chat()).status_code == 200
    keys.add("a")
    assert (await caller.chat()).status_code == 401
    assert (await caller.chat(keys.header("a"))).status_code == 200


async def test_an_expired_key_is_told_as_such(caller: Caller, keys: Keys) -> None:
    keys.add("old", expires=1.0)
    keys.add("young", expires=4e9)
    answer = await caller.chat(keys.header("old"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "expired_api_key")
    assert (await caller.chat(keys.header("young"))).status_code == 200


async def test_the_single_key(tmp_path: Path) -> None:
    caller = Caller(app_with(api_key=digest_of(b"secret"), keys_path=tmp_path / "none.json"))
    assert (await caller.chat()).status_code == 401
    assert (await caller.chat({"authorization": "Bearer Secret"})).status_code == 401
    assert (await caller.chat({"authorization": "Bearer secret"}, priority=-100)).status_code == 200
    usage = (await caller.ask("/v1/admin/keys", headers={"x-api-key": "secret"})).json()["data"]
    assert [(key["name"], key["requests"]) for key in usage] == [("api-key", 1)]


@pytest.mark.parametrize(
    ("client", "host", "headers", "status"),
    [
        (("127.0.0.1", 1), "127.0.0.1", {}, 200),
        (("127.0.0.1", 1), "localhost", {}, 200),
        (("::1", 1), "[::1]", {}, 200),
        (("192.168.0.9", 1), "192.168.0.2", {}, 403),
        (("192.168.0.9", 1), "127.0.0.1", {}, 403),
        (("127.0.0.1", 1), "rebound.example", {}, 403),
        (("127.0.0.1", 1), "127.0.0.1", {"x-forwarded-for": "192.168.0.9"}, 403),
        (("127.0.0.1", 1), "127.0.0.1", {"forwarded": "for=192.168.0.9"}, 403),
    ],
)
async def test_without_keys_the_operators_paths_are_this_machines(
    client: tuple[str, int], host: str, headers: dict[str, str], status: int
) -> None:
    caller = Caller(app_with(), client, host)
    answer = await caller.ask("/v1/admin/keys", headers=headers)
    assert answer.status_code == status
    if status == 403:
        error = answer.json()["error"]
        assert error["code"] == "local_only"
        assert "millstream keys create" in error["message"]
    assert (await caller.ask("/v1/models", headers=headers)).status_code == 200


async def test_an_admin_may_come_from_anywhere(keys: Keys) -> None:
    caller = Caller(app_with(keys_path=keys.path), ("192.168.0.9", 1), "box.example")
    assert (await caller.ask("/v1/admin/keys", headers=keys.header("boss"))).status_code == 200
    assert (await caller.ask("/v1/admin/keys", headers=keys.header("user"))).status_code == 403


async def test_whoever_has_no_key_learns_that_the_server_lives_and_no_more(caller: Caller, keys: Keys) -> None:
    for path in ("/health", "/ready"):
        assert (await caller.ask(path)).json() == {"status": "ready"}
        told = (await caller.ask(path, headers=keys.header("user"))).json()
        assert (told["models"], told["steps"]) == (["tiny"], 4)


async def test_whoever_has_no_key_is_told_why_without_particulars(keys: Keys) -> None:
    """Reasons may name models and files."""
    engine = ScriptedEngine()
    engine.answer = ApiError("The engine ended: /srv/secret.gguf is gone.", status=503)
    caller = Caller(create_app(ScriptedProvider(), engine.stats, Settings(keys_path=keys.path)))
    assert (await caller.ask("/ready")).json() == {"status": "restarting", "reason": "The engine is being restarted."}
    assert "secret" in (await caller.ask("/ready", headers=keys.header("boss"))).text


async def test_a_preflight_needs_no_key_and_a_refusal_can_be_read(keys: Keys) -> None:
    caller = Caller(app_with(keys_path=keys.path, allow_origins=("https://app.example",)))
    page = {"origin": "https://app.example"}
    asking = {**page, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    preflight = await caller.ask("/v1/chat/completions", method="OPTIONS", headers=asking)
    assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (200, "https://app.example")
    refused = await caller.chat(page)
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "https://app.example")
    answer = await caller.chat({**page, **keys.header("user")})
    assert "x-ratelimit-remaining-requests" in answer.headers["access-control-expose-headers"]


class TestModels:
    """A key that may use some models only."""

    @pytest.fixture
    def narrow(self, keys: Keys) -> dict[str, str]:
        keys.add("narrow", models=("other",))
        return keys.header("narrow")

    async def test_others_are_not_there(self, caller: Caller, narrow: dict[str, str]) -> None:
        listed = await caller.ask("/v1/models", headers=narrow)
        assert listed.json()["data"] == []
        assert (await caller.ask("/v1/models", headers={**narrow, **ANTHROPIC})).json()["data"] == []
        for model in ("tiny", "never-heard-of"):
            answer = await caller.ask(f"/v1/models/{model}", headers=narrow)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
        assert (await caller.ask("/health", headers=narrow)).json()["models"] == []

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("/v1/chat/completions", CHAT),
            ("/v1/completions", {"prompt": "hi"}),
            ("/v1/responses", {"input": "hi"}),
            ("/v1/messages", {"max_tokens": 5, "messages": CHAT["messages"]}),
            ("/v1/embeddings", {"input": "hi"}),
            ("/v1/messages/count_tokens", {"messages": CHAT["messages"]}),
            ("/tokenize", {"prompt": "hi"}),
            ("/detokenize", {"tokens": [1]}),
            ("/apply-template", {"messages": CHAT["messages"]}),
        ],
    )
    async def test_on_no_surface(self, caller: Caller, narrow: dict[str, str], path: str, body: Any) -> None:
        answers = []
        for model in ("tiny", "gone"):
            answer = await caller.ask(path, method="POST", headers=narrow, json={**body, "model": model})
            answers.append((answer.status_code, answer.json()["error"]["message"].replace(model, "")))
        if path == "/v1/embeddings":  # what answers here makes none, which is said first
            return
        assert answers[0] == answers[1]
        assert "tiny" not in answers[0][1]
        allowed = await caller.ask(path, method="POST", headers=narrow, json={**body, "model": "other"})
        assert allowed.status_code in (404, 501)  # what answers here has no tokenizer
        assert "tiny" not in allowed.text

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("/tokenize", {"prompt": "hi"}),
            ("/detokenize", {"tokens": [1]}),
            ("/apply-template", {"messages": CHAT["messages"]}),
        ],
    )
    async def test_no_name_is_none_of_the_others(
        self, keys: Keys, narrow: dict[str, str], path: str, body: Any
    ) -> None:
        engine = TokenScript(lambda request: (), info=info())
        caller = Caller(create_app(provider(engine), engine.stats, Settings(keys_path=keys.path)))
        answer = await caller.ask(path, method="POST", headers=narrow, json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_model")

    async def test_health_tells_of_no_other(self, caller: Caller, keys: Keys, narrow: dict[str, str]) -> None:
        for path in ("/health", "/ready"):
            told = await caller.ask(path, headers=narrow)
            assert (told.json(), "tiny" in told.text) == ({"status": "ready", "models": []}, False)
            assert (await caller.ask(path, headers=keys.header("user"))).json()["engines"][0]["model"] == "tiny"


class TestPriority:
    async def test_bounds_and_default(self, caller: Caller, keys: Keys) -> None:
        provider = ScriptedProvider()
        caller = Caller(create_app(provider, ScriptedEngine().stats, Settings(keys_path=keys.path)))
        keys.add("batch", priority=20, best_priority=10)
        headers = keys.header("batch")
        for asked, status in (({}, 200), ({"priority": 10}, 200), ({"priority": 50}, 200), ({"priority": 9}, 403)):
            answer = await caller.chat(headers, **asked)
            assert answer.status_code == status
        assert answer.json()["error"]["param"] == "priority"
        assert [request.service.priority for request in provider.requests] == [20, 10, 50]
        assert {request.tenant for request in provider.requests} == {keys.id_of("batch")}
        assert (await caller.chat(keys.header("user"), priority=0)).status_code == 200
        assert (await caller.chat(keys.header("user"), priority=-1)).status_code == 403


async def test_stored_answers_are_their_keys_alone(caller: Caller, keys: Keys) -> None:
    made = (await caller.chat(keys.header("user"), store=True)).json()["id"]
    path = f"/v1/chat/completions/{made}"
    assert (await caller.ask(path, headers=keys.header("user"))).status_code == 200
    assert (await caller.ask(path, headers=keys.header("boss"))).status_code == 404
    assert (await caller.ask("/v1/chat/completions", headers=keys.header("boss"))).json()["data"] == []
    assert (await caller.ask(path, method="DELETE", headers=keys.header("boss"))).status_code == 404
    response = await caller.ask(
        "/v1/responses", method="POST", headers=keys.header("user"), json={"model": "tiny", "input": "hi"}
    )
    follow = {"model": "tiny", "input": "and?", "previous_response_id": response.json()["id"]}
    for name, status in (("boss", 400), ("user", 200)):
        answer = await caller.ask("/v1/responses", method="POST", headers=keys.header(name), json=follow)
        assert answer.status_code == status, answer.text


async def test_a_renewed_token_keeps_the_answers_and_a_new_key_of_the_name_has_none(caller: Caller, keys: Keys) -> None:
    made = (await caller.chat(keys.header("user"), store=True)).json()["id"]
    keys.change("user", digest=digest_of(b"another"))
    assert (await caller.ask(f"/v1/chat/completions/{made}", headers=keys.header("user"))).status_code == 401
    renewed = {"x-api-key": "another"}
    assert (await caller.ask(f"/v1/chat/completions/{made}", headers=renewed)).status_code == 200
    keys.revoke("user")
    keys.add("user")
    assert (await caller.ask(f"/v1/chat/completions/{made}", headers=keys.header("user"))).status_code == 404


async def test_metrics_tell_names_and_nothing_else_of_keys(caller: Caller, keys: Keys) -> None:
    await caller.chat(keys.header("user"))
    text = (await caller.ask("/metrics", headers=keys.header("boss"))).text
    assert 'millstream_tenant_tokens_total{kind="completion",tenant="user"} 3.0' in text
    gone = keys.id_of("user")
    keys.revoke("user")
    assert gone not in (await caller.ask("/metrics", headers=keys.header("boss"))).text
    for name in ("boss",):
        assert keys.id_of(name) not in text
        assert keys.tokens[name] not in text
        assert digest_of(keys.tokens[name].encode()) not in text


async def test_no_token_comes_into_the_log(keys: Keys, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    caller = Caller(app_with(keys_path=keys.path, access_log=True))
    await caller.chat(keys.header("user"))
    await caller.chat({"authorization": "Bearer sk-secret"})
    assert caplog.records
    assert not any(word in caplog.text for word in (keys.tokens["user"], "sk-secret"))
