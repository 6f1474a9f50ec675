"""Where a model looked while it translated one sentence, as it is drawn and written down.

Shapes: Y layers, H heads, S source, T target, R rows, which look, C columns, which are looked at, G groups of tokens.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from transformer_cli.config.commands import AttentionKind
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import CheckpointError
from transformer_cli.models.transformer import Transformer

LONGEST_PICTURE = 60  # tokens a side; more could not be read
WORD_START = "▁"  # SentencePiece's mark
ENDS = ("<s>", "</s>")  # what no text is encoded as
OTHERS = f"{WORD_START}…"  # label of the tokens that a picture has no room for
_BYTES = re.compile("(?:<0x[0-9A-F]{2}>)+")  # what SentencePiece writes a character with that is in no piece


@dataclass(frozen=True)
class Looks:
    """Where a model looked while it translated one sentence.

    Rows of the encoder's self-attention are source tokens, and so are its columns. Rows and columns of the decoder's
    are `read`. Rows of cross-attention are `written`, the position that writes a token; its columns are `source`.
    """

    source: list[str]  # S labels of source tokens, as SentencePiece writes them: ▁ begins a word; </s> at the end
    read: list[str]  # T labels of what the decoder reads at each position: <s>, y1, …
    written: list[str]  # T labels of what it writes at each position: y1, …, </s>
    encoder_YHSS: Tensor  # float32 on the CPU; each row sums to 1
    decoder_YHTT: Tensor
    cross_YHTS: Tensor
    source_text: str
    translation: str
    model: str  # what a picture calls the model: name of run or file, and languages
    notes: list[str]  # said on the picture: what was cut, whether the translation was given, words joined, …


SIDES = {  # what the rows and the columns of each kind are: fields of Looks
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


def view(looks: Looks, kind: AttentionKind) -> View:
    rows, columns = (getattr(looks, side) for side in SIDES[kind])
    weights = {
        AttentionKind.encoder: looks.encoder_YHSS,
        AttentionKind.decoder: looks.decoder_YHTT,
        AttentionKind.cross: looks.cross_YHTS,
    }
    return View(weights[kind], rows, columns)


@torch.inference_mode()
def look(
    model: Transformer,
    tokenizers: Tokenizers,
    source_ids: Sequence[int],
    target_ids: Sequence[int],
    *,
    name: str,
    notes: Sequence[str] = (),
    finished: bool = True,
) -> Looks:
    """Where `model` looks when it reads the one and writes the other, both given without BOS and EOS.

    Without `finished` it does not write an EOS. Raises CheckpointError where it finds no numbers.
    """
    source, target = tokenizers.source, tokenizers.target
    heard = [*source_ids, source.eos_id]
    written = [*target_ids, target.eos_id] if finished else list(target_ids)
    target_in = [target.bos_id, *written[:-1]]
    device = next(model.parameters()).device
    found = model.attention_weights(torch.tensor([heard], device=device), torch.tensor([target_in], device=device))
    weights = {kind: torch.stack([layer_BHRC[0] for layer_BHRC in layers]) for kind, layers in found.items()}
    if not all(x_YHRC.isfinite().all() for x_YHRC in weights.values()):
        raise CheckpointError(
            "the model: its attention is not numbers (NaN or infinite). Its training diverged or its file is damaged:"
            " use an earlier checkpoint"
        )
    return Looks(
        source=source.pieces(heard),
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


# ---- Fewer rows and columns


def joined(looks: Looks) -> Looks:
    """With words for their pieces."""
    read, written, source = (_words(labels) for labels in (looks.read, looks.written, looks.source))
    return _grouped(looks, source, read, written, label=_word, note="pieces joined into words")


def _words(labels: Sequence[str]) -> list[range]:
    """The tokens of each word. A word begins with SentencePiece's mark; <s> and </s> stand for themselves."""
    starts = [
        i
        for i, label in enumerate(labels)
        if i == 0 or label.startswith(WORD_START) or label in ENDS or labels[i - 1] in ENDS
    ]
    return [range(start, end) for start, end in pairwise([*starts, len(labels)])]


def shortened(looks: Looks, longest: int = LONGEST_PICTURE) -> Looks:
    """With at most `longest` tokens a side: of more, those in the middle become one.

    It is looked at as much as all of them together, and looks as they do on average.
    """
    notes = [
        f"of {len(labels)} {side} tokens the first {longest - 2} and the last are shown, the others as one: …"
        for side, labels in (("source", looks.source), ("target", max(looks.read, looks.written, key=len)))
        if len(labels) > longest
    ]
    if not notes:
        return looks
    groups = (_beginning(len(labels), longest) for labels in (looks.source, looks.read, looks.written))
    return _grouped(looks, *groups, label=_one_or_others, note="; ".join(notes))


def _beginning(n: int, longest: int) -> list[range]:
    alone = [range(i, i + 1) for i in range(n)]
    return alone if n <= longest else [*alone[: longest - 2], range(longest - 2, n - 1), alone[-1]]


