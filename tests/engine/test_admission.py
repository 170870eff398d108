import msgspec
import pytest

from millstream.engine.admission import check_request
from millstream.engine.protocol import SamplingParams, ThinkingBudget, TokenRequest


def request(max_tokens: int, **options: str | int) -> TokenRequest:
    return TokenRequest(id="a", prompt=[1], sampling=SamplingParams(), max_tokens=max_tokens, **options)  # type: ignore[arg-type]


def test_only_what_is_read_for_something_may_generate_nothing() -> None:
    check_request(request(0, pooling="mean"), vocab_size=10)
    check_request(request(0, prompt_logprobs=0), vocab_size=10)
    with pytest.raises(ValueError, match="max_tokens must be between 1"):
        check_request(request(0), vocab_size=10)


@pytest.mark.parametrize("fields", [{"prompt_logprobs": 21}, {"prompt_logprobs": -1}, {"scored": 1}, {"scored": -1}])
def test_scores_are_within_bounds(fields: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(fields))} must be between 0"):
        check_request(request(1, **fields), vocab_size=10)


def test_ids_outside_the_vocabulary_are_named() -> None:
    with pytest.raises(ValueError, match="prompt has a token outside the vocabulary of 1"):
        check_request(request(1), vocab_size=1)


@pytest.mark.parametrize(("limit", "close", "spelled"), [(-1, "x", [0]), (1, "", [0]), (1, "x", [])])
def test_a_budget_for_reasoning_has_a_size_and_an_end(limit: int, close: str, spelled: list[int]) -> None:
    asked = msgspec.structs.replace(request(1), thinking=ThinkingBudget(limit, close, spelled))
    with pytest.raises(ValueError, match="a budget for reasoning"):
        check_request(asked, vocab_size=10)
