"""The HTTP server over the scripted engine, as a process: its first line of output is the port."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from millstream.bench.errors import BenchError
from millstream.ir.children import END_WITH_PARENT

_START_SECONDS = 120.0
_STOP_SECONDS = 20.0


@contextmanager
def api_server() -> Iterator[tuple[int, int]]:
    """Run one on a free port of this machine until the block ends: its (port, process id).

    Raises:
        BenchError: it did not start.
    """
    command = [sys.executable, "-m", "millstream.bench.api_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=END_WITH_PARENT) as process:
        watchdog = threading.Timer(_START_SECONDS, process.kill)
        watchdog.start()
        try:
            line = process.stdout.readline() if process.stdout else ""
            watchdog.cancel()
            if not line.strip().isdigit():
                raise BenchError("the server of the benchmark did not start")
            yield int(line), process.pid
        finally:
            watchdog.cancel()
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def main() -> None:
    """Serve until SIGINT."""
    from millstream.bench.api_script import scripted_provider
    from millstream.server.app import create_app
    from millstream.server.binding import bind
    from millstream.server.process import run, settle
    from millstream.server.run import HttpServer
    from millstream.server.settings import Settings

    settings = Settings(drain_seconds=1.0)
    provider, engine = scripted_provider()
    sock = bind("127.0.0.1", 0)
    app = create_app(provider, engine.stats, settings)
    print(sock.getsockname()[1], flush=True)
    run(HttpServer(app, sock, settings, on_ready=settle).run())


if __name__ == "__main__":
    main()
