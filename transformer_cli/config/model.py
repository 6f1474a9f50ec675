"""Keys of the group `model`: the sizes and variants of a Transformer."""

from dataclasses import dataclass
from enum import Enum

from transformer_cli.config.checks import check_file_name, check_range
from transformer_cli.errors import ConfigError


class Norm(Enum):
    pre = "pre"  # normalise before each sub-layer: deep stacks train without warm-up
    post = "post"  # normalise after the residual sum, as in the paper


class NormKind(Enum):
    layer = "layer"
    rms = "rms"


class Activation(Enum):
    relu = "relu"
    gelu = "gelu"
    silu = "silu"
    swiglu = "swiglu"


class Positions(Enum):
    sinusoidal = "sinusoidal"  # sine and cosine interleaved, as printed in the paper
    sinusoidal_concat = "sinusoidal_concat"  # all sines, then all cosines: tensor2tensor's arrangement
    learned = "learned"
    rotary = "rotary"


class Pooling(Enum):
    first = "first"  # the state of the first token, which is BOS
    mean = "mean"  # of all tokens


class Tying(Enum):
    three_way = "three_way"  # source embedding = target embedding = output projection (section 3.4)
    decoder = "decoder"  # target embedding = output projection
    none = "none"


@dataclass
class ModelConfig:
    """Sizes and variants of a model; the defaults are `base` of Vaswani et al. 2017, table 3.

    A classifier has no decoder and a language model no encoder, whatever n_decoder_layers and n_encoder_layers say.
    """

    name: str = "transformer"  # entry of the model registry: transformer, classifier or decoder
    preset: str = "custom"  # what the run directory calls this model
    n_encoder_layers: int = 6
    n_decoder_layers: int = 6
    d_model: int = 512
    n_heads: int = 8
    d_k: int | None = None  # width of a head's queries and keys; d_model / n_heads when unset
    d_v: int | None = None  # width of a head's values; d_model / n_heads when unset
    d_ff: int = 2048
    dropout: float = 0.1  # on each sub-layer's output and on the embeddings (section 5.4)
    attention_dropout: float = 0.0  # on the attention weights
    activation_dropout: float = 0.0  # inside the feed-forward layer
    norm: Norm = Norm.post
    norm_kind: NormKind = NormKind.layer
    activation: Activation = Activation.relu
    positions: Positions = Positions.sinusoidal
    max_positions: int = 1024  # rows of the table when positions=learned; the others have no limit
    tie_embeddings: Tying = Tying.three_way
    scale_embeddings: bool = True  # multiply embeddings by sqrt(d_model) (section 3.4)
    bias: bool = True  # on the projections of attention and of the feed-forward layer
    pooling: Pooling = Pooling.first  # classifier only: what of a sentence its class is told from

    def __post_init__(self) -> None:
        check_file_name("model.preset", self.preset)
        for key in ("n_encoder_layers", "n_decoder_layers"):
            check_range(f"model.{key}", getattr(self, key), 1, 512)
        for key in ("d_model", "n_heads", "d_k", "d_v", "d_ff", "max_positions"):
            check_range(f"model.{key}", getattr(self, key), 1, 1_000_000)
        for key in ("dropout", "attention_dropout", "activation_dropout"):
            check_range(f"model.{key}", getattr(self, key), 0, 1, below=True)
        if self.d_model % 2 and self.positions in (Positions.sinusoidal, Positions.sinusoidal_concat):
            raise ConfigError(
                f"model.d_model={self.d_model}: odd, but model.positions={self.positions.name} pairs columns."
                f" Choose {self.d_model - 1} or {self.d_model + 1}"
            )
        if (self.d_k is None or self.d_v is None) and self.d_model % self.n_heads:
            near = sorted((n for n in range(1, self.d_model + 1) if self.d_model % n == 0), key=self._distance)[:2]
            raise ConfigError(
                f"model.n_heads={self.n_heads}: does not divide model.d_model={self.d_model}."
                f" Choose model.n_heads={' or '.join(str(n) for n in sorted(near))}, or set model.d_k and model.d_v"
            )
        if self.positions is Positions.rotary and self.key_width % 2:
            raise ConfigError(
                f"model.d_k={self.key_width}: odd, but model.positions=rotary turns pairs."
                f" Choose model.d_k={self.key_width + 1}"
            )

    def _distance(self, n_heads: int) -> int:
        return abs(n_heads - self.n_heads)

    @property
    def key_width(self) -> int:
        return self.d_k if self.d_k is not None else self.d_model // self.n_heads

    @property
    def value_width(self) -> int:
        return self.d_v if self.d_v is not None else self.d_model // self.n_heads
