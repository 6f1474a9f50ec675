"""Models for Firefox's translation engine: students with recurrent decoders, in 8 bits with fixed activation scales.

Marian's names, vocabularies and container; see `intgemm`. The alphas are Marian's: 127 / (m + 1.1 s), where m and s are
mean and standard deviation of the largest activations of a product over greedy translations of some lines.

Shapes: S source, D width, V vocabulary.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
import yaml
from torch import Tensor, nn

from transformer_cli.addons.interop import marian
from transformer_cli.addons.interop.firefox_library import LEXICON, FirefoxFiles, FirefoxLibrary
from transformer_cli.addons.interop.firefox_search import EOS, FirefoxSearch, candidates_of
from transformer_cli.addons.interop.intgemm import (
    ALPHA,
    COLUMNS,
    INNER,
    OUTPUT,
    BinaryItem,
    alpha_as_int8,
    binary,
    float_item,
    int8_item,
    is_product,
    options_item,
    shortlist_file,
)
from transformer_cli.addons.interop.marian_names import OPTIONS, marian_options
from transformer_cli.addons.interop.marian_vocabulary import Written
from transformer_cli.addons.interop.parts import n_layers
from transformer_cli.addons.interop.text import protobuf_messages
from transformer_cli.addons.interop.weights import check_heads, refuse_option, with_wide_embeddings
from transformer_cli.config.model import Activation, Autoregression, ModelConfig, Tying
from transformer_cli.decoding.shortlist import Shortlist
from transformer_cli.errors import ConfigError
from transformer_cli.inference.incremental import TransformerDecoder
from transformer_cli.models.file import ModelFile
from transformer_cli.models.linear import Linear
from transformer_cli.models.transformer import Transformer
from transformer_cli.version import __version__

_INSTEAD = "Train with model=student_tiny norm=post"
CONFIG, INFO = "config.intgemm8bitalpha.yml", "model_info.json"
# Exp and sums of the engine are rounded in another way, which may change a choice between two logits that are as near.
NEAR_LOGITS = 0.1
FEWEST_IDENTICAL = 0.95  # of the lines, but for those with a near tie
_FEWEST_OF_ALL = 0.5  # near ties may be all that a line has: of a model of random weights, or in text that is none
_DEVIATIONS, _LEAST = 1.1, 1e-6
_FIRST = 8  # target ids that the shortlist always allows: EOS is one of them
_NEVER = -1e4  # bias of the entries that are no text

# The products that read the input of a module, by Marian's ending of the name.
_READS: Mapping[str, Sequence[str]] = {
    "encoder self_attention.to_qkv": ("self_Wq", "self_Wk", "self_Wv"),
    "encoder self_attention.to_out": ("self_Wo",),
    "decoder self_attention.to_input": ("rnn_W",),
    "decoder self_attention.to_forget": ("rnn_Wf",),
    "decoder cross_attention.to_q": ("context_Wq",),
    "decoder cross_attention.to_kv": ("context_Wk", "context_Wv"),
    "decoder cross_attention.to_out": ("context_Wo",),
    "encoder feed_forward.to_hidden": ("ffn_W1",),
    "encoder feed_forward.to_out": ("ffn_W2",),
    "decoder feed_forward.to_hidden": ("ffn_W1",),
    "decoder feed_forward.to_out": ("ffn_W2",),
}


def check(config: ModelConfig) -> None:
    """Raise ConfigError for what the engine does not have, or its kernels do not take."""
    if config.decoder is not Autoregression.ssru:
        why = "Firefox's engine has recurrent decoders alone"
        refuse_option("decoder", config.decoder.name, why, _INSTEAD)
    if config.activation is not Activation.relu:
        refuse_option("activation", config.activation.name, "Firefox's engine has relu", _INSTEAD)
    marian.check_kind(config)
    check_heads(config, "Firefox's engine", _INSTEAD)
    if config.tie_embeddings not in (Tying.three_way, Tying.decoder):
        why = "the output layer has the target's embedding there"
        refuse_option("tie_embeddings", config.tie_embeddings.name, why, "Train with three_way or decoder")
    for key in ("d_model", "d_ff"):
        if getattr(config, key) % INNER:
            why = f"no multiple of {INNER}, which its 8-bit products need"
            refuse_option(key, getattr(config, key), why, "Train with another width")


def write(model: ModelFile, folder: Path, lines: Sequence[str], shortlist: Shortlist | None) -> "Firefox":
    """Write the files of a model into an empty folder, and load them. Alphas are measured on `lines`."""
    check(model.config)
    pair = f"{model.source_lang}{model.target_lang}"
    alphas = activation_alphas(model, lines)
    model = with_wide_embeddings(model)
    vocabularies = tuple(_filled_up(one) for one in marian.vocabularies_of(model))
    for vocabulary in vocabularies:
        check_vocabulary(vocabulary)
        for name, content in vocabulary.files.items():
            (folder / name).write_bytes(content)
    model_file = f"model.{pair}.intgemm.alphas.bin"
    (folder / model_file).write_bytes(binary(list(_items(model, vocabularies, alphas))))
    lists = None if shortlist is None else _lists(shortlist, vocabularies)
    if lists is not None:
        assert shortlist is not None
        best = int(np.diff(shortlist.starts).max())
        (folder / LEXICON).write_bytes(shortlist_file(lists, first=_FIRST, best=best))
    settings = {
        "relative-paths": True,
        "models": [model_file],
        "vocabs": [one.name for one in vocabularies],
        **({} if lists is None else {"shortlist": [LEXICON, False]}),
        "beam-size": 1,
        "normalize": 1.0,
        "word-penalty": 0,
        "max-length-break": 128,
        "mini-batch-words": 1024,
        "workspace": 128,
        "max-length-factor": 2.0,
        "skip-cost": True,
        "cpu-threads": 0,
        "quiet": True,
        "quiet-translation": True,
        "gemm-precision": "int8shiftAlphaAll",
        "alignment": "soft",
    }
    (folder / CONFIG).write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    info = {
        "modelName": f"{model.source_lang}-{model.target_lang} tiny",
        "shortName": f"{model.source_lang}-{model.target_lang}-tiny",
        "type": "tiny",
        "src": model.source_lang,
        "trg": model.target_lang,
        "version": 1,
        "API": 1,
    }
    (folder / INFO).write_text(json.dumps(info, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return Firefox(folder, model, lists)


def check_vocabulary(vocabulary: Written) -> None:
    """Raise ConfigError for what the engine would cut text with in another way."""
    if not vocabulary.name.endswith(".spm"):
        raise ConfigError("tokenizer: is no SentencePiece model, the only one of Firefox's engine. Train with one")
    spec = protobuf_messages().ModelProto.FromString(vocabulary.files[vocabulary.name]).trainer_spec
    if spec.model_type != spec.UNIGRAM:
        raise ConfigError(
            "data.tokenizer.kind=bpe: Firefox's engine cuts text as a unigram model does. Train with"
            " data.tokenizer.kind=unigram"
        )


def _filled_up(vocabulary: Written) -> Written:
    """The vocabulary with as many unused entries as make it a multiple of 8; their ids of ours are -1."""
    n = -len(vocabulary.order) % COLUMNS
    if not n or not vocabulary.name.endswith(".spm"):
        return vocabulary
    proto = protobuf_messages().ModelProto.FromString(vocabulary.files[vocabulary.name])
    for i in range(n):
        proto.pieces.add(piece=f"<unused{i}>", score=0.0, type=type(proto.pieces[0]).UNUSED)
    files = vocabulary.files | {vocabulary.name: proto.SerializeToString(deterministic=True)}
    return Written(vocabulary.name, files, [*vocabulary.order, *[-1] * n])


def _items(model: ModelFile, vocabularies: Sequence[Written], alphas: Mapping[str, float]) -> Iterator[BinaryItem]:
    """All items, sorted by name, and the options at the end."""
    config, tied = model.config, marian.tied_as_theirs(model.config)
    real = [Written(one.name, one.files, [i for i in one.order if i >= 0]) for one in vocabularies]
    n_unused = [sum(i < 0 for i in one.order) for one in vocabularies]
    target = model.tokenizers.target
    never = {target.pad_id, target.bos_id, *target.unknown_ids}  # the engine would write <0xC3> for a byte
    items: list[BinaryItem] = []
    for name, array in marian.items(model, (real[0], real[1])):
        if name == OPTIONS:
            continue
        if name.endswith("Wemb"):
            n = n_unused[0 if name == "encoder_Wemb" else 1]
            items.append(int8_item(name, np.pad(array, ((0, n), (0, 0))), transpose=False))
        elif name == "decoder_ff_logit_out_b":
            never_V = [i in never or i < 0 for i in vocabularies[1].order]
            bias_1V = np.pad(array, ((0, 0), (0, n_unused[1])))
            items.append(float_item(name, np.where(never_V, _NEVER, bias_1V)))
        elif is_product(name):
            items.append(int8_item(name, array, transpose=True))
            items.append(float_item(f"{name}{ALPHA}", np.array([alphas[name]])))
        else:
            items.append(float_item(name, array))
    output = "Wemb" if tied.embeddings else "decoder_Wemb"
    items.append(float_item(f"{OUTPUT}{ALPHA}", np.array([alphas[OUTPUT]])))
    items.append(alpha_as_int8(f"{output}{ALPHA}", alphas[OUTPUT]))
    yield from sorted(items, key=lambda item: item.name)
    sizes = len(vocabularies[0].order), len(vocabularies[1].order)
    options = marian_options(config, sizes, tied, f"tfm {__version__}", model.causal_alignment_head)
    yield options_item(OPTIONS, yaml.safe_dump(options, sort_keys=False, default_flow_style=False).encode())


def _lists(shortlist: Shortlist, vocabularies: Sequence[Written]) -> list[list[int]]:
    """The lists by the ids of the files. What is frequent is in that of EOS, which every source has."""
    sources, targets = (vocabulary.order for vocabulary in vocabularies)
    theirs = {i: place for place, i in enumerate(targets)}
    found = [
        [] if i < 0 else [theirs[int(j)] for j in shortlist.ids[shortlist.starts[i] : shortlist.starts[i + 1]]]
        for i in sources
    ]
    found[EOS] = sorted({*found[EOS], *(theirs[int(j)] for j in shortlist.frequent)})
    return found


# ---- Alphas


def activation_alphas(model: ModelFile, lines: Sequence[str]) -> dict[str, float]:
    """The factor of the activations of each product, by Marian's name of its weight."""
    transformer = model.build(torch.device("cpu"))
    largest: dict[str, list[float]] = defaultdict(list)

    def record(module: nn.Module, args: tuple[Tensor, ...], *, names: Sequence[str]) -> None:
        value = float(args[0].abs().max())
        for name in names:
            largest[name].append(value)

    for side, stack in zip(("encoder", "decoder"), transformer.stacks, strict=True):
        for i in range(n_layers(model.config, side)):
            for path, module in stack.layers[i].named_modules():
                if isinstance(module, Linear):
                    names = [f"{side}_l{i + 1}_{ending}" for ending in _READS[f"{side} {path}"]]
                    module.register_forward_pre_hook(partial(record, names=names))
    output: Any = transformer.output_embedding
    logits: Callable[[Tensor], Tensor] = output.logits

    def recorded(x_RD: Tensor) -> Tensor:
        largest[OUTPUT].append(float(x_RD.abs().max()))
        return logits(x_RD)

    output.logits = recorded
    for source in model.tokenizers.source.encode(lines):
        if source:
            greedy(transformer, model, source)
    return {name: 127 / max(float(np.mean(x) + _DEVIATIONS * np.std(x)), _LEAST) for name, x in largest.items()}


