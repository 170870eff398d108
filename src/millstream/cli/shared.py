"""Options that several commands share, written once and put into each."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps

Command = Callable[..., None]


def shared(read: Callable[..., object], name: str) -> Callable[[Command], Command]:
    """A decorator that gives a command the options of ``read`` in the place of its parameter ``name``, which is then
    what ``read`` makes of them."""

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True).parameters
        options = inspect.signature(read, eval_str=True).parameters

        @wraps(command)
        def wrapped(**given: object) -> None:
            made = read(**{option: given.pop(option) for option in options})
            command(**{name: made}, **given)

        parameters = [each for own_name, each in own.items() if own_name != name] + list(options.values())
        keyword = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
        wrapped.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {each.name: each.annotation for each in keyword}
        return wrapped

    return decorate
