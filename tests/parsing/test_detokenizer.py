from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from support.reference import certain, decoded
from support.scripted_model import BOS, EOS, PIECES, THINK, VOCAB_SIZE, TinyTokenizer
from support.strategies import bytes_id, tokens

from millstream.parsing.detokenizer import Detokenizer
from millstream.parsing.tokens import TokenTable

TABLE = TokenTable(TinyTokenizer())


@given(tokens())
def test_text_comes_as_soon_as_it_is_certain(ids: list[int]) -> None:
    detokenizer = Detokenizer(TABLE)
    out = [(char, count) for count, one in enumerate(ids, 1) for char in detokenizer.push(one)[0]]
    out += [(char, len(ids)) for char in detokenizer.flush()]
    assert out == decoded(ids)
    assert detokenizer.flush() == ""


@given(tokens(ends=False).map(lambda ids: [one for one in ids if one < BOS]))
def test_whole_text_is_the_bytes_decoded_with_replacement(ids: list[int]) -> None:
    detokenizer = Detokenizer(TABLE)
    text = "".join(detokenizer.push(one)[0] for one in ids) + detokenizer.flush()
    assert text == b"".join(PIECES[one] for one in ids).decode("utf-8", "replace")


@given(st.text(max_size=12))
def test_valid_text_byte_by_byte_has_no_replacement_character(text: str) -> None:
    detokenizer = Detokenizer(TABLE)
    out = "".join(detokenizer.push(bytes_id(byte))[0] for byte in text.encode())
    assert out == text
    assert detokenizer.flush() == ""


@given(st.binary(max_size=12))
@example(b"\xed\xa0")
@example(b"\xf4\x90")
@example(b"\xe0\x80")
def test_only_what_can_still_become_a_character_is_held(raw: bytes) -> None:
    detokenizer = Detokenizer(TABLE)
    assert "".join(detokenizer.push(bytes_id(byte))[0] for byte in raw) == certain(raw)


def test_a_control_token_cuts_a_character() -> None:
    detokenizer = Detokenizer(TABLE)
    assert detokenizer.push(bytes_id(0xE2)) == ("", False)
    assert detokenizer.push(THINK) == ("\ufffd", True)
    assert detokenizer.push(bytes_id(0x61)) == ("a", False)


def test_end_tokens_and_unknown_ids_have_no_text() -> None:
    class Unmarked(TinyTokenizer):
        def is_special(self, token_id: int) -> bool:
            return False

    table = TokenTable(Unmarked())
    detokenizer = Detokenizer(table)
    assert detokenizer.push(EOS) == ("", True)
    assert detokenizer.push(VOCAB_SIZE + 7) == ("", True)
    assert table.name(EOS) == ("<eos>", b"<eos>")
    assert table.name(VOCAB_SIZE + 7) == ("", b"")
    assert table.name(bytes_id(0xE2)) == ("\ufffd", b"\xe2")