def greedy(transformer: Transformer, model: ModelFile, source: Sequence[int]) -> list[int]:
    """The ids of a translation, at most as long as the engine's."""
    target, decoder = model.tokenizers.target, TransformerDecoder(transformer)
    source_BS = torch.tensor([[*source, *model.tokenizers.source.end_ids]])
    longest = 2 * source_BS.size(1) + 4
    cache = decoder.start(source_BS, beam_size=1, max_length=longest)
    banned = [target.pad_id, target.bos_id, target.unk_id]
    ids = [target.bos_id]
    while len(ids) <= longest and ids[-1] != target.eos_id:
        logits_V = decoder.step(torch.tensor(ids[-1:]), cache)[0]
        logits_V[banned] = -torch.inf
        ids.append(int(logits_V.argmax()))
    return [i for i in ids[1:] if i != target.eos_id]


# ---- Verification


@dataclass(frozen=True)
class FirefoxVerdict:
    """How many lines the engine translates as a search of ours over the same numbers does, and as the model itself."""

    lines: int
    identical: int
    near_ties: int  # of the others
    identical_to_float: int

    @property
    def holds(self) -> bool:
        if self.identical < _FEWEST_OF_ALL * self.lines:
            return False
        return self.identical + self.near_ties >= FEWEST_IDENTICAL * self.lines > 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def lines_of_text(self) -> list[str]:
        others = f", {self.near_ties} others with a near tie" if self.near_ties else ""
        return [
            f"text to text, greedy: {self.identical} of {self.lines} lines as a search over the same 8-bit numbers has"
            f" them{others}",
            f"{self.identical_to_float} of {self.lines} as the model in float32 has them",
        ]


