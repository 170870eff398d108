"""Tiny models at every ISA level of this processor: the same logits, bit for bit, in forks of one process.

Runs on the emulated processor (``run.py`` puts it there), or on one that has the levels. ``FILES=1`` in the
environment: print the files that this takes.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable

from support.other_core import use_other_core

use_other_core()

from native import test_hidden, test_int8_activations, test_int8_kv, test_model  # noqa: E402

LEVELS = ("generic", "avx2", "avx512", "amx")


def calls() -> dict[str, Callable[[], bytes]]:
    """What is computed at every level, by name."""
    found: dict[str, Callable[[], bytes]] = {}
    for name in test_model.MODELS:
        found[f"logits of {name}"] = lambda name=name: test_model.level_logits(name).tobytes()
    found["hidden states"] = lambda: test_hidden.level_hidden("llama").tobytes()
    found["logits with int8 activations"] = lambda: test_int8_activations.level_logits(
        next(iter(test_int8_activations.SOME))
    ).tobytes()
    found["logits with int8 KV"] = lambda: test_int8_kv.level_logits(next(iter(test_int8_kv.SOME))).tobytes()
    found["threads"] = threads
    return found


def threads() -> bytes:
    """One, two and three threads give the same logits."""
    s, kinds = test_model.MODELS["llama"]
    weights = test_model.tensors(s, kinds)
    tokens = test_model.prompt(s.vocab_size, 70)
    found = {
        test_model.run_chunked(test_model.build(s, weights, threads=n), s.vocab_size, tokens, [2, 5, 7], 35).tobytes()
        for n in (1, 2, 3)
    }
    (logits,) = found
    return logits


def digests(level: str) -> dict[str, str]:
    """Of everything, in a fork that takes this level."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.environ["MILLSTREAM_ISA"] = level
        with os.fdopen(write, "w") as out:
            for name, call in calls().items():
                out.write(f"{name}\t{hashlib.sha256(call()).hexdigest()}\n")
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as lines:
        found = dict(line.rstrip("\n").split("\t") for line in lines)
    _, status = os.waitpid(child, 0)
    if status or found.keys() != calls().keys():
        sys.exit(f"WRONG: level {level} ends with status {status} after {list(found)}")
    return found


def main() -> None:
    expected = digests(LEVELS[0])
    wrong = 0
    for level in LEVELS[1:]:
        for name, digest in digests(level).items():
            same = digest == expected[name]
            wrong += not same
            print(f"{'ok' if same else 'WRONG'}: {level}: {name}", flush=True)
    print(f"{wrong} failures")
    sys.exit(bool(wrong))


def files() -> None:
    """Of the modules and libraries of this process, after it has done everything: some are imported late."""
    for call in calls().values():
        call()
    modules = {m.__file__ for m in list(sys.modules.values()) if getattr(m, "__file__", None)}
    with open("/proc/self/maps") as maps:
        libraries = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if line.count("/")}
    print("\n".join(sorted(f for f in modules | libraries if f and os.path.isfile(f))))


if __name__ == "__main__":
    files() if os.environ.get("FILES") else main()
