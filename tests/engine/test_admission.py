import pytest

from millstream.engine.admission import check_request
from millstream.engine.protocol import SamplingParams, TokenRequest


def request(max_tokens: int, **options: str) -> TokenRequest:
    return TokenRequest(id="a", prompt=[1], sampling=SamplingParams(), max_tokens=max_tokens, **options)  # type: ignore[arg-type]


def test_only_a_pooled_request_may_generate_nothing() -> None:
    check_request(request(0, pooling="mean"), vocab_size=10)
    with pytest.raises(ValueError, match="max_tokens must be between 1"):
        check_request(request(0), vocab_size=10)


def test_ids_outside_the_vocabulary_are_named() -> None:
    with pytest.raises(ValueError, match="prompt has a token outside the vocabulary of 1"):
        check_request(request(1), vocab_size=1)
