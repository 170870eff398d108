"""Grammars are checked before a request is queued, so that a bad schema is a 400 that names the tool and the place."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from millstream.ir.errors import ApiError, invalid
from millstream.parsing.reasoning.format import NONE
from millstream.pipeline.grammar import AnswerGrammar, Rule, compose

if TYPE_CHECKING:
    from millstream.grammars.matcher import Compiler

_KNOWN_GOOD = 256
_SEARCH_SECONDS = 1.0
_DEPTH = 64
_NAMED_CHILDREN = ("properties", "patternProperties", "$defs", "definitions")
_LISTED_CHILDREN = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE_CHILDREN = ("items", "additionalProperties")

Check = Callable[[Rule], str | None]
"""What is wrong with a grammar; None: nothing."""


class GrammarChecker:
    """Checks grammars in one thread of its own, so that a costly one holds up nothing but other checks.

    ``special_ids``: control tokens of the model.
    """

    def __init__(self, special_ids: Iterable[int]) -> None:
        self._special_ids = tuple(special_ids)
        self._good: OrderedDict[bytes, None] = OrderedDict()
        self._thread: ThreadPoolExecutor | None = None
        self._compiler: Compiler | None = None

    async def check(self, grammar: AnswerGrammar, tenant: str = "") -> None:
        """Raises `ApiError` (400) if the grammar cannot be enforced.

        What was found good is known for the same ``tenant`` only: a quick check would tell one what another asks for.
        """
        key = hashlib.sha256(f"{tenant}\0{grammar.text}".encode()).digest()
        if key in self._good:
            self._good.move_to_end(key)
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "grammar-check")
        refusal = await asyncio.get_running_loop().run_in_executor(self._thread, self._refusal, grammar)
        if refusal is not None:
            raise refusal
        self._good[key] = None
        if len(self._good) > _KNOWN_GOOD:
            self._good.popitem(last=False)

    def _refusal(self, grammar: AnswerGrammar) -> ApiError | None:
        if grammar.response is not None and (fault := self._fault(grammar.response)):
            return _response_refusal(grammar, fault, self._fault)
        if grammar.calls is not None and (fault := self._fault(grammar.calls)):
            return _tools_refusal(grammar, fault, self._fault)
        fault = self._compile(grammar.text)
        return None if fault is None else invalid(f"The answer's grammar cannot be enforced: {fault}.")

    def _fault(self, rule: Rule) -> str | None:
        return self._compile(compose(rule, None, NONE, "none", {}))

    def _compile(self, text: str) -> str | None:
        from millstream.grammars.matcher import GrammarError, byte_compiler

        if self._compiler is None:
            self._compiler = byte_compiler(self._special_ids)
        try:
            self._compiler.check(text)
        except GrammarError as error:
            return str(error).rstrip(".")
        return None


def _response_refusal(grammar: AnswerGrammar, fault: str, check: Check) -> ApiError:
    format = grammar.format
    rule = grammar.response or {}
    where = _place(rule["json_schema"], check) if "json_schema" in rule else ""
    what = {"regex": "pattern", "grammar": "grammar"}.get(format.kind, "schema")
    return invalid(
        f"response_format: the {what} cannot be enforced{where}: {fault}.",
        param="response_format",
        code="invalid_schema",
    )


def _tools_refusal(grammar: AnswerGrammar, fault: str, check: Check) -> ApiError:
    if len(grammar.tools) == 1:
        ((position, only),) = grammar.tools
        where = _place(only.parameters or {}, check)
        return invalid(
            f"tools[{position}]: the parameters of {only.name!r} cannot be enforced{where}: {fault}.",
            param=f"tools[{position}]",
            code="invalid_schema",
        )
    deadline = time.monotonic() + _SEARCH_SECONDS
    for position, tool in grammar.tools:
        if time.monotonic() > deadline:
            break
        schema = tool.parameters or {}
        own = check({"json_schema": schema})
        if own is not None:
            where = _place(schema, check)
            return invalid(
                f"tools[{position}]: the parameters of {tool.name!r} cannot be enforced{where}: {own}.",
                param=f"tools[{position}]",
                code="invalid_schema",
            )
    return invalid(f"tools: the schemas cannot be enforced together: {fault}.", param="tools", code="invalid_schema")


def _place(schema: dict[str, Any], check: Check) -> str:
    """The smallest part of a schema that is at fault by itself, as `` at /properties/a``; empty: the whole."""
    deadline = time.monotonic() + _SEARCH_SECONDS
    shared: dict[str, Any] = {key: schema[key] for key in ("$defs", "definitions", "x-guidance") if key in schema}
    pointer, part = "", schema
    for _ in range(_DEPTH):
        for step, child in _children(part):
            if time.monotonic() > deadline:
                return ""
            if check({"json_schema": {**shared, **child}}):
                pointer, part = f"{pointer}/{step}", child
                break
        else:
            break
    return f" at {pointer}" if pointer else ""


def _children(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Subschemas with their steps in a JSON pointer."""
    for key in _NAMED_CHILDREN:
        named = schema.get(key)
        if isinstance(named, dict):
            for name, child in named.items():
                if isinstance(child, dict):
                    yield f"{key}/{name.replace('~', '~0').replace('/', '~1')}", child
    for key in _LISTED_CHILDREN:
        listed = schema.get(key)
        if isinstance(listed, list):
            for index, child in enumerate(listed):
                if isinstance(child, dict):
                    yield f"{key}/{index}", child
    for key in _SINGLE_CHILDREN:
        single = schema.get(key)
        if isinstance(single, dict):
            yield key, single
