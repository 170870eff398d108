"""The colours. Screens name them by role in CSS (`$success`); text in tables and logs, which has no CSS, by these."""

from __future__ import annotations

from typing import Final

from textual.theme import Theme

GOOD: Final = "#83cf8e"
BUSY: Final = "#5ec4b6"
WAITS: Final = "#e5b567"
BAD: Final = "#ef6f6c"
HELD: Final = "#c39ae0"

THEME = Theme(
    name="millstream",
    primary=BUSY,
    secondary="#7da6e0",
    accent=WAITS,
    success=GOOD,
    warning=WAITS,
    error=BAD,
    foreground="#d5dde1",
    background="#10161a",
    surface="#161e23",
    panel="#1f2a31",
    dark=True,
    variables={
        "scrollbar": "#3a4a54",
        "scrollbar-hover": "#5a6f7c",
        "scrollbar-active": BUSY,
        "scrollbar-background": "#161e23",
        "scrollbar-background-hover": "#161e23",
        "scrollbar-background-active": "#161e23",
        "footer-key-foreground": WAITS,
    },
)
