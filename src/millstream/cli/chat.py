"""`chat`: a conversation at the terminal.

The event loop runs only while an answer is streamed; between answers the terminal belongs to `input` and its line
editing. Ctrl-C while an answer runs cancels that answer, which frees its place in the engine within one step.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any

import msgspec

from millstream.cli.errors import CliError
from millstream.cli.fetching import find_or_fetch
from millstream.cli.generate import Answer, conversation, write_answer
from millstream.cli.opening import LocalSession, open_local
from millstream.cli.sampling import sampling_of
from millstream.cli.talking import Talk
from millstream.cli.terminal import is_terminal, note, prompt, report
from millstream.ir.errors import ApiError
from millstream.ir.request import ChatRequest, Message, Sampling

HELP = """\
/help              this list
/system [TEXT]     set the instructions (without TEXT: remove them) and start anew
/set NAME [VALUE]  change a sampling option, such as: /set temperature 0.5 (without VALUE: its default)
/retry             answer the last message again
/reset             forget the conversation
/stats             print token counts and speed after each answer, or stop doing so
/quit              leave (also Ctrl-D)
\"\"\"                begin and end a message of several lines
Ctrl-C stops an answer.
/set knows {settable}.
What is of the model and its engine (--model, --ctx, --kv-cache, --threads, …) is chosen when `chat` starts."""

_SETTABLE = (
    "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
    "seed", "max_tokens", "stop",
)  # fmt: skip
"""All options of sampling that the command line has."""


def chat(talk: Talk) -> None:
    """Talk until the user leaves."""
    path = find_or_fetch(talk.model, fetch=talk.fetch)
    with asyncio.Runner() as runner:
        context = open_local(path, talk.engine)
        session = runner.run(context.__aenter__())
        try:
            Conversation(runner, session, system=talk.system, sampling=talk.sampling, stats=talk.stats).loop()
        finally:
            runner.run(context.__aexit__(None, None, None))


class Conversation:
    """The state of a chat and its commands."""

    def __init__(
        self, runner: asyncio.Runner, session: LocalSession, *, system: str | None, sampling: Sampling, stats: bool
    ) -> None:
        self._runner = runner
        self._session = session
        self._system = system
        self._sampling = sampling
        self._stats = stats
        self._turns: list[Message] = []
        self._interactive = is_terminal(sys.stdin)

    def loop(self) -> None:
        """Read a message or a command, act on it, until the end of input or ``/quit``."""
        if self._interactive:
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401  (line editing and history for `input`)
            note(f"{self._session.name} · /help lists commands · Ctrl-D leaves")
        while True:
            try:
                text = self._read()
            except KeyboardInterrupt:
                note("\n(Ctrl-D or /quit leaves)")
                continue
            if text is None or text.strip() in ("/quit", "/exit", "/bye"):
                return
            if text.startswith("/"):
                self._command(*text.split(maxsplit=1))
            elif text.strip():
                self._turns.append(Message(role="user", content=text))
                self._answer()

    def _read(self) -> str | None:
        """One message; None at the end of input."""
        try:
            line = self._line(">>> ")
            if not line.startswith('"""'):
                return line
            lines = [line.removeprefix('"""')]
            while not lines[-1].endswith('"""'):
                lines.append(self._line("... "))
        except EOFError:
            if self._interactive:
                print()
            return None
        except UnicodeDecodeError:
            raise CliError("standard input is not UTF-8 text") from None
        return "\n".join(lines).removesuffix('"""').strip("\n")

    def _line(self, text: str) -> str:
        return input(prompt(text) if self._interactive else "")

    def _answer(self) -> None:
        """Answer the last user message. What was said before a Ctrl-C stays; a failure takes the message back."""
        answer = Answer()
        request = ChatRequest(
            model=self._session.name, messages=conversation(self._system, self._turns), sampling=self._sampling
        )
        try:
            self._runner.run(write_answer(self._session.provider, request, answer, sys.stdout))
        except KeyboardInterrupt:
            note("(stopped)")
        except CliError as error:
            if not self._interactive:
                raise
            report(error.message)
        if answer.text:
            self._turns.append(Message(role="assistant", content=answer.text))
        else:
            self._turns.pop()
        if self._stats and answer.reason is not None:
            note(answer.summary())

    def _command(self, name: str, argument: str = "") -> None:
        match name:
            case "/help" | "/?":
                note(HELP.format(settable=", ".join(_SETTABLE)))
            case "/system":
                self._system = argument or None
                self._turns.clear()
                note("(instructions set; new conversation)" if argument else "(no instructions; new conversation)")
            case "/set":
                self._set(argument)
            case "/retry":
                self._retry()
            case "/reset" | "/clear":
                self._turns.clear()
                note("(new conversation)")
            case "/stats":
                self._stats = not self._stats
                note(f"(statistics {'on' if self._stats else 'off'})")
            case _:
                note(f"no command {name}; /help lists them")

    def _retry(self) -> None:
        if self._turns and self._turns[-1].role == "assistant":
            self._turns.pop()
        if self._turns:
            self._answer()
        else:
            note("(nothing to answer)")

    def _set(self, argument: str) -> None:
        name, _, value = argument.partition(" ")
        name = name.replace("-", "_")
        if name not in _SETTABLE:
            note(f"no option {name or '(none given)'}; there are: {', '.join(_SETTABLE)}")
            return
        try:
            fields = {each: getattr(self._sampling, each) for each in _SETTABLE}
            self._sampling = sampling_of(**{**fields, name: _value(name, value.strip())})
        except ApiError as error:
            note(error.message)
            return
        except (msgspec.DecodeError, msgspec.ValidationError):
            note(f"{value!r} is no value for {name}")
            return
        now = getattr(self._sampling, name)
        note(f"({name} is not set)" if now in (None, ()) else f"({name} = {msgspec.json.encode(now).decode()})")


def _value(name: str, text: str) -> Any:
    """What follows the name of an option; None: nothing. A stop string is taken as it stands, and also in quotes, or as
    a JSON array of several. Raises `msgspec.DecodeError`."""
    if not text:
        return None
    if name == "stop":
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(text, type=str | list[str])
        return text
    return msgspec.json.decode(text)
