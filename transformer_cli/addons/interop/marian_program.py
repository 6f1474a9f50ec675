"""CTranslate2's reading of a model of Marian: the Program that an import and an export are compared with.

Its converter knows Marian's names, but puts the paper's positions in the place of Marian's, and leaves the norms their
usual epsilon: both are replaced. It also leaves out what makes no difference to a model that it reads by names alone,
so that the names of tokens here are their numbers.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import sentencepiece
import torch

from transformer_cli.addons.interop.marian_names import Tied
from transformer_cli.addons.interop.npz import Npz
from transformer_cli.config.model import ModelConfig, Norm, Positions
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.search import ControlIds
from transformer_cli.extras import imported
from transformer_cli.models.embeddings import sinusoid_table

_N_POSITIONS = 2048
EOS, UNK = "</s>", "<unk>"
SHARED = "Wemb"  # the embedding of both sides


class _Arrays(Mapping[str, Any]):
    """The arrays of an archive in float32, read when they are asked for; one that several ask for, once."""

    def __init__(self, archive: Npz) -> None:
        self.archive = archive
        self.shared: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name in self.shared:
            return self.shared[name]
        array = self.archive.read(name).astype(np.float32, copy=False)
        if name == SHARED:
            self.shared[name] = array
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self.archive)

    def __len__(self) -> int:
        return len(self.archive)


class Original:
    """An archive of Marian in CTranslate2, with one thread: a Program of `verify`.

    `orders` are, for each side, our ids in the order of Marian's; unset, they are the same. A padding of ours that
    Marian does not have stands at the end.
    """

    def __init__(
        self,
        archive: Npz,
        config: ModelConfig,
        tied: Tied,
        sizes: tuple[int, int],
        tokenizers: Tokenizers,
        orders: tuple[Sequence[int], Sequence[int]] | None = None,
    ) -> None:
        library = imported("ctranslate2", needs="comparing with a model of Marian")
        source, target = orders or (range(sizes[0]), range(sizes[1]))
        self.source_tokens = _tokens(source, tokenizers.source.eos_id, tokenizers.source.unk_id)
        self.target_tokens = _tokens(target, tokenizers.target.eos_id, tokenizers.target.unk_id)
        self.target_ids = {token: ours for ours, token in self.target_tokens.items()}
        banned = [self.target_tokens.get(i) for i in ControlIds.of(tokenizers.target).banned]
        self.banned = [[token] for token in banned if token is not None]
        with tempfile.TemporaryDirectory() as folder:
            spec = self._spec(library, archive, config, tied, sizes)
            spec.register_source_vocabulary([self.source_tokens[i] for i in source])
            spec.register_target_vocabulary([self.target_tokens[i] for i in target])
            spec.validate()
            spec.optimize(quantization="float32")
            spec.save(folder)
            del spec
            self.translator = library.Translator(str(folder), intra_threads=1)

    def _spec(self, library: Any, archive: Npz, config: ModelConfig, tied: Tied, sizes: tuple[int, int]) -> Any:
        spec = library.specs.TransformerSpec.from_config(
            (config.n_encoder_layers, config.n_decoder_layers),
            config.n_heads,
            pre_norm=config.norm is Norm.pre,
            activation=getattr(library.specs.common_spec.Activation, _ACTIVATIONS[config.activation.name]),
        )
        library.converters.marian.set_transformer_spec(spec, _Arrays(archive))
        if config.positions is not Positions.learned:
            kind = {"interleaved": False, "tensor2tensor": True, "dtype": torch.float32, "device": torch.device("cpu")}
            table = sinusoid_table(_N_POSITIONS, config.d_model, **kind)  # type: ignore[arg-type]
            for stack in (spec.encoder, spec.decoder):
                stack.position_encodings.encodings = table.numpy()
        for stack in (spec.encoder, spec.decoder):
            stack.scale_embeddings = config.scale_embeddings
        spec.config.add_source_eos = True
        spec.config.layer_norm_epsilon = config.epsilon
        spec.config.eos_token = spec.config.bos_token = spec.config.decoder_start_token = EOS
        spec.config.unk_token = UNK
        return spec

    def translate(self, sources: Sequence[Sequence[int]], *, beam_size: int, max_tokens: int) -> list[list[int]]:
        found = self.translator.translate_batch(
            self._named(sources),
            beam_size=beam_size,
            max_decoding_length=max_tokens,
            min_decoding_length=0,
            max_input_length=0,
            length_penalty=0,
            suppress_sequences=self.banned or None,
        )
        return [[self.target_ids[token] for token in result.hypotheses[0]] for result in found]

    def log_probs(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        named = [[self.target_tokens[i] for i in ids] for ids in targets]
        found = self.translator.score_batch(self._named(sources), named, max_input_length=0)
        return [list(result.log_probs) for result in found]

    def _named(self, sources: Sequence[Sequence[int]]) -> list[list[str]]:
        return [[self.source_tokens[i] for i in ids] for ids in sources]


class OriginalWithText(Original):
    """The original model with the SentencePiece models that are its vocabularies, whose ids it uses."""

    def __init__(
        self,
        archive: Npz,
        config: ModelConfig,
        tied: Tied,
        sizes: tuple[int, int],
        tokenizers: Tokenizers,
        source: bytes,
        target: bytes,
    ) -> None:
        super().__init__(archive, config, tied, sizes, tokenizers)
        self.source: Any = sentencepiece.SentencePieceProcessor(model_proto=source)
        self.target: Any = sentencepiece.SentencePieceProcessor(model_proto=target)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of each source line, without EOS."""
        ids: list[list[int]] = self.source.encode(list(lines))
        return ids

    def decode(self, sentences: Sequence[Sequence[int]]) -> list[str]:
        """The text of each translation."""
        texts: list[str] = self.target.decode([list(ids) for ids in sentences])
        return texts


_ACTIVATIONS = {"relu": "RELU", "silu": "SWISH"}


def _tokens(order: Sequence[int], eos: int, unk: int) -> dict[int, str]:
    """A name for each of our ids, which no piece needs to be unlike another for."""
    special = {eos: EOS, unk: UNK}
    return {i: special.get(i, str(i)) for i in order}
