"""Attention weights of one sentence and its translation: computed, pooled, searched for a word pair, written as JSON.

Shapes: Y layers, H heads, S source, T target, R rows (queries), C columns (keys), G groups of tokens.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product

import torch
from torch import Tensor

from transformer_cli.addons.attention_maps.keys import AttentionKind
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import CheckpointError
from transformer_cli.models.transformer import Transformer

MAX_TOKENS_SHOWN = 60  # tokens a side; more would not be legible
_WORD_START = "▁"  # SentencePiece's mark of a word boundary
SPECIAL_TOKENS = ("<s>", "</s>")  # no text is encoded as these
OMITTED = f"{_WORD_START}…"  # label of the tokens that a picture leaves out
_BYTES = re.compile("(?:<0x[0-9A-F]{2}>)+")  # SentencePiece's byte fallback


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights of every layer and head for one sentence and its translation.

    Rows (queries) and columns (keys) of encoder self-attention are the source tokens, those of decoder self-attention
    the decoder's input tokens. Rows of cross-attention are the predicted tokens, its columns the source tokens.
    """

    source: list[str]  # S source tokens as SentencePiece writes them: ▁ begins a word; </s> at the end
    read: list[str]  # T input tokens of the decoder, by position: <s>, y1, …
    written: list[str]  # T tokens that it predicts, by position: y1, …, </s>
    encoder_YHSS: Tensor  # float32 on the CPU; each row sums to 1
    decoder_YHTT: Tensor  # Y is 0 where the decoder is recurrent
    cross_YHTS: Tensor
    source_text: str
    translation: str
    model: str  # title of a picture: name of the run or file, and languages
    notes: list[str]  # shown on the picture: tokens left out, forced translation, subwords merged, …


LABEL_SIDES = {  # fields of AttentionMaps that label the rows and the columns of each kind
    AttentionKind.encoder: ("source", "source"),
    AttentionKind.decoder: ("read", "read"),
    AttentionKind.cross: ("written", "source"),
}


@dataclass(frozen=True)
class View:
    """One kind of attention, with the labels of its rows and columns."""

    weights_YHRC: Tensor
    rows: list[str]
    columns: list[str]


def view(maps: AttentionMaps, kind: AttentionKind) -> View:
    rows, columns = (getattr(maps, side) for side in LABEL_SIDES[kind])
    weights = {
        AttentionKind.encoder: maps.encoder_YHSS,
        AttentionKind.decoder: maps.decoder_YHTT,
        AttentionKind.cross: maps.cross_YHTS,
    }
    return View(weights[kind], rows, columns)


def strongest_heads(shown: View, *, is_self: bool) -> tuple[int, list[list[int]]]:
    """The layer with the strongest links, and the one or two heads of each layer that have them, from 0.

    The strength of a head is the mean, over the words of the rows, of the largest weight that each gives to a word.
    Tokens without a letter or digit do not count, on which heads without a task rest, nor, in self-attention, a token
    itself and those beside it, to which some heads of every model attend by position. A second head of a layer is
    named if it has half the strength of the first. Without layers, as in a recurrent decoder, it is layer 0.
    """
    weights_YHRC = shown.weights_YHRC
    row_R, column_C = (torch.tensor([_is_word(token) for token in side]) for side in (shown.rows, shown.columns))
    counts_RC = row_R[:, None] & column_C
    if is_self:
        position = torch.arange(len(shown.rows))
        counts_RC &= (position[:, None] - position).abs() > 1
    strength_YH = (weights_YHRC * counts_RC).amax(dim=-1).sum(dim=-1)
    heads = []
    for strength_H in strength_YH:
        first, *others = strength_H.argsort(descending=True, stable=True).tolist()
        heads.append(sorted([first, *[head for head in others[:1] if strength_H[head] >= strength_H[first] / 2]]))
    return int(strength_YH.amax(dim=-1).argmax()) if heads else 0, heads


def _is_word(token: str) -> bool:
    return token not in (*SPECIAL_TOKENS, OMITTED) and any(letter.isalnum() for letter in token)