def _grouped(
    looks: Looks,
    source: Sequence[range],
    read: Sequence[range],
    written: Sequence[range],
    *,
    label: Callable[[Sequence[str]], str],
    note: str,
) -> Looks:
    """Columns of a group are added up, of its rows the mean is taken: what a row gives away is 1 as before."""
    return replace(
        looks,
        source=[label(looks.source[group.start : group.stop]) for group in source],
        read=[label(looks.read[group.start : group.stop]) for group in read],
        written=[label(looks.written[group.start : group.stop]) for group in written],
        encoder_YHSS=_gathered(looks.encoder_YHSS, source, source),
        decoder_YHTT=_gathered(looks.decoder_YHTT, read, read),
        cross_YHTS=_gathered(looks.cross_YHTS, written, source),
        notes=[*looks.notes, note],
    )


def _word(pieces: Sequence[str]) -> str:
    return _BYTES.sub(
        lambda match: bytes.fromhex(re.sub("<0x|>", "", match[0])).decode(errors="replace"), "".join(pieces)
    )


def _one_or_others(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else OTHERS


def _gathered(weights_YHRC: Tensor, rows: Sequence[range], columns: Sequence[range]) -> Tensor:
    added_YHRG = torch.stack([weights_YHRC[..., group.start : group.stop].double().sum(-1) for group in columns], -1)
    return torch.stack([added_YHRG[:, :, group.start : group.stop].mean(2) for group in rows], 2).float()


# ---- Who looks where


@dataclass(frozen=True)
class Link:
    """How much of its attention one word gives to another, in the head where that is most."""

    kind: AttentionKind
    layer: int  # from 1, as `head`
    head: int
    weight: float  # added up over the pieces of the other word, the mean over its own
    even: float  # what it would be if it looked everywhere alike
    n_heads: int  # in which it was looked for

    def __str__(self) -> str:
        return (
            f"{self.kind.name} layer {self.layer} head {self.head}: {self.weight:.3f} of its attention,"
            f" {self.weight / self.even:.1f} times an even spread ({self.even:.3f}); the most of {self.n_heads} heads"
        )


def strongest_links(looks: Looks, word: str, other: str) -> list[Link]:
    """For each kind of attention that has both words, the head where `word` looks most at `other`; strongest first.

    Where they stand several times it is the pair that has most. The decoder does not see what it writes later.
    """
    found = []
    for kind in AttentionKind:
        seen = view(looks, kind)
        pairs = [(rows, columns) for rows in spans(seen.rows, word) for columns in spans(seen.columns, other)]
        links = [link for pair in pairs if (link := _link(seen.weights_YHRC, kind, *pair)) is not None]
        found += sorted(links, key=lambda link: -link.weight)[:1]
    return sorted(found, key=lambda link: -link.weight)


def _link(weights_YHRC: Tensor, kind: AttentionKind, rows: range, columns: range) -> Link | None:
    """None where nothing of `columns` is there to be looked at."""
    n_heads, n_columns = weights_YHRC.size(1), weights_YHRC.size(3)
    of_row = [(row + 1 if kind is AttentionKind.decoder else n_columns) for row in rows]  # columns that it may look at
    even = sum(len([i for i in columns if i < n]) / n for n in of_row) / len(rows)
    if even == 0:
        return None
    given_YH = weights_YHRC[:, :, rows.start : rows.stop, columns.start : columns.stop].double().sum(-1).mean(-1)
    layer, head = divmod(int(given_YH.argmax()), n_heads)
    return Link(kind, layer + 1, head + 1, float(given_YH[layer, head]), even, given_YH.numel())


def spans(labels: Sequence[str], word: str) -> list[range]:
    """The tokens of `word` wherever it stands as a word, whatever is a capital and whatever stands beside it."""
    text, owners = "", []
    for i, label in enumerate(labels):
        shown = " " if label in ENDS else label.replace(WORD_START, " ")
        text += shown
        owners += [i] * len(shown)
    matches = re.finditer(rf"(?:(?<!\w)|(?=\W)){re.escape(word)}(?:(?!\w)|(?<=\W))", text, re.IGNORECASE)
    return [range(owners[match.start()], owners[match.end() - 1] + 1) for match in matches]


# ---- Labels and numbers for others


def readable(labels: Sequence[str]) -> list[str]:
    """Words without SentencePiece's mark; a piece that goes on with a word begins with a dot instead."""
    found = []
    for i, label in enumerate(labels):
        goes_on = i > 0 and label[:1].isalnum() and labels[i - 1][-1:].isalnum()
        found.append(f"·{label}" if goes_on else label.removeprefix(WORD_START) or label)
    return found


def to_json(looks: Looks) -> Iterator[str]:
    """Pieces of a JSON object with all that `looks` holds, a row of weights each: float32 as its shortest decimals."""
    facts = {
        "model": looks.model,
        "source_text": looks.source_text,
        "translation": looks.translation,
        "notes": looks.notes,
        "source": looks.source,
        "read": looks.read,
        "written": looks.written,
    }
    yield json.dumps(facts, ensure_ascii=False, indent=1).removesuffix("\n}")
    for kind, (rows, columns) in SIDES.items():
        yield f',\n "{kind.name}": {{"rows": "{rows}", "columns": "{columns}", "weights": ['
        for y, layer_HRC in enumerate(view(looks, kind).weights_YHRC):
            for h, head_RC in enumerate(layer_HRC):
                yield ("" if h else ",\n  [" if y else "\n  [") + (",\n   [" if h else "[")
                texts = (",".join(row_C.astype(str)) for row_C in head_RC.numpy())
                yield ",\n    ".join(f"[{text}]" for text in texts) + "]"
            yield "]"
        yield "]}"
    yield "\n}\n"
