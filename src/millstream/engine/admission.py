"""What a request must be before it meets the arrays of a step: every number within the range of its array.

The API process checks its requests as well, with better words; this is for whatever else speaks the protocol, and so
that no request can stop a step that it shares with others.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from millstream.engine.protocol import SamplingParams, TokenRequest

MAX_LOGPROBS = 20
"""Most alternatives that a request may ask for per token."""

_MAX_UINT64 = 2**64 - 1
_MAX_UINT32 = 2**32 - 1
_MAX_INT32 = 2**31 - 1


def check_request(request: TokenRequest, vocab_size: int) -> None:
    """Raises ValueError that names what is out of range."""
    _check_ids("prompt", request.prompt, vocab_size)
    _check_ids("output", request.output, vocab_size)
    _check_ids("stop_ids", request.stop_ids, vocab_size)
    _within("max_tokens", request.max_tokens, 0 if request.only_read else 1, _MAX_INT32)
    if request.prompt_logprobs is not None:
        _within("prompt_logprobs", request.prompt_logprobs, 0, MAX_LOGPROBS)
    _within("scored", request.scored, 0, max(len(request.prompt) - 1, 0))
    _within("min_tokens", request.min_tokens, 0, _MAX_INT32)
    _within("choice", request.choice, 0, _MAX_UINT32)
    if request.thinking is not None:
        _check_ids("thinking", request.thinking.tokens, vocab_size)
        if not request.thinking.tokens or not request.thinking.close:
            raise ValueError("a budget for reasoning needs what closes it")
        if request.thinking.limit < 0:
            raise ValueError("a budget for reasoning cannot be negative")
    _check_sampling(request.sampling, vocab_size)


def _check_sampling(sampling: SamplingParams, vocab_size: int) -> None:
    _check_ids("logit_bias", sampling.logit_bias, vocab_size)
    for bias in sampling.logit_bias.values():
        if math.isnan(bias) or bias == math.inf:
            raise ValueError(f"a logit bias cannot be {bias}")
    _within("seed", sampling.seed, 0, _MAX_UINT64)
    _within("top_k", sampling.top_k, 0, _MAX_INT32)
    if sampling.logprobs is not None:
        _within("logprobs", sampling.logprobs, 0, MAX_LOGPROBS)
    for name in ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"):
        value = getattr(sampling, name)
        # What a float32 cannot hold becomes infinite, or stops the step with an OverflowError.
        if not (math.isfinite(value) and abs(value) < 1e30):
            raise ValueError(f"{name} cannot be {value}")
    if sampling.temperature < 0 or sampling.repetition_penalty <= 0:
        raise ValueError("temperature cannot be negative, and repetition_penalty must be above 0")


def _check_ids(name: str, ids: Collection[int], vocab_size: int) -> None:
    if ids and not (min(ids) >= 0 and max(ids) < vocab_size):
        raise ValueError(f"{name} has a token outside the vocabulary of {vocab_size}")


def _within(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} must be between {low} and {high}")
