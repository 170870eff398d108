"""Settings of the whole suite."""

from __future__ import annotations

from hypothesis import settings

from support.other_core import use_other_core

use_other_core()

# No deadline: a busy machine is no reason to fail.
settings.register_profile("millstream", deadline=None, max_examples=100)
settings.load_profile("millstream")
