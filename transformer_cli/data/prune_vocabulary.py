"""A vocabulary without the pieces that a text does not use, by which that text is cut as before.

A multilingual model has embeddings for a quarter of a million pieces, of which a translator for three languages needs
a tenth. SentencePiece cuts a text in the same way without the others. A unigram model takes the best of all
segmentations, which is still there. A BPE model joins two pieces again and again, each time those of the best score, so
that all it makes on the way is a part of a piece of the result: parts of used pieces stay. So do control symbols,
bytes, and the characters of all scripts that the text uses: other text of these languages is cut into shorter pieces,
but not unknown.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import islice

from transformer_cli.data.extend_vocabulary import have_one_vocabulary, script_of
from transformer_cli.data.packed_tokenizer import PackedTokenizer, Segmenter, is_code
from transformer_cli.data.readers.base import Pair
from transformer_cli.data.sentencepiece_model import SPACE, PieceKind, read_pieces, without_pieces
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.errors import ConfigError

_PAIRS_AT_A_TIME = 10_000


def pruned_tokenizers(tokenizers: Tokenizers, pairs: Iterable[Pair], languages: Collection[str]) -> Tokenizers:
    """Tokenizers with the pieces that a text needs; of tokens that name a language, those of `languages` stay.

    Raises ConfigError for a tokenizer that is not SentencePiece's.
    """
    source, target = tokenizers.source, tokenizers.target
    used: tuple[set[str], set[str]] = (set(), set())
    for part in _parts(pairs):
        for tokenizer, lines, found in zip((source, target), zip(*part, strict=True), used, strict=True):
            ids = {i for line in tokenizer.encode(lines, as_written=True) for i in line}
            found.update(tokenizer.pieces(ids))
    if have_one_vocabulary(tokenizers):
        used = (used[0] | used[1],) * 2
    new_source = _pruned(source, used[0], languages)
    new_target = new_source if tokenizers.joint else _pruned(target, used[1], languages)
    return replace(tokenizers, source=new_source, target=new_target)


def _parts(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    rest = iter(pairs)
    return iter(lambda: list(islice(rest, _PAIRS_AT_A_TIME)), [])


def _pruned(tokenizer: Tokenizer, used: Collection[str], languages: Collection[str]) -> Tokenizer:
    if tokenizer.sentencepiece is None:
        raise ConfigError(
            "init.keep_languages: the model's tokenizer is not SentencePiece's; only of its vocabularies pieces can be"
            " left out. Leave the key out"
        )
    pieces = read_pieces(tokenizer.sentencepiece)
    needed = _needed({name for name, _, kind in pieces if kind == PieceKind.normal}, used)
    dropped = {name for name, _, kind in pieces if kind in (PieceKind.normal, PieceKind.unused)} - needed
    model = without_pieces(tokenizer.sentencepiece, dropped)
    if tokenizer.packed is None:
        return Tokenizer(model)
    return Tokenizer(_pruned_packed(tokenizer.packed, model, needed, languages).to_bytes())


def _needed(names: Collection[str], used: Collection[str]) -> set[str]:
    """The pieces of `names` that a text needs which is cut into `used`."""
    parts = {piece[i:j] for piece in used for i in range(len(piece)) for j in range(i + 1, len(piece) + 1)}
    scripts = {script_of(character) for piece in used for character in piece} | {"", "digit"}
    letters = {name for name in names if len(text := name.removeprefix(SPACE)) == 1 and script_of(text) in scripts}
    return (parts | letters | {SPACE}) & set(names)


def _pruned_packed(
    packed: PackedTokenizer, model: bytes, needed: Collection[str], languages: Collection[str]
) -> PackedTokenizer:
    assert packed.segmenter is Segmenter.sentencepiece
    kept_languages = [piece for piece in packed.languages if piece.strip("_") in languages]
    special = {packed.pieces[i] for i in (packed.pad, packed.unk, packed.bos, packed.eos)}
    special |= {*packed.whole, *packed.prefix, *packed.hidden, *kept_languages}
    special |= {name for name, _, kind in read_pieces(model) if kind != PieceKind.normal}
    kept = [i for i, piece in enumerate(packed.pieces) if piece in needed or piece in special or is_code(piece)]
    ids = {old: new for new, old in enumerate(kept)}
    return replace(
        packed,
        model=model,
        pieces=[packed.pieces[i] for i in kept],
        languages=kept_languages,
        pad=ids[packed.pad],
        unk=ids[packed.unk],
        bos=ids[packed.bos],
        eos=ids[packed.eos],
    )