@torch.inference_mode()
def compute_attention_maps(
    model: Transformer,
    tokenizers: Tokenizers,
    source_ids: Sequence[int],
    target_ids: Sequence[int],
    *,
    name: str,
    notes: Sequence[str] = (),
    finished: bool = True,
) -> AttentionMaps:
    """Attention weights of `model` in one forward pass over a source and a target, both given without BOS and EOS.

    `finished`: the target ends with EOS. Raises CheckpointError if a weight is NaN or infinite.
    """
    source, target = tokenizers.source, tokenizers.target
    source_in = [*source_ids, *source.end_ids]
    written = [*target_ids, target.eos_id] if finished else list(target_ids)
    target_in = [target.bos_id, *written[:-1]]
    device = next(model.parameters()).device
    found = model.attention_weights(torch.tensor([source_in], device=device), torch.tensor([target_in], device=device))
    weights = {kind: torch.stack([layer_BHRC[0] for layer_BHRC in layers]) for kind, layers in found.items() if layers}
    if "decoder" not in weights:  # it is recurrent
        cross_YHTS, n_target = weights["cross"], len(target_in)
        weights["decoder"] = cross_YHTS.new_empty(0, cross_YHTS.size(1), n_target, n_target)
    if not all(x_YHRC.isfinite().all() for x_YHRC in weights.values()):
        raise CheckpointError(
            "the model: its attention weights are not numbers (NaN or infinite). Its training diverged or its file is"
            " damaged: use an earlier checkpoint"
        )
    return AttentionMaps(
        source=source.pieces(source_in),
        read=target.pieces(target_in),
        written=target.pieces(written),
        encoder_YHSS=weights["encoder"].float().cpu(),
        decoder_YHTT=weights["decoder"].float().cpu(),
        cross_YHTS=weights["cross"].float().cpu(),
        source_text=source.decode(source_ids),
        translation=target.decode(target_ids),
        model=name,
        notes=list(notes),
    )


# ---- Pooling: fewer rows and columns


def merge_subwords(maps: AttentionMaps) -> AttentionMaps:
    """Attention between words: each word is the group of its subwords."""
    read, written, source = (_word_groups(labels) for labels in (maps.read, maps.written, maps.source))
    return _pool(maps, source, read, written, label=_merge_labels, note="subwords merged into words")


def _word_groups(labels: Sequence[str]) -> list[range]:
    """The tokens of each word. A word begins with SentencePiece's mark; <s> and </s> are words of their own."""
    starts = [
        i
        for i, label in enumerate(labels)
        if i == 0 or label.startswith(_WORD_START) or label in SPECIAL_TOKENS or labels[i - 1] in SPECIAL_TOKENS
    ]
    return [range(start, end) for start, end in pairwise([*starts, len(labels)])]


def shorten(maps: AttentionMaps, max_tokens: int = MAX_TOKENS_SHOWN) -> AttentionMaps:
    """Attention maps of at most `max_tokens` tokens a side: longer ones keep the first tokens and the last one.

    The omitted tokens are one group: its column is the sum of theirs, its row their mean.
    """
    notes = [
        f"of {len(labels)} {side} tokens the first {max_tokens - 2} and the last are shown, the others as one: …"
        for side, labels in (("source", maps.source), ("target", max(maps.read, maps.written, key=len)))
        if len(labels) > max_tokens
    ]
    if not notes:
        return maps
    groups = (_first_and_last(len(labels), max_tokens) for labels in (maps.source, maps.read, maps.written))
    return _pool(maps, *groups, label=_one_or_omitted, note="; ".join(notes))


def _first_and_last(n: int, max_tokens: int) -> list[range]:
    alone = [range(i, i + 1) for i in range(n)]
    return alone if n <= max_tokens else [*alone[: max_tokens - 2], range(max_tokens - 2, n - 1), alone[-1]]


def _pool(
    maps: AttentionMaps,
    source: Sequence[range],
    read: Sequence[range],
    written: Sequence[range],
    *,
    label: Callable[[Sequence[str]], str],
    note: str,
) -> AttentionMaps:
    """Sum over the columns and mean over the rows of each group, so that every row still sums to 1."""
    return replace(
        maps,
        source=[label(maps.source[group.start : group.stop]) for group in source],
        read=[label(maps.read[group.start : group.stop]) for group in read],
        written=[label(maps.written[group.start : group.stop]) for group in written],
        encoder_YHSS=_pooled_weights(maps.encoder_YHSS, source, source),
        decoder_YHTT=_pooled_weights(maps.decoder_YHTT, read, read),
        cross_YHTS=_pooled_weights(maps.cross_YHTS, written, source),
        notes=[*maps.notes, note],
    )


def _merge_labels(pieces: Sequence[str]) -> str:
    return _BYTES.sub(
        lambda match: bytes.fromhex(re.sub("<0x|>", "", match[0])).decode(errors="replace"), "".join(pieces)
    )


