"""The model: what it computes, against torch's own layers, and runs of it.

Shapes: B batch, S source, T masked tokens, D width, V vocabulary.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.addons.masked_language_models.toy_masked import (
    MODEL,
    SIZES,
    config,
    content,
    masked_model,
    prepared,
    run,
    tokenizer,
)
from tests.support.contract import refused
from tests.support.contract import run as tfm
from tests.toy import run as toy_run
from tests.toy.models import torchs_layers
from tests.toy.run import dying_at, metrics, packed
from tests.toy.run import model_file as translator_file
from tests.toy.translator import sentences
from transformer_cli.addons.masked_language_models.change import MaskTokens
from transformer_cli.addons.masked_language_models.keys import Masking
from transformer_cli.addons.masked_language_models.masked_language_model import MaskedLanguageModel
from transformer_cli.addons.masked_language_models.masking import as_targets, mask_id, masked
from transformer_cli.addons.masked_language_models.validator import dev_seeds
from transformer_cli.config.model import Activation, ModelConfig, Norm, Positions
from transformer_cli.data.batching import micro_batches
from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.data.feed import Feed
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import ConfigError
from transformer_cli.models.file import read_model
from transformer_cli.models.kernel_choice import PackedKernel
from transformer_cli.training.divergence_dump import diagnose
from transformer_cli.training.dry_run import BatchShape, DryRun, batch_of
from transformer_cli.training.forward import predict_batch
from transformer_cli.training.trainer import Trainer

CPU = torch.device("cpu")
IDS = tokenizer()
VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "learned": {"positions": Positions.learned, "max_positions": 64, "norm": Norm.pre},
    "rotary": {"positions": Positions.rotary, "norm": Norm.pre, "activation": Activation.swiglu},
    "narrow, unscaled": {"d_embedding": 6, "scale_embeddings": False},
}
every_variant = pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())


def pairs(n: int = 6) -> EncodedCorpus:
    ids = [[*one, IDS.eos_id] for one in IDS.encode(sentences(n, seed=4))]
    return masked(as_targets(ids), dev_seeds(n), IDS, Masking())


def by_sentence(model: MaskedLanguageModel, corpus: EncodedCorpus) -> Tensor:
    """The logits of all masked tokens, [T, V], from one forward pass for each sentence."""
    assert corpus.word_ends is not None
    found = []
    for n in range(len(corpus)):
        ids = corpus.source_ids[corpus.source_offsets[n] : corpus.source_offsets[n + 1]]
        places = corpus.word_ends[corpus.target_offsets[n] : corpus.target_offsets[n + 1]]
        found.append(model(torch.from_numpy(ids)[None])[0, torch.from_numpy(places)])
    return torch.cat(found)


@every_variant
@pytest.mark.parametrize("kernel", list(PackedKernel))
@torch.no_grad()
def test_a_packed_batch_gives_the_logits_of_each_sentence_alone(changes: dict[str, Any], kernel: PackedKernel) -> None:
    model, corpus = masked_model(ModelConfig(**{**SIZES, **changes})), pairs()
    if kernel is PackedKernel.varlen:
        pytest.skip("on a GPU only")
    (batch,) = micro_batches(corpus, np.arange(len(corpus)), Tokenizers(IDS, IDS), max_tokens=10_000)
    logits_TV, targets_T = predict_batch(model, batch, CPU, kernel)
    expected_TV = by_sentence(model, corpus)
    found = sorted(zip(targets_T.tolist(), logits_TV.sum(-1).tolist(), strict=True))
    wanted = sorted(zip(corpus.target_ids.tolist(), expected_TV.sum(-1).tolist(), strict=True))
    torch.testing.assert_close(torch.tensor(found), torch.tensor(wanted), atol=1e-3, rtol=1e-4)


@every_variant
@torch.no_grad()
def test_padding_changes_nothing(changes: dict[str, Any]) -> None:
    model = masked_model(ModelConfig(**{**SIZES, **changes}))
    ids_BS = torch.tensor([[IDS.bos_id, 40, model.mask_id, 42, IDS.eos_id]])
    padded_BS = F.pad(ids_BS, (0, 3), value=IDS.pad_id)
    torch.testing.assert_close(model(padded_BS)[:, :5], model(ids_BS), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("norm", Norm)
@torch.no_grad()
def test_the_loss_is_that_of_torchs_layers_and_bert_s_head_with_our_weights(norm: Norm) -> None:
    """Encoder, GELU layer, norm, tied output and bias, as transformers' BertForMaskedLM has them."""
    model, corpus = masked_model(ModelConfig(**SIZES, norm=norm)), pairs()
    for parameter in model.parameters():
        if parameter.ndim == 1:
            nn.init.normal_(parameter, mean=0.5, std=0.2)
    reference = torchs_layers(model.encoder, norm)
    own, losses = model.state_dict(), []
    assert corpus.word_ends is not None
    for n in range(len(corpus)):
        ids = corpus.source_ids[corpus.source_offsets[n] : corpus.source_offsets[n + 1]].tolist()
        position_S1, exponent_D = torch.arange(len(ids))[:, None], torch.arange(8) / 8  # section 3.5: sin, cos, …
        angle_SD = position_S1 / 10_000**exponent_D
        sinusoids_SD = torch.stack([angle_SD.sin(), angle_SD.cos()], dim=-1).flatten(1)
        rows = [model.mask_embedding if i == mask_id(IDS) else 4 * own["source_embedding.weight"][i] for i in ids]
        y_SD = reference((torch.stack(rows) + sinusoids_SD)[None])[0]
        hidden_SD = F.gelu(y_SD @ own["head.to_hidden.weight"].T + own["head.to_hidden.bias"])
        norm_SD = F.layer_norm(hidden_SD, (16,), own["head.norm.weight"], own["head.norm.bias"])
        logits_SV = norm_SD @ own["source_embedding.weight"].T + own["source_embedding.bias"]
        chosen = slice(corpus.target_offsets[n], corpus.target_offsets[n + 1])
        for place, token in zip(corpus.word_ends[chosen], corpus.target_ids[chosen], strict=True):
            losses.append(-float(logits_SV[int(place)].log_softmax(-1)[int(token)]))
    (batch,) = micro_batches(corpus, np.arange(len(corpus)), Tokenizers(IDS, IDS), max_tokens=10_000)
    logits_TV, targets_T = predict_batch(model, batch, CPU)
    assert F.cross_entropy(logits_TV, targets_T).item() == pytest.approx(sum(losses) / len(losses), abs=1e-4)


