"""Answers on the terminal without a server: the stream that the server would encode, written as it comes."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import IO

import msgspec

from millstream.cli.errors import CliError
from millstream.cli.fetching import find_or_fetch
from millstream.cli.opening import open_local
from millstream.cli.talking import Talk
from millstream.cli.terminal import is_terminal, note, printable, styled
from millstream.ir.deltas import Content, Error, Finish, FinishReason, Reasoning, Usage
from millstream.ir.errors import ApiError
from millstream.ir.provider import Provider
from millstream.ir.request import ChatRequest, CompletionRequest, Message, Request


class Answer(msgspec.Struct):
    """What has come of an answer so far; ``reason`` is None until it ended. Seconds count from the request."""

    text: str = ""
    reason: FinishReason | None = None
    usage: Usage = Usage()
    first_seconds: float = 0.0
    seconds: float = 0.0

    def summary(self) -> str:
        """Counts and speeds in one line."""
        prompt, new = self.usage.prompt_tokens, self.usage.completion_tokens
        line = f"{prompt} prompt tokens in {self.first_seconds:.2f} s, {new} new tokens"
        if new > 1 and self.seconds > self.first_seconds:
            line += f" at {(new - 1) / (self.seconds - self.first_seconds):.1f} tokens/s"
        return f"{line}, {self.usage.cached_tokens} from the cache" if self.usage.cached_tokens else line


async def write_answer(provider: Provider, request: Request, answer: Answer, out: IO[str]) -> None:
    """Stream the answer to ``out`` and into ``answer``, which is valid whenever this is cancelled.

    Raises:
        CliError: the request was refused, or the stream ended with an error.
    """
    begun = time.monotonic()
    try:
        stream = await provider.stream(request)
    except ApiError as error:
        raise CliError(error.message) from None
    try:
        async for delta in stream:
            if isinstance(delta, Content | Reasoning) and delta.text:
                answer.first_seconds = answer.first_seconds or time.monotonic() - begun
            if isinstance(delta, Content):
                answer.text += delta.text
                out.write(printable(delta.text, out))
                out.flush()
            elif isinstance(delta, Reasoning):
                sys.stderr.write(styled(printable(delta.text, sys.stderr), "2", sys.stderr))
                sys.stderr.flush()
            elif isinstance(delta, Finish):
                answer.reason, answer.usage = delta.reason, delta.usage
            elif isinstance(delta, Error):
                raise CliError(delta.message)
    finally:
        answer.seconds = time.monotonic() - begun
        if answer.text and not answer.text.endswith("\n"):
            out.write("\n")
            out.flush()
        await stream.aclose()


def read_prompt(prompt: str) -> str:
    """The prompt, or standard input for ``-``."""
    if prompt == "-":
        try:
            prompt = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError:
            raise CliError("standard input is not UTF-8 text") from None
    if not prompt.strip():
        raise CliError("the prompt is empty", code=2)
    return prompt


def run_prompt(prompt: str, talk: Talk, *, raw: bool) -> None:
    """Answer one prompt on stdout. ``raw`` continues the text itself, without the model's chat template."""
    asyncio.run(_run_prompt(prompt, find_or_fetch(talk.model, fetch=talk.fetch), talk, raw))


async def _run_prompt(prompt: str, path: Path, talk: Talk, raw: bool) -> None:
    async with open_local(path, talk.engine) as session:
        request: Request
        if raw:
            request = CompletionRequest(model=session.name, prompts=(prompt,), sampling=talk.sampling)
        else:
            messages = conversation(talk.system, [Message(role="user", content=prompt)])
            request = ChatRequest(model=session.name, messages=messages, sampling=talk.sampling)
        answer = Answer()
        await write_answer(session.provider, request, answer, sys.stdout)
        if answer.reason == "length" and is_terminal(sys.stderr):
            note("(stopped at the token limit)")
        if talk.stats:
            note(answer.summary())


def conversation(system: str | None, turns: list[Message]) -> tuple[Message, ...]:
    """The turns with the system message before them, if there is one."""
    return (*([Message(role="system", content=system)] if system else []), *turns)
