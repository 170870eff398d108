"""How many threads a model has in a test."""

from __future__ import annotations

import os

THREADS = 1 if "PYTEST_XDIST_WORKER" in os.environ else 0
"""0: one for each processor. Beside another worker's tests they would share processors, and take a third more processor
time for the same bits. The tests of batch invariance and of the documentation's commands have as
many as a user has."""