def test_an_update_is_the_same_whatever_its_batches() -> None:
    """The loss is divided by the masked tokens of the whole update."""
    updates = []
    for limit in (30, 10_000):
        settings = config(max_tokens_per_microbatch=limit)
        trainer = Trainer(settings, prepared().tokenizers, CPU)
        trainer.model.eval()  # without dropout, which is drawn for each batch
        stats = trainer.train_step(Feed(settings, prepared()).batches(1), step=1, lr=0.01)
        updates.append((float(stats.loss), stats.n_tokens, float(stats.grad_norm)))
    assert updates[0] == pytest.approx(updates[1], rel=1e-5)
    assert updates[0][1] == Feed(config(), prepared()).pairs(1).target_lengths.sum()


def test_an_update_that_diverges_can_be_written_down_as_text() -> None:
    settings = config()
    trainer, pairs = Trainer(settings, prepared().tokenizers, CPU), Feed(settings, prepared()).pairs(1)
    assert mask_id(IDS) in pairs.source_ids
    findings = diagnose(trainer, pairs, prepared().tokenizers, settings.data.trained, step=1)
    texts = [text for finding in findings for text in finding.pairs]
    assert len(texts) == len(pairs)
    assert any(source and target for source, target in texts)


def test_a_dry_run_has_masks_and_its_largest_batches_their_share_of_targets() -> None:
    dry_run = DryRun(config(), prepared(), CPU)
    dry_run.warm_up()
    assert dry_run.seconds_per_token > 0
    batch = batch_of(BatchShape(4, 20), dry_run.corpus, prepared().tokenizers)
    share = len(dry_run.corpus.target_ids) / len(dry_run.corpus.source_ids)
    assert batch.n_target_tokens == 4 * math.ceil(19 * share)
    assert dry_run.run([batch]) > 0


# ---- Training


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    run(folder)
    return folder


@torch.no_grad()
def test_the_shipped_model_has_the_dev_scores_of_masks_that_no_setting_of_the_run_changes(trained: Path) -> None:
    shipped = read_model(trained / "model.safetensors")
    model = shipped.build_as(MaskedLanguageModel, CPU)
    lines = prepared().dev.targets
    ids = [[*one, IDS.eos_id] for one in IDS.encode(lines)]
    corpus = masked(as_targets(ids), dev_seeds(len(lines)), IDS, Masking())
    logits_TV, targets_T = by_sentence(model, corpus), torch.from_numpy(corpus.target_ids)
    assert shipped.scores["dev_nll"] == pytest.approx(F.cross_entropy(logits_TV, targets_T).item(), abs=1e-5)
    right = (logits_TV.argmax(-1) == targets_T).float().mean().item()
    assert shipped.scores["dev_accuracy"] == pytest.approx(100 * right, abs=1e-4)


