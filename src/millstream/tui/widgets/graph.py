"""A series as bars, as high as its widget, newest at the right."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text
from textual.widget import Widget

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def bars(values: list[float | None], width: int, height: int, top: float) -> list[str]:
    """``height`` lines of ``width`` characters, highest first. Each value fills its column up to value / ``top`` of the
    height in eighths of a line; a value above nothing shows at least one eighth, None is left blank."""
    shown = values[-width:] if width > 0 else []
    eighths = [_eighths(value, height, top) for value in shown]
    pad = " " * (width - len(shown))
    return [
        pad + "".join(_EIGHTHS[min(8, max(0, level - 8 * row))] for level in eighths) for row in reversed(range(height))
    ]


def _eighths(value: float | None, height: int, top: float) -> int:
    if value is None or value <= 0 or top <= 0:
        return 0
    return max(1, round(min(1.0, value / top) * height * 8))


class Graph(Widget):
    """Shows the newest values that fit; the highest of them fills the widget."""

    DEFAULT_CSS = """
    Graph { height: 1fr; min-height: 1; color: $primary; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._values: list[float | None] = []

    def show(self, values: Iterable[float | None]) -> None:
        """Draw these, oldest first."""
        self._values = list(values)
        self.refresh()

    def render(self) -> Text:
        width, height = self.size
        seen = [value for value in self._values[-width:] if value is not None]
        return Text("\n".join(bars(self._values, width, height, max(seen, default=0.0))), no_wrap=True)


def gauge(part: float | None, width: int) -> str:
    """A share of one as a bar of ``width`` characters; dots if it is not known."""
    if part is None or part != part:
        return "·" * width
    filled = round(max(0.0, min(1.0, part)) * width)
    return "█" * filled + "░" * (width - filled)
