"""Keys of the group `model`: the sizes and variants of a Transformer; and the sizes that its vocabularies give it."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, NamedTuple

from transformer_cli.config.checks import check_file_name
from transformer_cli.config.fields import Affects, check_ranges, key
from transformer_cli.config.poolings import POOLINGS
from transformer_cli.config.tasks import all_tasks
from transformer_cli.errors import ConfigError


class Norm(Enum):
    pre = "pre"  # normalise before each sub-layer: deep stacks train without warm-up
    post = "post"  # normalise after the residual sum, as in the paper


class Activation(Enum):
    relu = "relu"
    gelu = "gelu"
    silu = "silu"
    swiglu = "swiglu"


class Positions(Enum):
    sinusoidal = "sinusoidal"  # sine and cosine interleaved, as printed in the paper
    sinusoidal_concat = "sinusoidal_concat"  # all sines, then all cosines, as in Hugging Face's Marian
    sinusoidal_tensor2tensor = "sinusoidal_tensor2tensor"  # the same with 10000^(-j / (d/2 - 1)): fairseq, Marian
    learned = "learned"
    rotary = "rotary"


SINUSOIDAL = (Positions.sinusoidal, Positions.sinusoidal_concat, Positions.sinusoidal_tensor2tensor)


class DecoderStart(Enum):
    """The decoder's first input, to which the first position is added."""

    bos = "bos"  # the embedding of BOS
    zero = "zero"  # a vector of zeros, as in Marian


class Autoregression(Enum):
    """How a decoder layer reads the target so far."""

    self_attention = "self_attention"
    ssru = "ssru"  # simpler simple recurrent unit (Kim et al. 2019)


class Tying(Enum):
    three_way = "three_way"  # source embedding = target embedding = output projection (section 3.4)
    decoder = "decoder"  # target embedding = output projection
    source_target = "source_target"  # source embedding = target embedding
    none = "none"

    @property
    def shares_embedding(self) -> bool:
        """Whether source and target share one embedding, and so need one vocabulary."""
        return self in (Tying.three_way, Tying.source_target)

    @property
    def has_own_output(self) -> bool:
        return self in (Tying.source_target, Tying.none)


