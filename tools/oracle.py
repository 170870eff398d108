"""Golden files from Transformers, and measurements against it.

    python tools/oracle.py tiny                  logits of tiny random models
    python tools/oracle.py greedy [MODEL …]      greedy continuations of 20 prompts
    python tools/oracle.py text [MODEL …]        next-token distributions over a 500-token text
    python tools/oracle.py check [MODEL …]       is the reference what Transformers' own GGUF loader gives?
    python tools/oracle.py kl [MODEL …]          KL divergence of the engine and of less exact arithmetic

MODEL is a name of tests/support/real_models.py; without one, all whose file is there. The requirements are in
tools/oracle-requirements.txt; `kl` measures the engine too if millstream is installed beside them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests")]

from reference.checkpoint import differences  # noqa: E402
from reference.golden import write_greedy, write_text, write_tiny  # noqa: E402
from reference.variants import report  # noqa: E402

from support.goldens import GOLDENS  # noqa: E402
from support.real_models import REAL_MODELS, find_real_model  # noqa: E402
from support.tiny_cases import TINY_CASES  # noqa: E402


def main() -> int:
    """Run one command; the exit code is 1 if `check` finds a difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["tiny", "greedy", "text", "check", "kl"])
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(REAL_MODELS))
    options = parser.parse_args()
    if unknown := set(options.models) - REAL_MODELS.keys():
        parser.error(f"unknown model {', '.join(sorted(unknown))}; known: {', '.join(REAL_MODELS)}")
    GOLDENS.mkdir(parents=True, exist_ok=True)
    if options.command == "tiny":
        with tempfile.TemporaryDirectory() as folder:
            write_tiny(list(TINY_CASES.values()), Path(folder), GOLDENS / "tiny.npz")
        return 0
    return max((_run(options.command, name) for name in options.models or REAL_MODELS), default=0)


def _run(command: str, name: str) -> int:
    path = find_real_model(name)
    if path is None:
        print(f"{name}: {REAL_MODELS[name]} is not on this machine, skipped")
        return 0
    if command == "greedy":
        write_greedy(path, GOLDENS / f"{name}-greedy.json")
    elif command == "text":
        write_text(path, GOLDENS / f"{name}-text.npz")
    elif command == "kl":
        report(name, path)
    else:
        found = differences(path)
        print("\n".join([f"{name}: {len(found)} differences", *found]))
        return int(bool(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
