"""The coding agents: how each is pointed at a server, started without a person, and what tool of it reads a file."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

NOWHERE = "http://127.0.0.1:9"
"""Nothing listens at the discard port: as a proxy it keeps a program from all hosts but this one."""


class Place(NamedTuple):
    """Where one run happens.

    ``url``: the server, without ``/v1``. ``home``: a fresh home folder. ``work``: the project. ``answer``: tokens that
    an answer has at most, where the program can be told (Codex cannot).
    """

    url: str
    model: str
    home: Path
    work: Path
    answer: int = 8192


class Program(NamedTuple):
    """``setup`` writes configuration and gives the program's own environment; ``arguments`` gives the command line
    behind the program's name; ``reading`` is a call of one of its tools that shows a file."""

    name: str
    setup: Callable[[Place], Mapping[str, str]]
    arguments: Callable[[Place, str], list[str]]
    reading: Callable[[Path], tuple[str, dict[str, Any]]]


class Ended(NamedTuple):
    code: int
    output: str
    errors: str


def run(program: Program, binaries: Path, place: Place, prompt: str, *, seconds: float) -> Ended:
    """One turn. Raises `subprocess.TimeoutExpired` if it takes longer; the program is stopped then."""
    place.home.mkdir(parents=True, exist_ok=True)
    place.work.mkdir(parents=True, exist_ok=True)
    environment = {
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(place.home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "DO_NOT_TRACK": "1",
        **{name: NOWHERE for each in ("http_proxy", "https_proxy") for name in (each, each.upper())},
        **dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost"),
        **program.setup(place),
    }
    command = [str(binaries / program.name), *program.arguments(place, prompt)]
    with subprocess.Popen(
        command,
        cwd=place.work,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=seconds)
        except BaseException:
            # The whole group: these programs start others.
            os.killpg(process.pid, 9)
            raise
    return Ended(process.returncode, output, errors)


def _codex_setup(place: Place) -> dict[str, str]:
    folder = place.home / ".codex"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(f'''
model = "{place.model}"
model_provider = "millstream"
model_context_window = 32768
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.millstream]
name = "Millstream"
base_url = "{place.url}/v1"
wire_api = "responses"
''')
    return {"CODEX_HOME": str(folder)}


CODEX = Program(
    "codex",
    _codex_setup,
    lambda place, prompt: ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", prompt],
    lambda path: ("exec_command", {"cmd": f"cat {path}"}),
)

CLAUDE = Program(
    "claude",
    lambda place: {
        "ANTHROPIC_BASE_URL": place.url,
        "ANTHROPIC_API_KEY": "unused",
        "ANTHROPIC_MODEL": place.model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": place.model,
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(place.answer),
        "API_TIMEOUT_MS": "3600000",
        "CLAUDE_STREAM_IDLE_TIMEOUT_MS": "3600000",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        # The user may be root here, which is taken only where everything is in a box.
        "IS_SANDBOX": "1",
    },
    lambda place, prompt: ["-p", "--dangerously-skip-permissions", prompt],
    lambda path: ("Bash", {"command": f"cat {path}", "description": "Show the file"}),
)


def _opencode_setup(place: Place) -> dict[str, str]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Millstream",
        "options": {"baseURL": f"{place.url}/v1", "apiKey": "unused"},
        "models": {place.model: {"name": place.model, "limit": {"context": 32768, "output": place.answer}}},
    }
    config = {
        "autoupdate": False,
        "share": "disabled",
        "enabled_providers": ["millstream"],
        "provider": {"millstream": provider},
    }
    (place.work / "opencode.json").write_text(json.dumps(config, indent=2))
    return {
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    }


OPENCODE = Program(
    "opencode",
    _opencode_setup,
    lambda place, prompt: ["run", "--auto", "--model", f"millstream/{place.model}", prompt],
    lambda path: ("bash", {"command": f"cat {path}", "description": "Show the file"}),
)


def _qwen_setup(place: Place) -> dict[str, str]:
    folder = place.home / ".qwen"
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "general": {"enableAutoUpdate": False},
        "model": {"generationConfig": {"samplingParams": {"max_tokens": place.answer}}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
    }
    (folder / "settings.json").write_text(json.dumps(settings, indent=2))
    return {"OPENAI_BASE_URL": f"{place.url}/v1", "OPENAI_API_KEY": "unused", "OPENAI_MODEL": place.model}


QWEN = Program(
    "qwen",
    _qwen_setup,
    lambda place, prompt: ["--auth-type", "openai", "--yolo", "-p", prompt],
    lambda path: ("read_file", {"file_path": str(path)}),
)

PROGRAMS = (CODEX, CLAUDE, OPENCODE, QWEN)

SYSTEM = "You are a helpful assistant. Answer in one short sentence."


def _brief_opencode_setup(place: Place) -> Mapping[str, str]:
    environment = OPENCODE.setup(place)
    path = place.work / "opencode.json"
    agents = {"build": {"prompt": SYSTEM, "tools": {"*": False, "read": True}}, "title": {"disable": True}}
    path.write_text(json.dumps({**json.loads(path.read_text()), "agent": agents}, indent=2))
    return environment


BRIEF = (
    CLAUDE._replace(
        arguments=lambda place, prompt: [
            *("-p", "--bare", "--system-prompt", SYSTEM, "--tools", "Read", "--max-turns", "2"),
            *("--dangerously-skip-permissions", "--", prompt),
        ]
    ),
    OPENCODE._replace(setup=_brief_opencode_setup),
)
"""The agents that can be given a system prompt and a choice of tools of one's own: with these, and one tool, their
prompts have 500 to 800 tokens instead of 8,000 to 18,000."""