@dataclass
class ModelConfig:
    """Sizes and variants of a model; the defaults are `base` of Vaswani et al. 2017, table 3.

    A classifier and a tagger ignore n_decoder_layers, a language model n_encoder_layers.
    """

    AFFECTS: ClassVar[Affects] = "weights"

    name: str = key(
        "transformer",
        "Entry of the model registry: transformer, classifier, tagger, span_extractor, decoder, or one of a plugin.",
    )
    preset: str = key("custom", "What names of run directories call this model.", affects="place", may_change=False)
    n_encoder_layers: int = key(6, "Layers of the encoder.", low=1, high=512)
    n_decoder_layers: int = key(6, "Layers of the decoder.", low=1, high=512, part="decoder")
    d_model: int = key(512, "Width of every layer's output, and of the embeddings.", low=1, high=1_000_000)
    d_embedding: int | None = key(
        None,
        "Width of the embeddings if less than d_model, to which a projection leads, and another back to a tied output"
        " layer; unset: d_model.",
        low=1,
        high=1_000_000,
    )
    n_heads: int = key(8, "Attention heads; must divide d_model unless d_k and d_v are set.", low=1, high=1_000_000)
    d_k: int | None = key(None, "Width of a head's queries and keys; unset: d_model / n_heads.", low=1, high=1_000_000)
    d_v: int | None = key(None, "Width of a head's values; unset: d_model / n_heads.", low=1, high=1_000_000)
    d_ff: int = key(2048, "Inner width of the feed-forward layers.", low=1, high=1_000_000)
    dropout: float = key(
        0.1,
        "Dropout on each sub-layer's output and on the embeddings (section 5.4).",
        low=0,
        high=1,
        below=True,
        part="training",
    )
    attention_dropout: float = key(0.0, "Dropout on the attention weights.", low=0, high=1, below=True, part="training")
    activation_dropout: float = key(
        0.0, "Dropout after the activation of the feed-forward layers.", low=0, high=1, below=True, part="training"
    )
    layer_drop: float = key(
        0.0,
        "Probability with which training skips a layer of either stack, each by itself (LayerDrop).",
        low=0,
        high=1,
        below=True,
        part="training",
    )
    norm: Norm = key(
        Norm.post, "Normalization after each residual sum (post, as in the paper) or before each sub-layer (pre)."
    )
    norm_kind: str = key(
        "layer",
        "Entry of the registry of norms: layer (layer normalization), rms (RMS normalization), or one of a plugin.",
    )
    activation: Activation = key(Activation.relu, "Activation of the feed-forward layers; swiglu adds a gate.")
    positions: Positions = key(
        Positions.sinusoidal,
        "Position encoding; sinusoidal_concat: all sines before all cosines; sinusoidal_tensor2tensor: so, and with the"
        " frequencies of tensor2tensor, fairseq and Marian.",
    )
    first_position: int = key(
        0, "Position of the first token in the sinusoids: 2 in models of fairseq and M2M-100.", low=0, high=1000
    )
    attention_window: int | None = key(
        None,
        "Positions that self-attention is restricted to (section 4): half of them on either side in an encoder, the"
        " last ones in a decoder; unset: all.",
        low=1,
        high=1_000_000,
    )
    max_positions: int = key(
        1024, "Rows of the table of learned positions; the other kinds have no limit.", low=1, high=1_000_000
    )
    tie_embeddings: Tying = key(
        Tying.three_way,
        "Shared weights: source and target embedding and output projection (three_way), the last two (decoder), the"
        " first two (source_target), none.",
        part="decoder",
    )
    scale_embeddings: bool = key(True, "Multiply embeddings by the square root of their width (section 3.4).")
    bias: bool = key(True, "Biases in the projections of attention and in the feed-forward layers.")
    output_bias: bool = key(
        False, "A bias for each entry of the vocabulary in the output layer, as in Marian.", part="decoder"
    )
    norm_eps: float | None = key(
        None, "Added to the variance by the norms; unset: 1e-5, and 1e-6 with norm_kind=rms.", low=0, high=1
    )
    decoder_start: DecoderStart = key(
        DecoderStart.bos, "First input of the decoder: the embedding of BOS, or zeros, as in Marian.", part="decoder"
    )
    decoder: Autoregression = key(
        Autoregression.self_attention,
        "How the decoder reads the target so far: by self-attention, or by the simpler simple recurrent unit (ssru, Kim"
        " et al. 2019), whose state does not grow.",
        part="decoder",
    )
    pooling: str = key(
        "first",
        "Encoder states that the output layer reads: the first token's, or the mean of all, of a text (classifier) or a"
        " word (tagger); of a text also the largest value of each column (max), or weighted sums of all with learned"
        " weights (self_attentive, Lin et al. 2017); of pairs also the means u and v of both texts, as u, v, the"
        " absolute value of u - v, and u * v (segments).",
        choices=POOLINGS.names,
        part="classifier",
    )
    pooling_options: dict[str, Any] = key(
        {}, "Settings of the pooling, of self_attentive and of those of plugins.", part="classifier", entry="pooling"
    )
    convolution: int | None = key(
        None,
        "Tokens, an odd number, that a convolution over the embeddings of a classifier reads at once: its output is"
        " added to them before the encoder; unset: none.",
        low=3,
        high=99,
        part="classifier",
    )
    n_segments: int = key(
        1,
        "Texts that a classifier reads together: 2 for pairs, each with its segment embedding.",
        low=1,
        high=2,
        part="classifier",
    )
    options: dict[str, Any] = key({}, "Settings of a model that a plugin registers.", entry="name")

    def __post_init__(self) -> None:
        check_file_name("model.preset", self.preset)
        check_ranges(self, "model")
        if self.first_position and self.positions not in SINUSOIDAL:
            raise ConfigError(
                f"model.first_position={self.first_position}: only of sinusoids, and model.positions="
                f"{self.positions.name}. Leave it out"
            )
        # An unknown name is refused by `check_model`; a model file may name that of a plugin.
        pooling = next((kind for name, kind in POOLINGS.items() if name == self.pooling), None)
        for setting, is_set in (
            (f"convolution={self.convolution}", self.convolution is not None),
            (f"pooling={self.pooling}", pooling is not None and not pooling.of_words and not pooling.of_pairs),
        ):
            if is_set and not self._labels_lines:
                raise ConfigError(f"model.{setting}: only of a classifier. Leave it out")
        tasks = [task for task in all_tasks() if task.model == self.name]
        if self.decoder is Autoregression.ssru and tasks and not any(task.translates for task in tasks):
            raise ConfigError(f"model.decoder={self.decoder.name}: only of a translator. Leave it out")
        if self.convolution is not None and self.convolution % 2 == 0:
            raise ConfigError(
                f"model.convolution={self.convolution}: even, and it reads as many tokens on either side of one."
                f" Choose {self.convolution + 1}"
            )
        if pooling is not None and pooling.of_pairs and self.n_segments == 1:
            kinds = [(name, kind) for name, kind in POOLINGS.items() if not kind.of_pairs]
            others = [name for name, kind in kinds if kind.of_words or self._labels_lines]
            raise ConfigError(
                f"model.pooling={self.pooling}: is of the two texts of a pair, and model.n_segments=1. Choose"
                f" {', '.join(others)}, or pairs (data=pairs)"
            )
        if self.d_model % 2 and self.positions in SINUSOIDAL:
            raise ConfigError(
                f"model.d_model={self.d_model}: odd, but model.positions={self.positions.name} pairs columns."
                f" Choose {self.d_model - 1} or {self.d_model + 1}"
            )
        if self.d_embedding is not None and self.d_embedding > self.d_model:
            raise ConfigError(
                f"model.d_embedding={self.d_embedding}: wider than model.d_model={self.d_model}."
                " Choose less, or leave it out"
            )
        if (self.d_k is None or self.d_v is None) and self.d_model % self.n_heads:
            near = sorted((n for n in range(1, self.d_model + 1) if self.d_model % n == 0), key=self._distance)[:2]
            raise ConfigError(
                f"model.n_heads={self.n_heads}: does not divide model.d_model={self.d_model}."
                f" Choose model.n_heads={' or '.join(str(n) for n in sorted(near))}, or set model.d_k and model.d_v"
            )
        if self.positions is Positions.rotary and self.key_width % 2:
            raise ConfigError(
                f"model.d_k={self.key_width}: odd, but model.positions=rotary rotates pairs."
                f" Choose model.d_k={self.key_width + 1}"
            )

    @property
    def _labels_lines(self) -> bool:
        """Whether the model is a classifier, ours or a plugin's."""
        return any(task.labels_lines for task in all_tasks() if task.model == self.name)

    def _distance(self, n_heads: int) -> int:
        return abs(n_heads - self.n_heads)

    @property
    def embedding_width(self) -> int:
        return self.d_embedding if self.d_embedding is not None else self.d_model

    @property
    def epsilon(self) -> float:
        """What the norms add to the variance."""
        if self.norm_eps is not None:
            return self.norm_eps
        return 1e-5 if self.norm_kind != "rms" else 1e-6

    @property
    def key_width(self) -> int:
        return self.d_k if self.d_k is not None else self.d_model // self.n_heads

    @property
    def value_width(self) -> int:
        return self.d_v if self.d_v is not None else self.d_model // self.n_heads


class Vocabulary(NamedTuple):
    """The vocabulary of one side, as the tokenizer has it; for the target of a classifier or tagger, its labels."""

    size: int
    pad_id: int
    bos_id: int | None = None  # of the target, what the decoder starts with
    eos_id: int | None = None  # of the source, what separates the texts of a pair
