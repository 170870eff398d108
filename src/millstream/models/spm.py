"""SentencePiece vocabularies as byte-pair merges."""

from __future__ import annotations

from millstream.models.vocabulary import NORMAL, USER_DEFINED, Vocabulary


def derive_merges(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """The merges that lead to every piece, best score first.

    SentencePiece joins the adjacent pair whose joined piece has the best score. The same as ranked merges: every way to
    cut a piece into two pieces is a merge with the rank of the piece (as Transformers converts such vocabularies); ways
    to cut the same piece are ranked by the length of the left part, longest first.
    """
    texts, kinds, scores = vocabulary.texts, vocabulary.kinds, vocabulary.scores
    usable = [i for i, kind in enumerate(kinds) if kind in (NORMAL, USER_DEFINED)]
    pieces = {texts[i] for i in usable}
    usable.sort(key=scores.__getitem__, reverse=True)
    # One comprehension: with a vocabulary of 262,144 pieces this is most of the time a tokenizer takes to build.
    return [
        (piece[:cut], piece[cut:])
        for piece in map(texts.__getitem__, usable)
        for cut in range(len(piece) - 1, 0, -1)
        if piece[cut:] in pieces and piece[:cut] in pieces
    ]
