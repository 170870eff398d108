"""Tiny wheels that carry a payload, as the catalogue's do, and a catalogue entry made of them."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

from millstream.models.catalogue import CatalogueModel, WheelPart

PAYLOADS = (b"GGUF" + bytes(range(256)) * 40, b"second part " * 500)


OnBytes = Callable[[int], None]


def build_wheel(folder: Path, project: str, members: dict[str, bytes]) -> Path:
    """A wheel that pip accepts, version 1.0."""
    name = project.replace("-", "_")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members.items():
            archive.writestr(member, data)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def tiny_model(folder: Path, payloads: tuple[bytes, ...] = PAYLOADS) -> CatalogueModel:
    """A catalogue entry whose wheels, one a payload, are put into ``folder``."""
    parts = []
    for index, payload in enumerate(payloads):
        wheel = build_wheel(folder, f"tiny-part{index}", {f"data/tiny.part{index}": payload, "tiny/__init__.py": b""})
        parts.append(WheelPart(f"tiny-part{index}==1.0", f".part{index}", wheel.stat().st_size))
    whole = b"".join(payloads)
    return CatalogueModel(
        name="tiny",
        title="Tiny",
        license="Apache-2.0",
        filename="tiny.gguf",
        size=len(whole),
        sha256=hashlib.sha256(whole).hexdigest(),
        parts=tuple(parts),
    )


class CopyDownload:
    """Stands in for pip: copies the wheel out of a folder."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.calls: list[str] = []

    def __call__(self, part: WheelPart, folder: Path, on_bytes: OnBytes) -> Path:
        self.calls.append(part.requirement)
        folder.mkdir(parents=True, exist_ok=True)
        (wheel,) = self.source.glob(f"{part.requirement.split('==')[0].replace('-', '_')}-*.whl")
        on_bytes(wheel.stat().st_size // 2)
        return Path(shutil.copy(wheel, folder))
