"""Keys for a live server: made as `millstream keys` makes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from millstream.keys.file import KeyFile
from millstream.keys.key import Key, digest_of, new_id, new_token


class Keys:
    """A file of keys whose tokens are known."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.json"
        self.tokens: dict[str, str] = {}

    def add(self, name: str, **members: Any) -> str:
        """A new key; its token."""
        token = self.tokens[name] = new_token()
        key = Key(id=new_id(), name=name, digest=digest_of(token.encode()), **members)
        KeyFile(self.path).change(lambda keys: ((*keys, key), None))
        return token

    def change(self, name: str, **members: Any) -> None:
        """Another limit, or what else changes."""
        KeyFile(self.path).change(
            lambda keys: (tuple(replace(key, **members) if key.name == name else key for key in keys), None)
        )

    def revoke(self, name: str) -> None:
        KeyFile(self.path).change(lambda keys: (tuple(key for key in keys if key.name != name), None))

    def id_of(self, name: str) -> str:
        return next(key.id for key in KeyFile(self.path).read() if key.name == name)

    def header(self, name: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.tokens[name]}"}
