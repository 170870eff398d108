"""Text to token ids and back, from the vocabulary in a GGUF file.

The merging is done by the tokenizers library. Two vocabularies exist in GGUF: byte-level BPE (``gpt2``) and
SentencePiece (``llama``). Control tokens in a text are recognised only on demand, so two views of one model are kept:
they share the vocabulary and the merges.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from tokenizers import AddedToken, Tokenizer, models, normalizers

from millstream.models.gguf import GGUFFile
from millstream.models.parts import PART, parts, word_ends
from millstream.models.pretokenizers import PRE_TOKENIZERS, PreTokenizer, build_normalizer, build_pre_tokenizer
from millstream.models.spm import derive_merges
from millstream.models.vocabulary import (
    BYTE,
    CONTROL,
    UNKNOWN,
    USER_DEFINED,
    TokenBytes,
    Vocabulary,
    byte_level_bytes,
    read_vocabulary,
    spm_bytes,
)


class GGUFTokenizer:
    """`millstream.models.interfaces.Tokenizer` over a GGUF file; the file may be closed afterwards.

    Raises:
        ModelFileError: the vocabulary is missing, damaged, or of a kind that is not supported.
    """

    def __init__(self, file: GGUFFile) -> None:
        vocabulary = read_vocabulary(file)
        kind = file.text("tokenizer.ggml.model")
        self._cuts_words = kind == "gpt2"
        if kind == "gpt2":
            rule = _pre_tokenizer_rule(file)
            add_bos, self._bytes = rule.add_bos, byte_level_bytes(vocabulary)
            self._plain = _byte_level(file, vocabulary, rule)
        elif kind == "llama":
            add_bos, self._bytes = True, _spm_bytes(file, vocabulary)
            self._plain = _sentencepiece(file, vocabulary)
        else:
            file.fail(f"has a tokenizer of kind {kind!r}, which is not supported; supported: gpt2, llama")
        self._marked = _view(self._plain)
        self._marked.add_tokens(_added(vocabulary, (CONTROL, UNKNOWN)))
        self._bos_id = vocabulary.bos_id
        self._eos_ids = vocabulary.eos_ids
        self._add_bos = self._bos_id is not None and file.flag("tokenizer.ggml.add_bos_token", add_bos)

    @property
    def vocab_size(self) -> int:
        return len(self._bytes)

    @property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end a turn."""
        return self._eos_ids

    @property
    def bos_id(self) -> int | None:
        return self._bos_id

    def encode(self, text: str, *, add_bos: bool = False, parse_special: bool = True) -> list[int]:
        """Ids of a text.

        ``add_bos``: begin with BOS if the model's own rule says so. A text that already begins with it (as most chat
        templates write it) gets no second one; this is the only place where BOS is added. Bytes that the vocabulary
        has no token for are left out, as the original tokenizers do (SmolLM2 lacks six control characters, and the
        lead bytes of planes 4 to 11).

        Raises:
            ApiError: 413; a stretch of the text is too long to be tokenised (`millstream.models.parts`).
        """
        tokenizer = self._marked if parse_special else self._plain
        try:
            ids = self._ids(tokenizer, text)
        except (TypeError, UnicodeEncodeError):  # lone surrogates, as JSON escapes can write them
            whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            ids = self._ids(tokenizer, whole)
        if add_bos and self._add_bos and self._bos_id is not None and ids[:1] != [self._bos_id]:
            ids.insert(0, self._bos_id)
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of a token. IndexError outside the vocabulary."""
        return self._bytes[token_id]

    def is_special(self, token_id: int) -> bool:
        """Whether the token is a control token (or one without meaning), never part of visible text."""
        return self._bytes.is_hidden(token_id)

    def _ids(self, tokenizer: Tokenizer, text: str) -> list[int]:
        if len(text) <= PART:
            return _ids(tokenizer, text)
        ids: list[int] = []
        for part in parts(text, self._word_ends):
            ids += _ids(tokenizer, part)
        return ids

    @cached_property
    def _word_ends(self) -> str:
        """Characters before which a long text may be divided; looked for when the first one comes."""
        added = [token.content for token in self._marked.get_added_tokens_decoder().values()]
        if self._cuts_words:
            return word_ends(added)
        model = self._plain.model
        if isinstance(self._plain.normalizer, normalizers.Sequence) or not model.byte_fallback:
            return ""  # each part would get a space before it, or what is unknown would not be joined across parts
        return word_ends([*added, *(text.replace("▁", " ") for text in self._plain.get_vocab())])


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    # A batch of one, because only batches let other threads run meanwhile.
    (encoding,) = tokenizer.encode_batch_fast([text], add_special_tokens=False)
    ids: list[int] = encoding.ids
    return ids


def _pre_tokenizer_rule(file: GGUFFile) -> PreTokenizer:
    name = file.text("tokenizer.ggml.pre", "default")
    rule = PRE_TOKENIZERS.get(name)
    if rule is None:
        file.fail(
            f"needs the pre-tokenizer {name!r}, which is not supported; supported: {', '.join(sorted(PRE_TOKENIZERS))}"
        )
    return rule


def _byte_level(file: GGUFFile, vocabulary: Vocabulary, rule: PreTokenizer) -> Tokenizer:
    try:
        pairs = (text.split(" ", 1) for text in file.strings("tokenizer.ggml.merges"))
        merges = [(left, right) for left, right in pairs]
    except ValueError:
        file.fail("tokenizer.ggml.merges has an entry that is not two tokens; get another conversion of the model")
    tokenizer = Tokenizer(_bpe(file, vocabulary, merges, ignore_merges=rule.ignore_merges))
    normalizer = build_normalizer(rule)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = build_pre_tokenizer(rule)
    tokenizer.add_tokens(_added(vocabulary, (USER_DEFINED,)))
    return tokenizer


def _sentencepiece(file: GGUFFile, vocabulary: Vocabulary) -> Tokenizer:
    if not vocabulary.scores:
        file.fail("metadata tokenizer.ggml.scores is missing; get another conversion of the model")
    unknown = None if vocabulary.unknown_id is None else vocabulary.texts[vocabulary.unknown_id]
    fallback = BYTE in vocabulary.kinds
    merges = derive_merges(vocabulary)
    tokenizer = Tokenizer(_bpe(file, vocabulary, merges, byte_fallback=fallback, fuse_unk=True, unk_token=unknown))
    spaces: normalizers.Normalizer = normalizers.Replace(" ", "▁")
    prefix = file.flag("tokenizer.ggml.add_space_prefix", True)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if prefix else spaces
    # SentencePiece finds user-defined pieces in normalised text; with a prefix, the prefix would become part of them.
    tokenizer.add_tokens(_added(vocabulary, (USER_DEFINED,), normalized=not prefix))
    return tokenizer


def _view(tokenizer: Tokenizer) -> Tokenizer:
    """Another tokenizer over the same vocabulary and merges, with the same added tokens."""
    view = Tokenizer(tokenizer.model)
    if tokenizer.normalizer is not None:
        view.normalizer = tokenizer.normalizer
    if tokenizer.pre_tokenizer is not None:
        view.pre_tokenizer = tokenizer.pre_tokenizer
    view.add_tokens([token for _, token in sorted(tokenizer.get_added_tokens_decoder().items())])
    return view


def _bpe(file: GGUFFile, vocabulary: Vocabulary, merges: list[tuple[str, str]], **options: Any) -> models.BPE:
    try:
        return models.BPE(vocab=vocabulary.ids, merges=merges, **options)
    except Exception as error:
        file.fail(f"the merges do not fit the vocabulary ({error}); get another conversion of the model")


def _spm_bytes(file: GGUFFile, vocabulary: Vocabulary) -> TokenBytes:
    try:
        return spm_bytes(vocabulary)
    except ValueError as error:
        file.fail(f"{error}; get another conversion of the model")


def _added(vocabulary: Vocabulary, kinds: tuple[int, ...], *, normalized: bool = False) -> list[AddedToken]:
    """Tokens that are cut out of a text before anything else."""
    return [
        AddedToken(text, normalized=normalized)
        for text, kind in zip(vocabulary.texts, vocabulary.kinds, strict=True)
        if kind in kinds
    ]
