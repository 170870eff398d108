"""Who a token belongs to, as the file of keys says at this moment."""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable

from millstream.keys.file import KeyFile, KeyFileError, Signature
from millstream.keys.key import Key, digest_of, single_key

log = logging.getLogger("millstream.server")


class Keyring:
    """The keys of a server. The file is looked at whenever they are asked for, so a revoked key is gone at once.

    A server that has had keys stays guarded, also when its file goes away: a slip must not open it. A file that cannot
    be read any more leaves the keys that were read last.
    """

    def __init__(
        self, file: KeyFile | None = None, *, single: str | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """``single``: digest of a key besides those of the file. ``clock``: seconds since 1970.

        Raises:
            KeyFileError: the file is there and cannot be read.
        """
        self._file = file
        self._single = () if single is None else (single_key(single),)
        self._clock = clock
        self._keys: tuple[Key, ...] = ()
        self._seen: Signature | None = None
        self._guarded = single is not None
        self._broken: str | None = None
        self._names = {key.id: key.name for key in self._single}
        self._read()

    @property
    def guarded(self) -> bool:
        """Whether a key is needed."""
        self._refresh()
        return self._guarded

    @property
    def keys(self) -> tuple[Key, ...]:
        """All keys, the single one first."""
        self._refresh()
        return self._single + self._keys

    def find(self, token: bytes) -> Key | None:
        """The key of a token, also one that has expired.

        Every key is compared, each in constant time: how long it takes tells nothing of the token, or of whose it is.
        """
        digest, found = digest_of(token), None
        for key in self.keys:
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found

    def expired(self, key: Key) -> bool:
        """Whether a key is no longer valid."""
        return key.expired(self._clock())

    def name_of(self, key_id: str) -> str:
        """The name of a key, for people, also of one that is revoked by now; an id that is no key's is its own."""
        return self._names.get(key_id, key_id)

    def _refresh(self) -> None:
        try:
            self._read()
        except KeyFileError as error:
            if str(error) != self._broken:
                log.error("%s The keys that were read last stay valid.", error)
            self._broken = str(error)

    def _read(self) -> None:
        if self._file is None:
            return
        signature = self._file.signature()
        if signature == self._seen and self._broken is None:
            return
        if signature is None and self._seen is not None:
            log.warning("%s is gone: all its keys are revoked. Requests still need a key.", self._file.path)
        self._keys = self._file.read()
        # Those of revoked keys stay: what they have open is still counted under their names.
        self._names |= {key.id: key.name for key in self._keys}
        self._seen = signature
        self._broken = None
        self._guarded = self._guarded or signature is not None
