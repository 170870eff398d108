"""Token ids to text, character by character exact: one per choice."""

from __future__ import annotations

import codecs

from millstream.parsing.tokens import TokenTable

_new_decoder = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """Text as soon as it is certain.

    The bytes of a character that is not complete yet are held back; bytes that cannot become part of a valid character
    any more turn into U+FFFD at once, as ``bytes.decode("utf-8", "replace")`` of the whole would have it.
    """

    __slots__ = ("_decoder", "_partial", "_table")

    def __init__(self, table: TokenTable, held: bytes = b"") -> None:
        """``held``: the beginning of a character that the first token may complete."""
        self._table = table
        self._decoder = _new_decoder("replace")
        self._decoder.decode(held)
        self._partial = bool(held)

    def push(self, token_id: int) -> tuple[str, bool]:
        """The text that became certain with this token, and whether the token is a control token. That text stands
        before the control token: a character that it interrupts can never be completed."""
        piece = self._table[token_id]
        if not self._partial and type(piece) is str:
            return piece, False
        if piece is None:
            return self.flush(), True
        raw = piece.encode() if isinstance(piece, str) else piece
        text = self._decoder.decode(raw)
        held = self._decoder.getstate()[0]
        self._partial = bool(held)
        # Python's decoder waits for the third byte of a surrogate, which no valid text has.
        if len(held) == 2 and held[0] == 0xED and held[1] >= 0xA0:
            text += self.flush()
        return text, False

    def flush(self) -> str:
        """The end of the text: U+FFFD if a character was cut, else nothing."""
        if not self._partial:
            return ""
        self._partial = False
        text = self._decoder.decode(b"", True)
        self._decoder.reset()
        return text