def test_a_resumed_run_is_the_run_that_was_never_stopped(trained: Path, tmp_path: Path) -> None:
    with dying_at(8):
        run(tmp_path)
    run(tmp_path)
    assert metrics(tmp_path) == metrics(trained)
    assert (tmp_path / "model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()


# ---- Commands


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A masked language model `m`, a translator `t`, and a text."""
    place = tmp_path_factory.mktemp("masked")
    (place / "m").write_bytes(content())
    (place / "t").write_bytes(packed(translator_file()))
    (place / "text").write_text("the cat drank milk .\n\na  pretty woman sat down\n", encoding="utf-8")
    return place


@torch.no_grad()
def test_evaluate_masks_each_token_in_turn(folder: Path) -> None:
    ran = tfm(["evaluate", "--checkpoint", "m", "--source", "text", "--json", "--device", "cpu"], folder)
    assert ran.code == 0, ran.err
    found, model = json.loads(ran.out), masked_model()
    log_probs, n_right = [], 0
    for (ids,) in (IDS.encode([line]) for line in ("the cat drank milk .", "a  pretty woman sat down")):
        for place, token in enumerate(ids):
            masked_ids = [IDS.bos_id, *ids[:place], model.mask_id, *ids[place + 1 :], IDS.eos_id]
            log_p_V = model(torch.tensor([masked_ids]))[0, place + 1].log_softmax(-1)
            log_probs.append(float(log_p_V[token]))
            n_right += int(log_p_V.argmax()) == token
    assert (found["n_lines"], found["n_blank"], found["n_words"]) == (3, 1, 10)
    assert found["n_tokens"] == len(log_probs)
    assert found["log_prob"] == pytest.approx(sum(log_probs), abs=1e-3)
    assert found["pseudo_perplexity_per_token"] == pytest.approx(math.exp(-sum(log_probs) / len(log_probs)), rel=1e-4)
    assert found["pseudo_perplexity_per_word"] == pytest.approx(math.exp(-sum(log_probs) / 10), rel=1e-4)
    assert found["accuracy"] == pytest.approx(100 * n_right / len(log_probs))


def test_the_command_trains_on_plain_text_and_its_encoder_begins_a_classifier(tmp_path: Path) -> None:
    for name, seed in (("corpus", 1), ("dev", 2), ("test", 3)):
        lines = sentences(60 if name == "corpus" else 6, seed=seed)
        (tmp_path / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    labelled = "".join(f"{n % 2}\t{line}\n" for n, line in enumerate(sentences(60, seed=1)))
    (tmp_path / "labels.tsv").write_text(labelled, encoding="utf-8")
    files = [f"data.{split}={name}.txt" for split, name in (("train", "corpus"), ("dev", "dev"), ("test", "test"))]
    sizes = ["model.d_model=16", "model.n_heads=2", "model.d_ff=16", "data.tokenizer.vocab_size=60"]
    steps = ["train.max_steps=2", "train.tokens_per_update=256", "train.max_tokens_per_microbatch=256", "device=cpu"]
    ran = tfm(["train", "model=tiny", "data=masked_text", *files, *sizes, *steps, "name=m"], tmp_path)
    assert ran.code == 0, ran.err
    assert b"tfm fill" in ran.err
    again = tfm(["evaluate", "--checkpoint", "runs/m", "--device", "cpu"], tmp_path)
    assert (again.code, again.out) == (0, ran.out)
    started = tfm(["train", "data=labels", "data.train=labels.tsv", "init.from=runs/m", *steps, "name=c"], tmp_path)
    assert started.code == 0, started.err
    before, after = (read_model(tmp_path / "runs" / name / "model.safetensors") for name in ("m", "c"))
    assert after.tokenizers.source.sha256 == before.tokenizers.source.sha256
    assert (after.kind, after.config.d_model) == ("classifier", 16)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["translate", "--checkpoint", "m"], 4, ["this is a masked language model; use `tfm fill`"]),
        (["generate", "--checkpoint", "m"], 4, ["this is a masked language model; use `tfm fill`"]),
        (["classify", "--checkpoint", "m"], 4, ["this is a masked language model; use `tfm fill`"]),
        (["score", "--checkpoint", "m", "--source", "text"], 4, ["this is a masked language model; use `tfm fill`"]),
        (["export", "ctranslate2", "--checkpoint", "m", "--output", "x"], 4, ["this is a masked language model"]),
        (["evaluate", "--checkpoint", "m", "--checkpoint", "m", "--source", "text"], 2, ["a second masked language"]),
        (["evaluate", "--checkpoint", "m", "data=demo_en_fr"], 2, ["data=demo_en_fr", "--source FILE"]),
        (["train", "data=masked_text", "data.train=text", "recipe=files"], 2, ["model.name=encoder"]),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(folder: Path, arguments: list[str], code: int, says: list[str]) -> None:
    refused(arguments, folder, code=code, says=says)


def test_the_masks_are_refused_for_another_task() -> None:
    with pytest.raises(ConfigError, match=r"data\.changes: mask_tokens is of data\.task=masked_language_model"):
        MaskTokens(toy_run.config(), prepared())


def test_the_sizes_of_the_toy_are_those_counted_by_hand() -> None:
    """V × 16 embeddings and V biases, the mask, two layers, the last norm; 16² + 16 and a norm in the head."""
    n_layer = 4 * (16**2 + 16) + 2 * 16 * 32 + 32 + 16 + 2 * 2 * 16
    expected = len(IDS) * 17 + 16 + 2 * n_layer + 32 + 16**2 + 16 + 32
    assert sum(parameter.numel() for parameter in masked_model(MODEL).parameters()) == expected
