"""What to measure: prompts of token ids, run together, for a fixed number of new tokens."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from millstream.bench.errors import BenchError
from millstream.ir.files import read_small

Count = Annotated[int, msgspec.Meta(ge=1)]
TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Prompt = Annotated[list[TokenId], msgspec.Meta(min_length=1)]
Sample = Annotated[list[Prompt], msgspec.Meta(min_length=1)]


_MOST_BYTES = 256 << 20


class Case(msgspec.Struct, frozen=True):
    """Each entry of ``reps`` is one sample: prompts that run at the same time, greedily, ignoring end of text.

    ``prefill`` measures prompt tokens per second up to the first new token, ``decode`` new tokens per second from when
    every sequence has its first, ``check`` nothing: its tokens are reported.
    """

    name: str
    kind: Literal["prefill", "decode", "check"]
    new_tokens: Count
    reps: list[Sample]

    @property
    def longest(self) -> int:
        """Positions of the longest sequence."""
        return max((len(prompt) for sample in self.reps for prompt in sample), default=0) + self.new_tokens

    @property
    def sequences(self) -> int:
        """Sequences of the largest sample."""
        return max((len(sample) for sample in self.reps), default=0)


class Plan(msgspec.Struct, frozen=True):
    """``models``: format to path, such as ``gguf_q4_1``. ``t0``: Unix time at which the process was started."""

    cases: list[Case]
    models: dict[str, str] = {}
    t0: float | None = None

    def kv_tokens(self, block_size: int) -> int:
        """Positions that the largest sample needs in whole blocks, with a block to spare for each sequence."""
        return max(
            (
                sum(-(-(len(prompt) + case.new_tokens) // block_size) + 1 for prompt in sample) * block_size
                for case in self.cases
                for sample in case.reps
            ),
            default=block_size,
        )


def read_plan(path: Path) -> Plan:
    """The plan in a JSON file. Raises `BenchError` if there is none or it is malformed."""
    try:
        plan = msgspec.json.decode(read_small(path, _MOST_BYTES), type=Plan)
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise BenchError(f"{path}: {error}") from None
    for name, times in Counter(case.name for case in plan.cases).items():
        if times > 1:
            raise BenchError(f"{path}: {times} cases have the name {name!r}; results are told apart by their names")
        if not name.isprintable():
            raise BenchError(f"{path}: the name of a case cannot be printed: {name!r}")
    for case in plan.cases:
        if case.kind == "decode" and case.new_tokens < 2:
            raise BenchError(
                f"{path}: the case {case.name!r} decodes, which begins after the first new token: new_tokens has to be "
                "at least 2"
            )
    return plan


def standard_plan(*, vocab_size: int, context_length: int, quick: bool = False) -> Plan:
    """Prefill of 128, 512 and 2048 tokens, decoding of 1 to 32 sequences after 128 tokens and of one after 2048.

    Cases longer than the context are left out. The prompts are random, the same in every run.
    """
    rng = random.Random(1000)
    new_tokens = 32 if quick else 64
    top = min(40_000, vocab_size)

    def prompts(count: int, length: int) -> list[list[int]]:
        return [[rng.randrange(top // 400, top) for _ in range(length)] for _ in range(count)]

    cases = []
    for length in (128, 512, 2048):
        repeats = 1 if quick else max(2, min(4, 1536 // length))
        cases.append(Case(f"pp{length}", "prefill", 1, [prompts(1, length) for _ in range(repeats)]))
    for count in (1, 4, 8, 16, 32):
        repeats = 2 if count <= 8 and not quick else 1
        cases.append(Case(f"tg x{count}", "decode", new_tokens, [prompts(count, 128) for _ in range(repeats)]))
    cases.append(Case("tg x1 @2048", "decode", new_tokens, [prompts(1, 2048)]))
    return Plan([case for case in cases if case.longest <= context_length])
