"""The same weights in other people's Transformers give the same logits.

Shapes: B batch, S source, T target, D width.
"""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer_cli.config.model import Activation, ModelConfig, Norm, Positions, Vocabulary
from transformer_cli.models.build import build_model
from transformer_cli.models.embeddings import sinusoid_table
from transformer_cli.models.layers import Residual
from transformer_cli.models.transformer import Transformer

PAD = 3
PRECISIONS = pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])


def random_model(dtype: torch.dtype, **changes: Any) -> Transformer:
    """A tiny model in which no bias or norm is at its start value, where a mistake might hide."""
    torch.manual_seed(0)
    config = ModelConfig(d_model=16, n_heads=4, d_ff=32, n_encoder_layers=2, n_decoder_layers=3, **changes)
    model = build_model(config, Vocabulary(20, PAD), Vocabulary(20, PAD))
    for parameter in model.parameters():
        if parameter.ndim == 1:
            nn.init.normal_(parameter, mean=0.5, std=0.2)
    return model.to(dtype).eval()


def sentences() -> tuple[Tensor, Tensor]:
    source_BS = torch.tensor([[5, 6, 7, 8, 9, 2], [10, 11, 2, PAD, PAD, PAD], [2, PAD, PAD, PAD, PAD, PAD]])
    target_BT = torch.tensor([[1, 12, 13, 14], [1, 15, 16, 17], [1, 18, 19, 4]])
    return source_BS, target_BT


def torch_weights(model: Transformer) -> dict[str, Tensor]:
    """Our weights under the names of torch.nn.Transformer."""
    names = {
        "self_attention.to_qkv.": "self_attn.in_proj_",
        "self_attention.to_out.": "self_attn.out_proj.",
        "cross_attention.to_out.": "multihead_attn.out_proj.",
        "feed_forward.to_hidden.": "linear1.",
        "feed_forward.to_out.": "linear2.",
        "around_self_attention.norm.": "norm1.",
        "around_cross_attention.norm.": "norm2.",
        "around_feed_forward.norm.": "norm2.",
    }
    ours, theirs = model.state_dict(), {}
    for key, value in ours.items():
        if key.startswith("decoder"):
            key = key.replace("around_feed_forward.norm.", "norm3.")
        if key.endswith(("to_q.weight", "to_q.bias")):
            value = torch.cat([value, ours[key.replace("to_q.", "to_kv.")]])
            key = key.replace("cross_attention.to_q.", "multihead_attn.in_proj_")
        for our_name, their_name in names.items():
            key = key.replace(our_name, their_name)
        if key.startswith(("encoder.", "decoder.")) and "to_kv" not in key:
            theirs[key] = value
    return theirs


@PRECISIONS
@pytest.mark.parametrize("norm", Norm)
@pytest.mark.parametrize("activation", [Activation.relu, Activation.gelu])
def test_torch_transformer_with_our_weights_gives_our_logits(
    norm: Norm, activation: Activation, dtype: torch.dtype, tolerance: float
) -> None:
    model = random_model(dtype, norm=norm, activation=activation)
    shape = {"d_model": 16, "nhead": 4, "dim_feedforward": 32, "dropout": 0.0, "activation": activation.name}
    options = {**shape, "batch_first": True, "norm_first": norm is Norm.pre}

    def last_norm() -> nn.Module | None:  # torch's own default adds one to post-LN, which the paper has not
        return nn.LayerNorm(16) if norm is Norm.pre else None

    reference = nn.Transformer(
        **options,
        custom_encoder=nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**options), 2, last_norm(), enable_nested_tensor=False
        ),
        custom_decoder=nn.TransformerDecoder(nn.TransformerDecoderLayer(**options), 3, last_norm()),
    )
    reference.load_state_dict(torch_weights(model))
    reference.to(dtype).eval()

    source_BS, target_BT = sentences()
    table = sinusoid_table(8, 16, interleaved=True, dtype=dtype, device=torch.device("cpu"))
    embedding = model.source_embedding.weight
    hidden_BTD = reference(
        embedding[source_BS] * 4 + table[: source_BS.size(1)],
        embedding[target_BT] * 4 + table[: target_BT.size(1)],
        tgt_mask=torch.ones(4, 4, dtype=torch.bool).triu(1),
        src_key_padding_mask=source_BS == PAD,
        memory_key_padding_mask=source_BS == PAD,
    )
    torch.testing.assert_close(model(source_BS, target_BT), hidden_BTD @ embedding.T, rtol=0, atol=tolerance)


def marian_weights(model: Transformer) -> Mapping[str, Tensor]:
    """Our weights under the names of Hugging Face's MarianMTModel."""
    theirs = {"model.shared.weight": model.source_embedding.weight, "final_logits_bias": torch.zeros(1, 20)}

    def put(name: str, layer: nn.Module, *parts: str) -> None:
        for kind in ("weight", "bias"):
            for part, value in zip(parts, getattr(layer, kind).chunk(len(parts)), strict=True):
                theirs[f"{name}{part}.{kind}"] = value

    def put_norm(name: str, residual: Residual) -> None:
        put(name, residual.norm, "layer_norm")

    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        theirs[f"model.{side}.embed_tokens.weight"] = model.source_embedding.weight
        for i, layer in enumerate(stack.layers):
            prefix = f"model.{side}.layers.{i}."
            put(prefix + "self_attn.", layer.self_attention.to_qkv, "q_proj", "k_proj", "v_proj")
            put(prefix + "self_attn.", layer.self_attention.to_out, "out_proj")
            put_norm(prefix + "self_attn_", layer.around_self_attention)
            if side == "decoder":
                put(prefix + "encoder_attn.", layer.cross_attention.to_q, "q_proj")
                put(prefix + "encoder_attn.", layer.cross_attention.to_kv, "k_proj", "v_proj")
                put(prefix + "encoder_attn.", layer.cross_attention.to_out, "out_proj")
                put_norm(prefix + "encoder_attn_", layer.around_cross_attention)
            put(prefix, layer.feed_forward.to_hidden, "fc1")
            put(prefix, layer.feed_forward.to_out, "fc2")
            put_norm(prefix + "final_", layer.around_feed_forward)
    return theirs | {"lm_head.weight": model.source_embedding.weight}


@PRECISIONS
def test_hugging_face_marian_with_our_weights_gives_our_logits(dtype: torch.dtype, tolerance: float) -> None:
    transformers = pytest.importorskip("transformers")
    model = random_model(dtype, positions=Positions.sinusoidal_concat)
    config = transformers.MarianConfig(
        vocab_size=20,
        d_model=16,
        encoder_layers=2,
        decoder_layers=3,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=64,
        activation_function="relu",
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        pad_token_id=PAD,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        forced_eos_token_id=None,
    )
    reference = transformers.MarianMTModel(config).to(dtype).eval()
    loaded = reference.load_state_dict(marian_weights(model), strict=False)
    assert not loaded.unexpected_keys
    assert all(name.endswith("embed_positions.weight") for name in loaded.missing_keys)
    if dtype is torch.float64:  # Marian holds its own table in float32 only
        table = sinusoid_table(64, 16, interleaved=False, dtype=dtype, device=torch.device("cpu"))
        for stack in (reference.model.encoder, reference.model.decoder):
            stack.embed_positions.weight = nn.Parameter(table)

    source_BS, target_BT = sentences()
    logits_BTV = reference(
        input_ids=source_BS, attention_mask=source_BS != PAD, decoder_input_ids=target_BT, use_cache=False
    ).logits
    torch.testing.assert_close(model(source_BS, target_BT), logits_BTV, rtol=0, atol=tolerance)
