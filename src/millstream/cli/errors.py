"""How a command fails: one line on stderr and an exit code.

| code | meaning |
|---|---|
| 0 | done (for `serve`: stopped by Ctrl-C or SIGTERM after the open requests were finished) |
| 1 | the model, the engine, the address, the request or the output failed; stderr says why |
| 2 | the command line, the environment or the configuration file is wrong |
| 130 | interrupted by Ctrl-C |
"""

from __future__ import annotations

FAILURE = 1
USAGE = 2
INTERRUPTED = 130


class CliError(Exception):
    """Ends the command. ``message`` is one line for the person at the terminal."""

    def __init__(self, message: str, *, code: int = FAILURE) -> None:
        super().__init__(message)
        self.message = " ".join(message.split())
        self.code = code
