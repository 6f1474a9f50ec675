"""A classifier or tagger as EuroBERT of Hugging Face transformers, the one encoder with labels there that can be ours.

It is pre-LN with RMSNorm, rotary positions and SwiGLU, and unlike BERT and its kin it has no norm of the embeddings.
Its head for texts is a square layer, GELU and an output layer. It computes z = W p + b of ours all the same, because
GELU(z) - GELU(-z) = z: the square layer makes z and -z, and the output layer subtracts them.

Files: config.json, model.safetensors, tokenizer.json and tokenizer_config.json, which the Auto classes load;
labels.json and source.spm.

Shapes: B batch, S source, D width, C classes, V vocabulary.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transformer_cli.addons.classification.classifier import Classifier
from transformer_cli.addons.interop.fast_tokenizer import FAST_TOKENIZER, write_fast_tokenizer
from transformer_cli.addons.interop.huggingface import quiet
from transformer_cli.addons.interop.label_files import LabelFolder, label_settings, write_label_files
from transformer_cli.addons.interop.verify_labels import LabelIds
from transformer_cli.addons.interop.weights import projections, refuse_option
from transformer_cli.addons.tagging.tagger import Tagger
from transformer_cli.config.model import Activation, ModelConfig, Norm, Positions
from transformer_cli.extras import imported
from transformer_cli.models.file import ModelFile
from transformer_cli.models.transformer import Model

EUROBERT_POSITIONS = 2048  # that its config names; rotary positions have no limit
LABELS_FILE = "labels.json"
_NEEDS = "tfm export huggingface"
_INSTEAD = "Use `tfm export onnx`"


def check_eurobert(config: ModelConfig) -> None:
    """Raise ConfigError for an option that EuroBERT does not have."""
    has = "EuroBERT, the one encoder of transformers that can be ours,"
    for key, value, wanted in (
        ("norm", config.norm.name, Norm.pre.name),
        ("norm_kind", config.norm_kind, "rms"),
        ("activation", config.activation.name, Activation.swiglu.name),
        ("positions", config.positions.name, Positions.rotary.name),
    ):
        if value != wanted:
            refuse_option(key, value, f"{has} has {wanted} alone", _INSTEAD)
    for key, number in (("attention_window", config.attention_window), ("convolution", config.convolution)):
        if number is not None:
            refuse_option(key, number, f"{has} has none", _INSTEAD)
    if config.n_segments == 2:
        refuse_option("n_segments", 2, f"{has} tells no texts of a pair apart", _INSTEAD)
    if config.pooling not in ("first", "mean"):
        refuse_option("pooling", config.pooling, f"{has} pools by first and mean alone", _INSTEAD)
    if config.key_width != config.value_width:
        refuse_option("d_v", config.value_width, f"{has} has heads of one width, and d_k={config.key_width}", _INSTEAD)


def write(model: ModelFile, directory: Path) -> None:
    """Write `model` into `directory`, which is there and empty. Raises ConfigError as `check_eurobert` does."""
    check_eurobert(model.config)
    library = imported("transformers", needs=_NEEDS)
    built = model.build_as(Model, torch.device("cpu")).float()
    assert isinstance(built, Classifier | Tagger)
    labels, d_model = model.tokenizers.labels, model.config.d_model
    if isinstance(built, Classifier) and 2 * len(labels) > d_model:
        refuse_option(
            "d_model", d_model, f"EuroBERT's head needs two columns for each of {len(labels)} classes", _INSTEAD
        )
    config = library.EuroBertConfig(**eurobert_options(model))
    kind = "SequenceClassification" if isinstance(built, Classifier) else "TokenClassification"
    converted = getattr(library, f"EuroBertFor{kind}")(config)
    converted.load_state_dict(eurobert_weights(built, model.config))
    with quiet():
        converted.save_pretrained(directory)
    write_label_files(model, directory, LABELS_FILE, max_positions=EUROBERT_POSITIONS)
    settings = label_settings(model, max_positions=EUROBERT_POSITIONS)
    longest, begins = settings["max_length"], bool(settings["begin_ids"])
    write_fast_tokenizer(model.tokenizers.source, directory, begins=begins, max_length=longest)


def eurobert_options(model: ModelFile) -> dict[str, Any]:
    config, tokenizer, labels = model.config, model.tokenizers.source, model.tokenizers.labels
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_hidden_layers": config.n_encoder_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_heads,
        "head_dim": config.key_width,
        "hidden_act": "silu",
        "max_position_embeddings": EUROBERT_POSITIONS,
        "rms_norm_eps": config.epsilon,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        "attention_bias": config.bias,
        "mlp_bias": config.bias,
        "pad_token_id": tokenizer.pad_id,
        "bos_token_id": tokenizer.bos_id,
        "eos_token_id": tokenizer.eos_id,
        "mask_token_id": tokenizer.unk_id,
        "classifier_pooling": "bos" if config.pooling == "first" else "mean",
        "id2label": dict(enumerate(labels)),
        "label2id": {label: number for number, label in enumerate(labels)},
    }


@torch.no_grad()
def eurobert_weights(model: Classifier | Tagger, config: ModelConfig) -> Mapping[str, Tensor]:
    """Our weights under the names of that library."""
    every_id_V = torch.arange(len(model.source_embedding.weight))
    # As the encoder gets them: scaled, and in the width of the model.
    theirs = {"model.embed_tokens.weight": model.source_embedding(every_id_V)}

    def put(name: str, weight: Tensor, bias: Tensor | None) -> None:
        theirs[f"{name}.weight"] = weight
        if bias is not None:
            theirs[f"{name}.bias"] = bias

    for i, layer in enumerate(model.encoder.layers):
        name, attention, feed_forward = f"model.layers.{i}", layer.self_attention, layer.feed_forward
        for part, (weight, bias) in zip("qkv", projections(attention), strict=True):
            put(f"{name}.self_attn.{part}_proj", weight, bias)
        put(f"{name}.self_attn.o_proj", attention.to_out.weight, attention.to_out.bias)
        hidden = feed_forward.to_hidden
        biases = (None, None) if hidden.bias is None else hidden.bias.chunk(2)
        for part, weight, bias in zip(("gate", "up"), hidden.weight.chunk(2), biases, strict=True):
            put(f"{name}.mlp.{part}_proj", weight, bias)
        put(f"{name}.mlp.down_proj", feed_forward.to_out.weight, feed_forward.to_out.bias)
        theirs[f"{name}.input_layernorm.weight"] = scale_of(layer.around_self_attention.norm)
        theirs[f"{name}.post_attention_layernorm.weight"] = scale_of(layer.around_feed_forward.norm)
    theirs["model.norm.weight"] = scale_of(model.encoder.norm)
    head = model.to_classes
    assert head.bias is not None
    if isinstance(model, Tagger):
        put("classifier", head.weight, head.bias)
        return theirs
    rest, identity = config.d_model - 2 * len(head.weight), torch.eye(len(head.weight))
    weight_DD = torch.cat([head.weight, -head.weight, head.weight.new_zeros(rest, config.d_model)])
    put("dense", weight_DD, torch.cat([head.bias, -head.bias, head.bias.new_zeros(rest)]))
    put("classifier", torch.cat([identity, -identity, identity.new_zeros(len(identity), rest)], dim=1), head.bias * 0)
    return theirs


def scale_of(norm: nn.Module) -> Tensor:
    assert isinstance(norm, nn.RMSNorm)
    return norm.weight


class LoadedEuroBert(LabelFolder):
    """A folder as a user of transformers loads it: a LabelProgram of `verify_labels`."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, LABELS_FILE)
        library = imported("transformers", needs=_NEEDS)
        of_words = self.settings["task"] == "token classification"
        kind = library.AutoModelForTokenClassification if of_words else library.AutoModelForSequenceClassification
        with quiet():
            self.model = kind.from_pretrained(directory).eval()
            is_fast = (directory / FAST_TOKENIZER).exists()
            self.fast = library.AutoTokenizer.from_pretrained(directory) if is_fast else None

    def encode(self, texts: Sequence[Sequence[str]]) -> list[LabelIds]:
        """The ids of the tokenizer of that library, where it has one, as its pipelines have them."""
        if self.fast is None:
            return super().encode(texts)
        if self.settings["task"] == "text classification":
            return [LabelIds(self.fast(text).input_ids) for (text,) in texts]
        found = []
        for words in texts:
            encoded = self.fast(list(words), is_split_into_words=True)
            n_of_words = Counter(word for word in encoded.word_ids() if word is not None)
            found.append(LabelIds(encoded.input_ids, [n_of_words[i] for i in range(len(words))]))
        return found

    def ask(self, ids_BS: Tensor, mask_BS: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=ids_BS, attention_mask=mask_BS).logits
        return logits
