"""How much of its speed the engine keeps while another process keeps one processor busy.

    .venv/bin/python tools/busy_neighbour.py MODEL.gguf [--threads N] [--rounds N]

Decodes 1 and 16 sequences in turns, quietly and beside a process that spins on the first processor of the affinity
mask. The neighbour is owed half of that processor, so of N processors the engine's fair share is (N - 1/2) / N; prints
the speeds' medians and their ratio beside that.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from millstream.bench.engine import run_together
from millstream.engine.config import EngineConfig
from millstream.engine.loading import load_core

SPIN = "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nprint(flush=True)\nwhile True: pass"
STREAMS = (1, 16)
CONTEXT = 128


@contextmanager
def neighbour() -> Iterator[None]:
    """A process that never rests."""
    process = subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    core, info = load_core(
        EngineConfig(
            model_path=args.model, model_name="m", threads=args.threads, kv_bytes=256 << 20, prefix_cache=False
        )
    )

    def speed(streams: int) -> float:
        prompts = [[(97 * row + 31 * at) % info.vocab_size for at in range(CONTEXT)] for row in range(streams)]
        timing = run_together(core, prompts, 64 if streams == 1 else 16)
        return timing.tokens_after_first / (timing.end - timing.first)

    processors = len(os.sched_getaffinity(0))
    print(f"{info.threads} threads, {processors} processors, fair share {1 - 0.5 / processors:.2f}")
    for streams in STREAMS:
        alone, beside = [], []
        for _ in range(args.rounds):
            alone.append(speed(streams))
            with neighbour():
                beside.append(speed(streams))
        ratio = median(b / a for a, b in zip(alone, beside, strict=True))
        print(f"decode x{streams}: {median(alone):.0f} tokens/s, beside {median(beside):.0f}, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
