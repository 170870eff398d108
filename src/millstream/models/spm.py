"""SentencePiece vocabularies as byte-pair merges."""

from __future__ import annotations

from millstream.models.vocabulary import CONTROL, NORMAL, USER_DEFINED, Vocabulary


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
    merges: list[tuple[str, str]] = []
    append = merges.append
    for i in usable:
        piece = texts[i]
        for cut in range(len(piece) - 1, 0, -1):
            left = piece[:cut]
            if left in pieces:
                right = piece[cut:]
                if right in pieces:
                    append((left, right))
    return merges


def added_kinds(vocabulary: Vocabulary) -> tuple[list[str], list[str]]:
    """Texts of the tokens that are cut out before the merges: (user-defined, control)."""
    pairs = list(zip(vocabulary.texts, vocabulary.kinds, strict=True))
    return [text for text, kind in pairs if kind == USER_DEFINED], [text for text, kind in pairs if kind == CONTROL]
