"""Drafts on the native core: whatever is proposed, tokens and log probabilities are those of plain decoding."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from millstream.engine.config import EngineConfig
from millstream.engine.core import EngineCore
from millstream.engine.loading import load_core
from millstream.engine.protocol import SamplingParams, TokenDelta, TokenRequest
from millstream.scheduler.sequence import Sequence
from support.tiny_models import build_tiny_model, vocab_size

SAMPLING = {
    "greedy": SamplingParams(temperature=0.0, logprobs=3),
    "drawn": SamplingParams(seed=7, logprobs=0),
    "filtered": SamplingParams(temperature=0.8, top_k=20, top_p=0.9, min_p=0.01, seed=3, logprobs=2),
    "penalised": SamplingParams(
        temperature=0.7, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.4, seed=5, logprobs=1
    ),
    "biased": SamplingParams(temperature=0.9, logit_bias={5: 3.0, 9: -100.0}, seed=11),
}


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> EngineCore:
    path: Path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    build_tiny_model(path)
    return load_core(EngineConfig(model_path=str(path), model_name="tiny", kv_bytes=1 << 22, max_sequences=4))[0]


def run(core: EngineCore, requests: list[TokenRequest]) -> dict[str, list[TokenDelta]]:
    deltas: dict[str, list[TokenDelta]] = {request.id: [] for request in requests}
    for request in requests:
        core.add(request)
    while core.has_work:
        for delta in core.step():
            assert delta.error is None
            deltas[delta.id].append(delta)
    return deltas


def joined(deltas: list[TokenDelta]) -> tuple[list[int], list[object], str | None]:
    tokens = [token for delta in deltas for token in delta.tokens]
    return tokens, [entry for delta in deltas for entry in delta.logprobs], deltas[-1].finish


@pytest.mark.parametrize("how", SAMPLING)
@pytest.mark.parametrize("right", [0.0, 0.7, 1.0])
def test_any_draft_gives_the_bits_of_plain_decoding(
    core: EngineCore, how: str, right: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drafts are taken from the known answer, each token of it right with some probability."""
    chance = random.Random(how + str(right))
    requests = [
        TokenRequest(
            id=str(k),
            prompt=[(7 * j + k) % vocab_size() for j in range(20 + k)],
            sampling=SAMPLING[how],
            max_tokens=60,
            min_tokens=10,
            choice=k,
        )
        for k in range(3)
    ]
    plain = {
        name: joined(deltas) for name, deltas in run(core, [replace(r, speculation=False) for r in requests]).items()
    }
    # A token that comes early would end the answer if min_tokens did not hold; a later one ends it inside a draft.
    stops = {name: (tokens[3], tokens[40]) for name, (tokens, _, _) in plain.items()}
    requests = [replace(request, stop_ids=stops[request.id]) for request in requests]
    plain = {
        name: joined(deltas) for name, deltas in run(core, [replace(r, speculation=False) for r in requests]).items()
    }

    def draft(sequence: Sequence, most: int, sequences: int) -> list[int]:
        if not sequence.request.speculation:
            return []
        coming = plain[sequence.id][0][sequence.output_length :][: chance.randint(0, max(most, 0))]
        return [token if chance.random() < right else (token + 1) % vocab_size() for token in coming]

    monkeypatch.setattr(Sequence, "draft", draft)
    before = core.stats()
    found = {name: joined(deltas) for name, deltas in run(core, requests).items()}
    assert found == plain
    after = core.stats()
    assert after.draft_tokens > before.draft_tokens
    assert (after.accepted_tokens > before.accepted_tokens) == (right > 0)


def test_a_sequence_under_a_grammar_is_not_drafted(core: EngineCore) -> None:
    request = TokenRequest(id="a", prompt=[1, 2, 3, 1, 2, 3], sampling=SamplingParams(), max_tokens=5)

    class Anything:
        finished = False
        error = None

    assert Sequence(request, 1).draft(2) == [1, 2]
    assert Sequence(request, 1, Anything()).draft(2) == []  # type: ignore[arg-type]
    assert Sequence(replace(request, speculation=False), 1).draft(2) == []
