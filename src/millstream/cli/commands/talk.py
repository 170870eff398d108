"""`run` and `chat`: a model on the terminal, without a server."""

from __future__ import annotations

from typing import Annotated

import typer

from millstream.cli.talking import Talk, talking


@talking
def run(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What to answer; - reads it from standard input.")],
    talk: Talk,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the text itself, without the chat template.")] = False,
) -> None:
    """Answer one prompt on the terminal, without a server."""
    from millstream.cli.generate import read_prompt, run_prompt

    run_prompt(read_prompt(prompt), talk, raw=raw)


@talking
def chat(talk: Talk) -> None:
    """Talk with a model on the terminal, without a server."""
    from millstream.cli.chat import chat as converse

    converse(talk)
