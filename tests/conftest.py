"""Settings of the whole suite."""

from __future__ import annotations

import signal

from hypothesis import settings

from support.other_core import use_other_core

use_other_core()

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # Shells start what runs in the background so, and processes that are started from here would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: a busy machine is no reason to fail.
settings.register_profile("millstream", deadline=None, max_examples=100)
settings.load_profile("millstream")
