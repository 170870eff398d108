"""The address that a server listens on."""

from __future__ import annotations

import socket


def bind(host: str, port: int) -> socket.socket:
    """A listening address, taken before anything slow is loaded. Port 0 takes a free one.

    Raises:
        OSError: the address is taken, not ours or unknown; the message says which address and why.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise OSError(error.errno, f"Cannot listen on {host}:{port}: {error.strerror}") from None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(2048)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"Cannot listen on {host}:{port}: {error.strerror}") from None
    return sock
