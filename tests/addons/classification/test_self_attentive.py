"""The self-attentive pooling: its formula, its penalty, padding, accumulation and fine-tuning; and its registry."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.addons.classification.toy_classifier import OVERRIDES, SIZES, random_model, toy_tokenizer, write_tables
from tests.conftest import slow
from tests.support.contract import run
from transformer_cli.addons.classification.self_attentive import SelfAttentivePooling, redundancy
from transformer_cli.addons.embedding.pooling import Pooling
from transformer_cli.config.compose import load_config
from transformer_cli.config.model import ModelConfig
from transformer_cli.config.poolings import POOLINGS
from transformer_cli.data.batching import Batch, Run
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import CheckpointError, ConfigError
from transformer_cli.models.file import read_model, write_model
from transformer_cli.models.layouts import PackedLayout, PaddedLayout
from transformer_cli.models.penalty import recorded_penalties
from transformer_cli.models.registry import check_model
from transformer_cli.training.initialisation import Initial, initial_weights, with_initial_sizes
from transformer_cli.training.trainer import Trainer

CPU = torch.device("cpu")
OPTIONS = {"hops": 3, "width": 5, "penalty": 0.5}
SELF_ATTENTIVE = replace(SIZES, pooling="self_attentive", pooling_options=OPTIONS)


def pooling(penalty: float = 0.5) -> SelfAttentivePooling:
    torch.manual_seed(1)
    return SelfAttentivePooling(4, hops=3, width=5, penalty=penalty).double()


def by_the_paper(part: SelfAttentivePooling, h_LD: Tensor) -> tuple[Tensor, Tensor]:
    """A and M of one sentence, as equations 6 and 7 print them."""
    a_RL = torch.softmax(part.to_hops.weight @ torch.tanh(part.to_hidden.weight @ h_LD.T), dim=1)
    return a_RL, a_RL @ h_LD


def test_packed_padded_and_single_sentences_are_pooled_as_in_the_paper() -> None:
    part = pooling()
    sentences = [torch.randn(n, 4, dtype=torch.float64) for n in (3, 3, 5)]
    expected = torch.stack([by_the_paper(part, h_LD)[1].flatten() for h_LD in sentences])
    packed_S = torch.cat(sentences)
    grouped = PackedLayout.of_groups([(2, 3), (1, 5)], CPU)
    torch.testing.assert_close(part(packed_S, grouped), expected)
    offsets_N = torch.tensor([0, 3, 6, 11], dtype=torch.int32)
    on_device = PackedLayout(7, grouped.positions, cu_seqlens_N=offsets_N)  # 7: no sentence is longer
    torch.testing.assert_close(part(packed_S, on_device), expected)
    x_BSD = torch.full((3, 6, 4), 99.0, dtype=torch.float64)
    for row_SD, h_LD in zip(x_BSD, sentences, strict=True):
        row_SD[: len(h_LD)] = h_LD
    is_real_BS = torch.arange(6) < torch.tensor([[3], [3], [5]])
    torch.testing.assert_close(part(x_BSD, PaddedLayout(6, is_real_BS[:, None, None, :])), expected)
    weights_NRL = part.token_weights(x_BSD, is_real_BS)
    assert (weights_NRL.masked_select(~is_real_BS[:, None].expand_as(weights_NRL)) == 0).all()
    torch.testing.assert_close(weights_NRL.sum(-1), torch.ones(3, 3, dtype=torch.float64))


@pytest.mark.parametrize(
    ("rows", "by_hand"),
    [
        ([[1.0, 0.0], [0.0, 1.0]], 0.0),  # A Aᵀ = I
        ([[0.5, 0.5], [0.5, 0.5]], 1.0),  # A Aᵀ - I = [[-½, ½], [½, -½]]
        ([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]], 0.75),  # [[0, ½], [½, -½]]
        ([[1.0, 0.0], [1.0, 0.0]], 2.0),  # [[0, 1], [1, 0]]
    ],
)
def test_the_penalty_of_two_hops_is_what_a_hand_computation_gives(rows: list[list[float]], by_hand: float) -> None:
    a_1RL = torch.tensor([rows])
    assert redundancy(a_1RL, torch.tensor([True])).item() == pytest.approx(by_hand)
    both = redundancy(a_1RL.repeat(3, 1, 1), torch.tensor([True, True, False]))  # the last is of padding
    assert both.item() == pytest.approx(2 * by_hand)


def test_the_penalty_is_recorded_in_training_alone() -> None:
    part, x_BSD = pooling(), torch.randn(2, 4, 4, dtype=torch.float64)
    with recorded_penalties([part]) as recorded:
        part(x_BSD, PaddedLayout(4))
    expected = sum(
        0.5 * (a_RL @ a_RL.T - torch.eye(3)).square().sum() for a_RL, _ in (by_the_paper(part, h) for h in x_BSD)
    )
    torch.testing.assert_close(torch.stack(recorded), torch.as_tensor(expected).reshape(1))
    part(x_BSD, PaddedLayout(4))
    assert len(recorded) == 1
    with recorded_penalties([pooling(penalty=0)]) as recorded:
        part(x_BSD, PaddedLayout(4))
    assert recorded == []


def trainer(tmp_path: Path, *overrides: str) -> Trainer:
    options = [f"model.pooling_options.{name}={value}" for name, value in OPTIONS.items()]
    given = [*OVERRIDES, *write_tables(tmp_path, 20), "model.dropout=0", "model.pooling=self_attentive", *options]
    config = load_config("train", [*given, "device=cpu", "train.ema=null", *overrides])
    return Trainer(config, Tokenizers(toy_tokenizer(), toy_tokenizer(), ("high", "low", "middle")), CPU)


def sentences(lengths: list[int]) -> Batch:
    torch.manual_seed(2)
    targets = torch.randint(0, 3, (len(lengths),))
    return Batch(torch.randint(4, 30, (sum(lengths),)), targets, targets, [Run(1, n, 1) for n in lengths])


def test_the_loss_of_an_update_does_not_depend_on_its_parts(tmp_path: Path) -> None:
    """The same four sentences in one batch, and in two."""
    whole = sentences([2, 3, 5, 6])
    of_one, of_two = trainer(tmp_path), trainer(tmp_path)
    one = of_one.train_step([whole], step=1, lr=0.01)
    two = of_two.train_step(list(whole.halves()), step=1, lr=0.01)
    torch.testing.assert_close(one.loss, two.loss)
    torch.testing.assert_close(one.grad_norm, two.grad_norm)
    assert one.loss > one.nll + 0.1  # three hops over a few tokens are penalised
    without = trainer(tmp_path, "model.pooling_options.penalty=0").train_step([whole], step=1, lr=0.01)
    torch.testing.assert_close(without.nll, one.nll)
    assert without.loss < one.loss


@pytest.mark.parametrize("setting", [slow("train.rdrop=1"), "train.simcut=1"])
def test_of_two_passes_the_penalty_is_the_mean(tmp_path: Path, setting: str) -> None:
    """The loss is that of one pass where, without dropout or cut tokens, both are equal."""
    noise = ["model.dropout=0.5"]  # which the check asks for; it is not drawn in evaluation mode
    given, losses = sentences([2, 3, 5, 6]), []
    for overrides in ([], [*noise, setting, *(["train.token_cutoff=0"] if "simcut" in setting else [])]):
        one = trainer(tmp_path, *overrides)
        one.model.eval()
        losses.append(one._loss(given)[0])
    torch.testing.assert_close(losses[0], losses[1])


def test_a_run_trains_resumes_and_classifies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["train", *OVERRIDES, *write_tables(tmp_path, 60), "device=cpu", "name=run", "model.pooling=self_attentive"]
    assert run([*given, "model.pooling_options.hops=2", "train.max_steps=2"], tmp_path).code == 0
    model = read_model(tmp_path / "runs/run/model.safetensors")
    assert model.weights["to_classes.weight"].shape == (3, 2 * SIZES.d_model)
    refused = run([*given, "model.pooling_options.hops=3", "train.max_steps=3"], tmp_path)
    assert refused.code == 2
    assert b"model.pooling_options.hops" in refused.err
    classified = run(["classify", "--checkpoint", "runs/run", "device=cpu"], tmp_path, stdin=b"a HI\n\nb LO\n")
    assert (classified.code, len(classified.out.split(b"\n"))) == (0, 4)


@pytest.mark.parametrize(
    ("changes", "taken"),
    [
        ({}, {"pooling.to_hops.weight", "to_classes.weight"}),
        ({"pooling_options": {**OPTIONS, "hops": 2}}, set[str]()),
        ({"pooling": "mean", "pooling_options": {}}, set[str]()),
    ],
)
def test_a_run_begins_with_a_head_that_is_pooled_alike(
    tmp_path: Path, changes: dict[str, Any], taken: set[str]
) -> None:
    start = Initial(Path("x"), random_model(replace(SELF_ATTENTIVE, **changes)), is_resumed=False)
    options = [f"model.pooling_options.{name}={value}" for name, value in OPTIONS.items()]
    overrides = [*OVERRIDES, *write_tables(tmp_path, 20), "init.from=x", "model.pooling=self_attentive", *options]
    config = with_initial_sizes(load_config("train", [*overrides, "init.freeze=[pooling]"]), start)
    found = initial_weights(config, start, start.model.tokenizers)
    assert {name for name in found if not name.startswith(("encoder", "source"))} & {
        "pooling.to_hops.weight",
        "to_classes.weight",
    } == taken


# ---- The registry


def test_names_and_settings_are_refused_in_one_line() -> None:
    for config, says in (
        (ModelConfig(name="classifier", pooling="mine"), "no pooling called `mine`"),
        (ModelConfig(name="classifier", pooling="self_attentiv"), "did you mean `self_attentive`"),
        (
            ModelConfig(name="classifier", pooling="mean", pooling_options={"hops": 3}),
            "model.pooling_options.hops: pooling `mean` has no such option",
        ),
        (
            ModelConfig(name="classifier", pooling="self_attentive", pooling_options={"hop": 3}),
            "model.pooling_options.hop: unknown key; did you mean `model.pooling_options.hops`",
        ),
        (
            ModelConfig(name="classifier", pooling="self_attentive", pooling_options={"hops": 0}),
            "model.pooling_options.hops=0: out of range. Choose a value of at least 1 and at most 1,000",
        ),
    ):
        with pytest.raises(ConfigError) as refused:
            check_model(config)
        assert says in str(refused.value)
    with pytest.raises(ConfigError, match=r"model\.pooling=self_attentive: only of a classifier"):
        ModelConfig(name="tagger", pooling="self_attentive")


class Last(Pooling):
    """The state of the last token."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.width = config.d_model

    def of_sentences(self, x_NLD: Tensor, is_real_NL: Tensor) -> Tensor:
        return x_NLD[torch.arange(len(x_NLD)), is_real_NL.sum(1) - 1]


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POOLINGS, "_entries", dict(POOLINGS._entries))
    monkeypatch.setattr("transformer_cli.models.file.loaded_plugins", lambda: ["mine"])


@pytest.mark.usefixtures("own_registry")
def test_a_model_with_a_pooling_of_a_plugin_names_the_plugin(tmp_path: Path) -> None:
    POOLINGS.register("last")(Last)
    path = tmp_path / "model.safetensors"
    write_model(path, random_model(replace(SIZES, pooling="last")))
    read_model(path)
    del POOLINGS._entries["last"]
    with pytest.raises(CheckpointError, match="its pooling 'last' comes from the plugin mine, which is code of its"):
        read_model(path)


@pytest.mark.usefixtures("own_registry")
def test_what_is_no_pooling_is_refused_where_it_is_registered_or_made() -> None:
    with pytest.raises(ConfigError, match=r"a pooling is a function of \(config\), and this is a int"):
        POOLINGS.register("seven")(7)
    POOLINGS.register("empty")(lambda config: torch.nn.Identity())
    with pytest.raises(ConfigError, match="returned a Identity, not a Pooling with a `width`"):
        random_model(replace(SIZES, pooling="empty"))