class Firefox:
    """fxtranslate with the files of a folder."""

    def __init__(
        self,
        folder: Path,
        model: ModelFile,
        lists: Sequence[Sequence[int]] | None,
    ) -> None:
        self.model, self.lists = model, lists
        files = FirefoxFiles.of(folder, [path.name for path in folder.iterdir()])
        self.engine = FirefoxLibrary(files, needs="tfm export firefox", remedy="Please report it, with its config")
        source, target = (path.read_bytes() for path in (files.source, files.target))
        self.search = FirefoxSearch(files.model.read_bytes(), model.config)
        self.source, self.target = (sentencepiece.SentencePieceProcessor(model_proto=one) for one in (source, target))
        self.is_joint = source == target

    def translate(self, lines: Sequence[str]) -> list[str]:
        """What the engine makes of each line."""
        return [self.engine.translate(line) for line in lines]

    def expected(self, line: str) -> tuple[str, bool]:
        """The same by our own search over the numbers of the file, and whether a choice in it is a near tie."""
        pieces: Any = self.source
        ids: list[int] = []
        for piece in pieces.encode(line, return_type="proto").pieces:
            # The engine has an unknown piece for each unknown character, where SentencePiece joins them.
            ids += [piece.id] * (len(piece.surface) if piece.id == pieces.unk_id() else 1)
        ids.append(EOS)
        allowed = None
        if self.lists is not None:
            allowed = candidates_of(self.lists, ids, first=_FIRST, is_joint=self.is_joint)
        found, margin = self.search.translate(ids, allowed)
        return self._shown(found), margin < NEAR_LOGITS

    def _shown(self, ids: Sequence[int]) -> str:
        """The engine leaves unknown pieces out, and a byte as it is written."""
        pieces: Any = self.target
        shown = [i for i in ids if i != pieces.unk_id() and not pieces.is_control(i)]
        return "".join(pieces.id_to_piece(i) for i in shown).replace("\u2581", " ").lstrip()

    def verified(self, lines: Sequence[str]) -> FirefoxVerdict:
        transformer = self.model.build(torch.device("cpu"))
        found = self.translate(lines)
        in_float = [
            self.model.tokenizers.target.decode(greedy(transformer, self.model, ids))
            for ids in self.model.tokenizers.source.encode(lines)
        ]
        others = [
            is_near_tie
            for text, (expected, is_near_tie) in zip(found, map(self.expected, lines), strict=True)
            if text != expected
        ]
        return FirefoxVerdict(
            len(lines),
            len(lines) - len(others),
            sum(others),
            sum(one == other for one, other in zip(found, in_float, strict=True)),
        )
