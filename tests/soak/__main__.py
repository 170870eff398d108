"""`make soak`: a storm of some minutes on a real model."""

from __future__ import annotations

import argparse
import asyncio
import sys

from soak.storm import Storm, run
from soak.test_soak import check
from support.real_models import DEFAULT_MODEL, real_model
from support.served import serve


def main() -> int:
    """Blow, print what happened, and fail if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=640)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--calm", type=int, default=240, help="requests after the kills, twice, for the memory")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=1800, help="seconds after which it is given up")
    options = parser.parse_args()
    storm = Storm(
        clients=options.clients,
        requests=options.requests,
        kills=options.kills,
        calm=options.calm,
        seed=options.seed,
    )
    with serve(real_model(options.model), "--ctx", "2048", "--kv-cache", "4096t", "--model-name", "soak") as server:
        try:
            report = asyncio.run(asyncio.wait_for(run(server, "soak", storm), options.limit))
        except TimeoutError:
            print(f"It was not over after {options.limit:g} s.", file=sys.stderr)
            return 1
    print(f"{report.seconds:.0f} s, {report.restarts} restarts, {report.resumed} streams went on after one")
    print(", ".join(f"{count} {end}" for end, count in sorted(report.ends.items())))
    for name, before in report.rss_before.items():
        after, end = report.rss_storm[name] >> 20, report.rss_calm[name] >> 20
        print(f"{name}: {before >> 20} MiB before, {after} MiB after the kills, {end} MiB at the end")
    for fault in report.faults:
        print(fault, file=sys.stderr)
    check(report, storm)
    assert {"left in the queue", "left in prefill", "left in the answer"} <= report.ends.keys()
    return 0


if __name__ == "__main__":
    sys.exit(main())
