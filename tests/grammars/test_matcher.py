"""Grammars over a vocabulary of bytes: what they allow, when they end, and that strangers' ones are bounded."""

from __future__ import annotations

import json
import random
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.grammars.matcher import (
    CACHED_BYTES,
    GRAMMAR_CHARACTERS,
    Compiler,
    GrammarError,
    Matcher,
    byte_compiler,
)

EOS, STOP, THINK = 256, 257, 258
TOKENS = [*(bytes([value]) for value in range(256)), b"<eos>", b"<stop>", b"<think>", b'{"', b"true"]


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(TOKENS, special_ids=[THINK], eos_ids=[EOS, STOP])


def of(schema: Any) -> str:
    return json.dumps({"grammars": [{"json_schema": schema}]})


def lark(text: str) -> str:
    return json.dumps({"grammars": [{"lark_grammar": text}]})


def allowed(matcher: Matcher, words: int = 9) -> set[int]:
    out = np.full(words, 0xFFFFFFFF, np.uint32)
    matcher.mask(out)
    return set(np.flatnonzero(np.unpackbits(out.view(np.uint8), bitorder="little")).tolist())


def test_only_what_fits_is_allowed_and_the_end_only_at_the_end(compiler: Compiler) -> None:
    matcher = compiler.matcher(of({"type": "boolean"}))
    assert allowed(matcher) == {ord("t"), ord("f"), TOKENS.index(b"true")}
    matcher = compiler.matcher(lark("start: /a+/"))
    assert allowed(matcher) == {ord("a")}
    matcher.advance(ord("a"))
    assert allowed(matcher) == {ord("a"), EOS, STOP}
    assert not matcher.finished
    assert matcher.error is None


def test_a_mask_may_be_longer_than_the_vocabulary(compiler: Compiler) -> None:
    assert allowed(compiler.matcher(lark('start: "a"')), words=40) == {ord("a")}


def test_it_is_finished_when_nothing_can_follow(compiler: Compiler) -> None:
    matcher = compiler.matcher(of({"const": {"a": 1}}))
    for byte in b'{"a":1':
        matcher.advance(byte)
    assert not matcher.finished
    matcher.advance(ord("}"))
    assert matcher.finished


def test_control_tokens_are_matched_by_id_alone(compiler: Compiler) -> None:
    assert allowed(compiler.matcher(lark(f"start: <[{THINK}]>"))) == {THINK}
    assert THINK not in allowed(compiler.matcher(lark("start: /(?s:.*)/")))


@given(st.lists(st.integers(0, 99), max_size=5))
def test_the_state_depends_on_the_tokens_alone(numbers: list[int]) -> None:
    compiler = Compiler(TOKENS, special_ids=[THINK], eos_ids=[EOS])
    grammar = of({"type": "array", "items": {"type": "integer"}})
    text = json.dumps(numbers).encode()
    walked = compiler.matcher(grammar)
    for at, byte in enumerate(text):
        resumed = compiler.matcher(grammar, list(text[:at]))
        assert byte in allowed(walked)
        assert allowed(resumed) == allowed(walked)
        walked.advance(byte)
    assert walked.finished


def test_a_forbidden_token_is_an_error_that_allows_nothing(compiler: Compiler) -> None:
    matcher = compiler.matcher(lark('start: "a"'))
    matcher.advance(ord("b"))
    assert matcher.error
    assert not matcher.finished
    assert allowed(matcher) == set()


def test_compiled_grammars_are_kept_within_a_bound() -> None:
    compiler = byte_compiler()
    first = of({"enum": [f"{number:06}" for number in range(2_000)]})
    long = [of({"enum": [f"{number}-{value:06}" for value in range(8_000)]}) for number in range(4)]
    for grammar in (first, *long):
        compiler.matcher(grammar)
        assert 0 < compiler.kept_bytes <= CACHED_BYTES
    assert (compiler.compiled, compiler.reused) == (5, 0)
    compiler.matcher(long[-1])
    compiler.matcher(long[-2])
    assert (compiler.compiled, compiler.reused) == (5, 2)
    compiler.matcher(first)  # the one that was used least recently
    assert (compiler.compiled, compiler.reused) == (6, 2)


def test_what_is_kept_is_kept_for_its_tenant(compiler: Compiler) -> None:
    grammar = of({"const": "a secret of A"})
    before = (compiler.compiled, compiler.reused)
    for tenant in ("A", "B", "A"):
        compiler.matcher(grammar, tenant=tenant)
    assert (compiler.compiled - before[0], compiler.reused - before[1]) == (2, 1)


