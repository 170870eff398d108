"""The files of tests that take longest. Parallel workers begin with them, so that none is left for the end."""

from __future__ import annotations

import pytest

HEAVY_FILES = (
    "docs/test_commands.py",
    "e2e/test_default_model.py",
    "native/test_emulated_levels.py",
    "engine/test_recovery.py",
    "engine/test_invariance.py",
    "tui/test_pages.py",
    "oracle/test_real.py",
    "engine/test_real_engine.py",
    "tui/test_snapshots.py",
    "e2e/test_default_scores.py",
    "web/test_page_access.py",
    "e2e/test_tools_everywhere.py",
    "web/test_history.py",
    "e2e/test_tools.py",
    "web/test_page_chat.py",
    "native/test_threads.py",
    "native/test_sampler.py",
    "cli/test_command.py",
    "e2e/test_default_embeddings.py",
    "models/test_parts.py",
    "models/test_tokenizer.py",
    "e2e/test_two_models.py",
    "soak/test_stalled.py",
    "cli/test_configuration.py",
    "cli/test_replay.py",
    "soak/test_soak.py",
    "engine/test_client.py",
    "cli/test_keys.py",
    "cli/test_fetch.py",
    "native/test_smollm2.py",
    "grammars/test_matcher.py",
    "server/test_truncation.py",
    "server/test_many_streams.py",
    "laws/test_surface_oracle.py",
    "surfaces/test_odd_values.py",
)
"""Below ``tests``, about by the processor time that they take: those of more than some five seconds."""

_RANKS = {f"tests/{name}": rank for rank, name in enumerate(HEAVY_FILES)}


def heaviest_first(items: list[pytest.Item]) -> None:
    """Sort tests by their file: the heavy ones in the order of the list, then the others as they were."""
    items.sort(key=lambda item: _RANKS.get(item.nodeid.partition("::")[0], len(_RANKS)))
