"""A Jinja environment for templates that come from strangers.

Jinja's immutable sandbox keeps a template away from Python's internals. On top of it this bounds what a template may
use up, since a model file may hold any text:

- processor time of one rendering, and its number of loop rounds and macro calls (a check is compiled into the body of
  every loop and macro);
- the length of every string and list that an operator, a method or a filter could blow up, of captured blocks, and of
  the output;
- ``range`` (Jinja's own limit of 100,000), nesting (Python's recursion limit). There is no loader, so templates cannot
  include others.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MAX_CHARS = 8_000_000
MAX_ITEMS = 1_000_000
MAX_STEPS = 2_000_000
MAX_SECONDS = 2.0
_MAX_BITS = 4096
_MAX_PADDING = 10_000
_CLOCK_EVERY = 16

_PADDING_METHODS = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs", "to_bytes"})
_WIDTH = re.compile(r"\d{5,}|\*")


class TemplateRefusal(TemplateError):
    """The template called ``raise_exception``; the message is the template's own."""


class TemplateBudgetError(TemplateError):
    """The template used up what one rendering may use."""


class Budget:
    """What one rendering may still use."""

    def __init__(self) -> None:
        self._steps = 0
        self._deadline = time.thread_time() + MAX_SECONDS

    def step(self) -> None:
        """Count a loop round or a macro call. Raises `TemplateBudgetError`."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise TemplateBudgetError(f"it took more than {MAX_STEPS} steps")
        if self._steps % _CLOCK_EVERY == 0 and time.thread_time() > self._deadline:
            raise TemplateBudgetError(f"it took more than {MAX_SECONDS:g} seconds")


_budget: ContextVar[Budget | None] = ContextVar("budget", default=None)


def render_bounded(environment: ChatEnvironment, source: Any, variables: dict[str, Any]) -> str:
    """Render a template of this environment within a fresh budget. Raises what the template raises."""
    token = _budget.set(Budget())
    try:
        return environment.concat(source.generate(variables))
    finally:
        _budget.reset(token)


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """The environment that chat templates are written for (that of Transformers), bounded."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self.globals.pop("lipsum")
        self.globals |= {
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
            "dict": _new_dict,
            "namespace": _SafeNamespace,
        }
        for name, check in _FILTER_CHECKS.items():
            self.filters[name] = _checked(self.filters[name], check)
        self.filters |= {"tojson": _to_json, _STEP_FILTER: _step, _JOIN_FILTER: _join_text}

    def concat(self, parts: Iterable[str]) -> str:
        """Join output, at most `MAX_CHARS` of it; the compiled code calls this wherever it joins."""
        out: list[str] = []
        total = 0
        for part in parts:
            total += len(part)
            _check_chars(total)
            out.append(part)
        return "".join(out)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Refuse operations whose result could not be held."""
        if operator == "+" and _sized(left) and _sized(right):
            _check_size(left, len(left) + len(right))
        elif operator == "*":
            _check_product(left, right)
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            if right > 0 and left.bit_length() * right > _MAX_BITS:
                raise TemplateBudgetError("a number is too large")
        elif operator == "%" and isinstance(left, str):
            _check_format(left, [right])
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Refuse calls of methods whose result could not be held."""
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        if isinstance(owner, str | bytes | int):
            _check_method(owner, name, (*args, *kwargs.values()))
        return super().call(__context, __obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """``str.format``, which the sandbox wraps, with its widths checked."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        form = str(value.__self__)

        def call(*args: Any, **kwargs: Any) -> str:
            _check_format(form, [*args, *kwargs.values()])
            return wrapped(*args, **kwargs)

        return call

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        bodies = [node.body for node in tree.find_all(nodes.For)]
        bodies += [node.body for node in tree.find_all(nodes.Macro)]
        bodies += [node.body for node in tree.find_all(nodes.CallBlock)]
        for body in bodies:
            body.insert(0, nodes.ExprStmt(nodes.Filter(nodes.Const(None), _STEP_FILTER, [], [], None, None)))
        _without_concat(tree).set_environment(self)
        return tree


def _without_concat(node: nodes.Node) -> nodes.Node:
    """The tree with every ``a ~ b`` as a filter that checks lengths; the sandbox has no hook for it."""
    for name, value in node.iter_fields():
        if isinstance(value, nodes.Node):
            setattr(node, name, _without_concat(value))
        elif isinstance(value, list):
            value[:] = [_without_concat(item) if isinstance(item, nodes.Node) else item for item in value]
    if isinstance(node, nodes.Concat):
        return nodes.Filter(nodes.List(node.nodes), _JOIN_FILTER, [], [], None, None, lineno=node.lineno)
    return node


class _Generation(Extension):
    """``{% generation %}…{% endgeneration %}`` marks text for training; here it is its content."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _SafeNamespace(Namespace):
    """``namespace()`` without underscore names, which Python code could mistake for special methods."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        values = dict(*rest, **kwargs)
        for name in values:
            _check_name(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold the name {name!r}")


def _raise_exception(message: object) -> NoReturn:
    raise TemplateRefusal(str(message))


def _strftime_now(form: str) -> str:
    _check_format(form, [])
    return datetime.now().strftime(form)


def _new_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


_STEP_FILTER, _JOIN_FILTER = "_millstream_step", "_millstream_join"


@pass_context
def _step(context: Context, value: None) -> None:
    budget = _budget.get()
    if budget is not None:
        budget.step()


@pass_context
def _join_text(context: Context, values: list[Any]) -> str:
    parts = [str(value) for value in values]
    _check_chars(sum(map(len, parts)))
    return "".join(parts)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As Transformers': plain JSON, not escaped for HTML, keys in their order."""
    if isinstance(indent, int) and indent > 16:
        raise TemplateBudgetError("JSON is indented too far")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _sized(value: Any) -> bool:
    return isinstance(value, str | bytes | list | tuple)


def _check_chars(count: int) -> None:
    if count > MAX_CHARS:
        raise TemplateBudgetError(f"it made a text of more than {MAX_CHARS} characters")


def _check_size(value: Any, count: int) -> None:
    if isinstance(value, str | bytes):
        _check_chars(count)
    elif count > MAX_ITEMS:
        raise TemplateBudgetError(f"it made a list of more than {MAX_ITEMS} items")


def _check_product(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        if left.bit_length() + right.bit_length() > _MAX_BITS:
            raise TemplateBudgetError("a number is too large")
        return
    for value, times in ((left, right), (right, left)):
        if _sized(value) and isinstance(times, int):
            _check_size(value, len(value) * max(times, 0))


def _check_format(form: str, values: Sequence[Any]) -> None:
    """Widths and precisions in a format string, written out or passed as values."""
    flat = [item for value in values for item in (value if isinstance(value, tuple | list) else (value,))]
    nested = re.search(r":[^}]*\{", form) is not None
    if _WIDTH.search(form) or (nested and any(isinstance(item, int) and item > _MAX_PADDING for item in flat)):
        raise TemplateBudgetError("a format has a width that is too large")
    _check_chars(len(form) + sum(len(item) * form.count("%s") for item in flat if isinstance(item, str)))


def _check_method(owner: str | bytes | int, name: str, args: Sequence[Any]) -> None:
    if name in _PADDING_METHODS:
        if any(isinstance(arg, int) and arg > _MAX_PADDING for arg in args):
            raise TemplateBudgetError(f"{name} was asked for too large a width")
        if name == "expandtabs" and isinstance(owner, str):
            _check_chars(len(owner) * max((arg for arg in args if isinstance(arg, int)), default=8))
    elif name == "replace" and isinstance(owner, str):
        _check_replace(owner, *args)
    elif name == "join" and isinstance(owner, str) and args:
        _check_join(args[0], owner)


def _check_replace(text: Any, old: Any = "", new: Any = "", *_: Any) -> None:
    text, old, new = str(text), str(old), str(new)
    _check_chars(len(text) + text.count(old) * max(len(new) - len(old), 0))


def _check_join(items: Any, separator: Any = "", *_: Any) -> None:
    if isinstance(items, list | tuple | dict):
        _check_chars(sum(len(item) for item in items if isinstance(item, str)) + len(items) * len(str(separator)))


def _check_indent(text: Any, width: Any = 4, *_: Any) -> None:
    step = width if isinstance(width, int) else len(str(width))
    _check_chars(len(str(text)) + (str(text).count("\n") + 1) * step)


def _check_numbers(_value: Any, *args: Any) -> None:
    if any(isinstance(arg, int) and arg > _MAX_PADDING for arg in args) or any(
        isinstance(arg, str) and len(arg) > _MAX_PADDING for arg in args
    ):
        raise TemplateBudgetError("a filter was asked for too much")


def _check_format_filter(value: Any, *args: Any) -> None:
    _check_format(str(value), args)


_FILTER_CHECKS: dict[str, Callable[..., None]] = {
    "replace": _check_replace,
    "join": _check_join,
    "indent": _check_indent,
    "center": _check_numbers,
    "batch": _check_numbers,
    "slice": _check_numbers,
    "wordwrap": _check_numbers,
    "format": _check_format_filter,
}


def _checked(function: Callable[..., Any], check: Callable[..., None]) -> Callable[..., Any]:
    """A filter that looks at its arguments first; the marks by which Jinja passes it a context are kept.

    Filters that Jinja passes a context to get it as their first argument, which the check does not see.
    """
    skip = 1 if getattr(function, "jinja_pass_arg", None) is not None else 0

    def call(*args: Any, **kwargs: Any) -> Any:
        check(*args[skip:], *kwargs.values())
        return function(*args, **kwargs)

    call.__dict__.update(function.__dict__)
    return call