FORCING = {
    "type": "object",
    "properties": {
        "true name": {"enum": ["trueman", "truest", "other"]},
        "size": {"const": {"true": [True, {"a": "true"}]}},
        "rest": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["true name", "size", "rest"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}
FORCING_LARK = r"""start: "abc" (/[xy]/ "true")* "true" <[258]> /é+/ "end" """


@given(st.sampled_from([of(FORCING), lark(FORCING_LARK)]), st.randoms(use_true_random=False))
def test_what_is_forced_is_all_that_the_mask_allows(compiler: Compiler, grammar: str, choose: random.Random) -> None:
    """And asking changes nothing."""
    asked, silent = compiler.matcher(grammar), compiler.matcher(grammar)
    found = 0
    while not silent.finished:
        token = asked.forced()
        choices = allowed(silent)
        assert allowed(asked) == choices
        if token is not None:
            found += 1
            assert choices == {token}
        following = choose.choice(sorted(choices))
        if following in (EOS, STOP):
            break
        asked.advance(following)
        silent.advance(following)
        assert asked.finished == silent.finished
    assert found > 5
    assert asked.error is None


def test_nothing_is_forced_at_the_end_or_after_an_error(compiler: Compiler) -> None:
    matcher = compiler.matcher(lark('start: "ab"'))
    assert matcher.forced() == ord("a")
    matcher.advance(ord("a"))
    matcher.advance(ord("b"))
    assert matcher.forced() is None
    wrong = compiler.matcher(lark('start: "ab"'), [ord("c")])
    assert wrong.forced() is None
    assert wrong.error


def chain(levels: int) -> dict[str, Any]:
    """Every level names the next."""
    defs: dict[str, Any] = {f"d{n}": {"items": {"$ref": f"#/$defs/d{n + 1}"}} for n in range(levels)}
    return {"$defs": {**defs, f"d{levels}": {"type": "integer"}}, "$ref": "#/$defs/d0"}


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def doubling(levels: int, keyword: str) -> dict[str, Any]:
    """Every level names the one below it twice: 2 ** levels if it is written out."""
    defs: dict[str, Any] = {"d0": {"type": "object", "properties": {"a": {"type": "integer"}}}}
    for level in range(1, levels):
        below = {"$ref": f"#/$defs/d{level - 1}"}
        other = {"type": "object", "properties": {f"x{level}": below}}
        defs[f"d{level}"] = {"allOf": [{keyword: [below, other]}, {keyword: [below, other]}]}
    return {"$defs": defs, "$ref": f"#/$defs/d{levels - 1}"}


HOSTILE: dict[str, Callable[[], dict[str, Any]]] = {
    "deep": lambda: deep(60),
    "deeper": lambda: deep(300),
    "chain": lambda: chain(5_000),
    "endless chain": lambda: chain(200_000),
    "wide": lambda: {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(20_000)}},
    "exponential anyOf": lambda: doubling(24, "anyOf"),
    "exponential oneOf": lambda: doubling(24, "oneOf"),
    "reference loop": lambda: {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    "itself": lambda: {"$ref": "#"},
    "recursive": lambda: {"type": "object", "properties": {"next": {"$ref": "#"}}},
    "endless string": lambda: {"type": "string", "minLength": 10**9},
    "endless array": lambda: {"type": "array", "items": {"type": "integer"}, "minItems": 10**9},
    "power of powers": lambda: {"type": "string", "pattern": "(a|b){1000}{1000}"},
    "long look-back": lambda: {"type": "string", "pattern": ".*a.{5000}"},
    "nested stars": lambda: {"type": "string", "pattern": "((a*)*)*b"},
    "enum": lambda: {"enum": [f"value {n}" for n in range(20_000)]},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_schemas_are_bounded_in_time_and_memory(name: str) -> None:
    """Whatever comes of it (most are refused), it takes seconds of one core at most, and little memory."""
    grammar = of(HOSTILE[name]())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.process_time()
    compiler = byte_compiler()
    with suppress(GrammarError):
        compiler.check(grammar)
        matcher = compiler.matcher(grammar)
        for _ in range(200):
            tokens = allowed(matcher, words=40)
            if not tokens or matcher.finished:
                break
            matcher.advance(max(tokens))
    assert time.process_time() - begun < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        (of({"type": "strnig"}), "Invalid type: strnig"),
        (of({"type": "string", "pattern": "("}), "unclosed group"),
        (of({"type": "string", "pattern": "(?=a)b"}), "look-around"),
        (of({"type": "integer", "minimum": 3, "maximum": 2}), "greater than maximum"),
        (of({"$ref": "http://example.com/x.json"}), "not present"),
        (of({"$ref": "#"}), "nothing satisfies it"),
        (of(False), "schema is false"),
        (of({"not": {}}), "not"),
        (lark("start: /(/"), "unclosed group"),
        (lark("start: missing"), "missing"),
        (lark("start: <[99999]>"), "99999"),
        (lark("{{{"), "expecting rule"),
        ("no JSON {", "Expected"),
        ('{"grammars": []}', "empty"),
        (lark("start: /\x00/") + "x", "trailing"),
    ],
)
def test_what_cannot_be_compiled_says_why_in_one_line(grammar: str, words: str) -> None:
    with pytest.raises(GrammarError) as caught:
        byte_compiler().check(grammar)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_check_knows_control_tokens_by_their_own_ids() -> None:
    compiler = byte_compiler([3, 700])
    compiler.check(lark("start: <[700]> <[3]>"))
    matcher = compiler.matcher(lark('start: <[700]> "ab" <[3]>'))
    assert allowed(matcher, words=22) == {700}


def test_a_vocabulary_without_an_end_holds_no_grammar() -> None:
    with pytest.raises(GrammarError, match="no token that ends"):
        Compiler([b"a"], special_ids=[], eos_ids=[])


def test_long_chains_of_rules_are_no_end_of_the_process() -> None:
    rules = "".join(f"r{n}:r{n + 1}\n" for n in range(15_000))
    grammar = lark(f'start: r0\n{rules}r15000: "x"')
    assert len(grammar) < GRAMMAR_CHARACTERS
    with suppress(GrammarError):
        byte_compiler().check(grammar)
    with pytest.raises(GrammarError, match="too long"):
        byte_compiler().check(lark("start: " + '"a" ' * 100_000))