def _one_or_omitted(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else OMITTED


def _pooled_weights(weights_YHRC: Tensor, rows: Sequence[range], columns: Sequence[range]) -> Tensor:
    added_YHRG = torch.stack([weights_YHRC[..., group.start : group.stop].double().sum(-1) for group in columns], -1)
    return torch.stack([added_YHRG[:, :, group.start : group.stop].mean(2) for group in rows], 2).float()


# ---- The head that links two words


@dataclass(frozen=True)
class Link:
    """The attention weight from one word to another, in the head where it is largest."""

    kind: AttentionKind
    layer: int  # from 1, as `head`
    head: int
    weight: float  # sum over the subwords of the other word, mean over those of the first
    uniform: float  # the weight under uniform attention
    n_heads: int  # that were compared

    def __str__(self) -> str:
        return (
            f"{self.kind.name} layer {self.layer} head {self.head}: {self.weight:.3f} of its attention,"
            f" {self.weight / self.uniform:.1f} times an even spread ({self.uniform:.3f});"
            f" the most of {self.n_heads} heads"
        )


def strongest_links(maps: AttentionMaps, word: str, other: str) -> list[Link]:
    """The head of each kind of attention in which `word` attends most to `other`, strongest first.

    If a word occurs several times, the pair with the largest weight counts. Decoder self-attention is causal.
    """
    found = []
    for kind in AttentionKind:
        selected = view(maps, kind)
        if not len(selected.weights_YHRC):
            continue
        pairs = product(find_word(selected.rows, word), find_word(selected.columns, other))
        links = [link for pair in pairs if (link := _strongest_head(selected.weights_YHRC, kind, *pair)) is not None]
        found += sorted(links, key=lambda link: -link.weight)[:1]
    return sorted(found, key=lambda link: -link.weight)


def _strongest_head(weights_YHRC: Tensor, kind: AttentionKind, rows: range, columns: range) -> Link | None:
    """None if the causal mask hides all of `columns`."""
    n_heads, n_columns = weights_YHRC.size(1), weights_YHRC.size(3)
    unmasked = [(row + 1 if kind is AttentionKind.decoder else n_columns) for row in rows]  # columns of each row
    uniform = sum(len([i for i in columns if i < n]) / n for n in unmasked) / len(rows)
    if uniform == 0:
        return None
    weight_YH = weights_YHRC[:, :, rows.start : rows.stop, columns.start : columns.stop].double().sum(-1).mean(-1)
    layer, head = divmod(int(weight_YH.argmax()), n_heads)
    return Link(kind, layer + 1, head + 1, float(weight_YH[layer, head]), uniform, weight_YH.numel())


def find_word(labels: Sequence[str], word: str) -> list[range]:
    """The tokens of each occurrence of `word` as a whole word, ignoring case."""
    text, owners = "", []
    for i, label in enumerate(labels):
        shown = " " if label in SPECIAL_TOKENS else label.replace(_WORD_START, " ")
        text += shown
        owners += [i] * len(shown)
    matches = re.finditer(rf"(?:(?<!\w)|(?=\W)){re.escape(word)}(?:(?!\w)|(?<=\W))", text, re.IGNORECASE)
    return [range(owners[match.start()], owners[match.end() - 1] + 1) for match in matches]


# ---- Labels and JSON


def readable_labels(labels: Sequence[str]) -> list[str]:
    """Tokens without SentencePiece's mark; a subword that continues a word begins with a dot instead."""
    found = []
    for i, label in enumerate(labels):
        continues = i > 0 and label[:1].isalnum() and labels[i - 1][-1:].isalnum()
        found.append(f"·{label}" if continues else label.removeprefix(_WORD_START) or label)
    return found


def to_json(maps: AttentionMaps) -> Iterator[str]:
    """All of `maps` as chunks of one JSON object, each weight as the shortest decimal of its float32."""
    texts_and_tokens = {
        "model": maps.model,
        "source_text": maps.source_text,
        "translation": maps.translation,
        "notes": maps.notes,
        "source": maps.source,
        "read": maps.read,
        "written": maps.written,
    }
    yield json.dumps(texts_and_tokens, ensure_ascii=False, indent=1).removesuffix("\n}")
    for kind, (rows, columns) in LABEL_SIDES.items():
        yield f',\n "{kind.name}": {{"rows": "{rows}", "columns": "{columns}", "weights": ['
        for y, layer_HRC in enumerate(view(maps, kind).weights_YHRC):
            for h, head_RC in enumerate(layer_HRC):
                yield ("" if h else ",\n  [" if y else "\n  [") + (",\n   [" if h else "[")
                texts = (",".join(row_C.astype(str)) for row_C in head_RC.numpy())
                yield ",\n    ".join(f"[{text}]" for text in texts) + "]"
            yield "]"
        yield "]}"
    yield "\n}\n"
