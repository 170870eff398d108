"""What to send: a few workloads that are built in, and files in TOML that describe others.

A file holds one workload::

    prompts = "shared"        # chat, shared, documents, or a file of conversations (JSON lines) beside this one
    requests = 48
    concurrency = 16          # clients that wait for their answer before they send again; or
    # rate = 2.0              # arrivals per second, Poisson, whatever is open
    max_tokens = 64
    words = 1000              # of a shared system prompt or of documents
"""

from __future__ import annotations

import errno
import json
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import msgspec

from millstream.bench.errors import BenchError
from millstream.ir.files import read_small

Count = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
_MOST_BYTES = 1 << 20
_MOST_CONVERSATION_BYTES = 256 << 20
PROMPT_KINDS = ("chat", "shared", "documents")

Conversation = list[dict[str, Any]]


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``prompts``: a kind of `PROMPT_KINDS`, or a file of conversations. With ``rate`` requests arrive as a Poisson
    process, else ``concurrency`` clients send one after the other. ``fields``: more of the request's body.
    ``ignore_eos``: answers of one length, so that servers do the same work; it is not in OpenAI's API."""

    name: str = ""
    prompts: str = "chat"
    requests: Count = 48
    concurrency: Count = 16
    rate: Annotated[float, msgspec.Meta(gt=0, le=10_000)] | None = None
    max_tokens: Count = 64
    words: Count = 1000
    ignore_eos: bool = True
    fields: dict[str, Any] = {}
    conversations: list[Conversation] = []
    """What the file of conversations holds; read by `load_workload`."""


BUILT_IN = {
    "chat": Workload(name="chat"),
    "one": Workload(name="one", requests=6, concurrency=1),
    "shared": Workload(name="shared", prompts="shared"),
    "documents": Workload(name="documents", prompts="documents", requests=8, concurrency=4, words=2500),
    "poisson": Workload(name="poisson", requests=60, rate=3.0),
}


def load_workload(ref: str) -> Workload:
    """The built-in workload of this name, or that of a TOML file.

    Raises:
        BenchError: there is neither, or the file is not one; the message names the key.
    """
    if ref in BUILT_IN:
        return BUILT_IN[ref]
    path = Path(ref)
    try:
        data = tomllib.loads(_text(path, _MOST_BYTES))
    except FileNotFoundError:
        raise BenchError(f"no workload or file named {ref!r}; built in: {', '.join(BUILT_IN)}") from None
    except OSError as error:
        raise BenchError(f"{ref}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BenchError(f"{ref}: {error}") from None
    _refuse_unknown(data, ref)
    try:
        workload = msgspec.convert(data, Workload)
    except msgspec.ValidationError as error:
        raise BenchError(f"{ref}: {error}") from None
    conversations: list[Conversation] = []
    if workload.prompts not in PROMPT_KINDS:
        conversations = _conversations(path.parent / workload.prompts)
    return msgspec.structs.replace(workload, name=workload.name or path.stem, conversations=conversations)


def _text(path: Path, limit: int) -> str:
    """Raises `OSError`, whose ``strerror`` says why the file is of no use."""
    try:
        return read_small(path, limit).decode()
    except UnicodeDecodeError as error:
        raise OSError(errno.EILSEQ, f"not UTF-8 (byte {error.start})") from None


def _refuse_unknown(data: dict[str, Any], ref: str) -> None:
    known = [name for name in Workload.__struct_fields__ if name != "conversations"]
    for key in data:
        if key not in known:
            near = get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            raise BenchError(f"{ref}: unknown key {key!r}; {hint}")


def _conversations(path: Path) -> list[Conversation]:
    """One conversation a line: ``{"messages": [...]}`` or the list alone."""
    try:
        lines = _text(path, _MOST_CONVERSATION_BYTES).splitlines()
    except OSError as error:
        raise BenchError(
            f"prompts: {path} is no file of conversations ({error.strerror}); "
            f"kinds that are built in: {', '.join(PROMPT_KINDS)}"
        ) from None
    found: list[Conversation] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BenchError(f"{path}:{number}: not JSON: {error}") from None
        messages = value.get("messages") if isinstance(value, dict) else value
        if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
            raise BenchError(f"{path}:{number}: a line holds a list of messages, or an object with `messages`")
        found.append(messages)
    if not found:
        raise BenchError(f"{path} holds no conversation")
    return found
