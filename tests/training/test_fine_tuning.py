"""init.from: a run that begins with a trained model, all of which, or a part, is trained further."""

import json
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.addons.classification.toy_classifier import OVERRIDES, write_tables
from tests.conftest import slow
from tests.data.test_extend_vocabulary import packed as foreign
from tests.support import zygote
from tests.support.each import each
from tests.toy import run as toy_run
from tests.toy.run import CPU, MODEL, model_file, packed, prepared, tokenizers
from tests.training.test_compiled import OF_TORCH, assert_same, batches, traced
from tests.training.test_ranks import codes, scenarios
from transformer_cli.cli import main
from transformer_cli.config.train import Compile, InitConfig, LoraConfig, TrainConfig
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.errors import ConfigError
from transformer_cli.models.file import ModelFile, read_model
from transformer_cli.training.checkpoints import CheckpointStore
from transformer_cli.training.floors import broken_floors
from transformer_cli.training.freezing import describe, is_trained
from transformer_cli.training.initialisation import (
    copied_layers,
    initial_tokenizers,
    initial_weights,
    read_initial_model,
    with_initial_sizes,
)
from transformer_cli.training.trainer import Trainer


def config(
    source: Path, *, freeze: tuple[str, ...] = (), init: dict[str, Any] | None = None, **train: Any
) -> TrainConfig:
    settings = InitConfig(from_=str(source), freeze=list(freeze), **(init or {}))
    return replace(toy_run.config(**train), init=settings)


def last_weights(run_dir: Path) -> dict[str, torch.Tensor]:
    store = CheckpointStore(run_dir)
    return dict(store.load_model(store.steps()[-1]).weights)


def nll_by_hand(model: ModelFile, lines: list[str]) -> float:
    """Nats per target token of copying `lines`, one sentence at a time, by the model's padded forward pass."""
    built, ids = model.build(CPU), model.tokenizers
    total, n_tokens = 0.0, 0
    for line in lines:
        (pieces,) = ids.source.encode([line])
        target = torch.tensor([*pieces, ids.target.eos_id])
        source_BS = torch.tensor([[*pieces, ids.source.eos_id]])
        with torch.no_grad():
            logits_BTV = built(source_BS, torch.tensor([[ids.target.bos_id, *pieces]]))
        total += F.cross_entropy(logits_BTV[0].double(), target, reduction="sum").item()
        n_tokens += len(target)
    return total / n_tokens


def test_training_begins_with_the_model_itself(source: Path, tmp_path: Path) -> None:
    toy_run.run(tmp_path / "run", config(source, max_steps=1, eval_every=1))
    found = [entry for entry in toy_run.metrics(tmp_path / "run") if entry["kind"] == "dev"]
    assert found[0]["step"] == 0
    assert found[0]["dev_nll"] == pytest.approx(nll_by_hand(read_model(source), prepared().dev.sources), rel=1e-5)


FREEZING = {
    "encoder": ("encoder.",),
    "embeddings": ("source_embedding.",),
    "decoder.layers.0": ("decoder.layers.0.",),
    "*.norm": ("encoder.norm.", "decoder.norm.", *(f"{side}.layers.0.around_" for side in ("encoder", "decoder"))),
    "decoder.layers.0.cross_attention.to_q.weight": ("decoder.layers.0.cross_attention.to_q.weight",),
}


@pytest.mark.parametrize(
    ("pattern", "optimizer"),
    [
        *((one, "adam") for one in FREEZING),
        ("*.norm", "muon"),
        *(slow(one, "muon") for one in FREEZING if one != "*.norm"),
    ],
)
def test_what_is_frozen_stays_as_it_was_to_the_last_bit_and_the_rest_is_trained(
    pattern: str, optimizer: str, source: Path, tmp_path: Path
) -> None:
    settings = config(source, freeze=(pattern,), optimizer=optimizer, max_steps=2, clip_norm=1.0)
    settings = replace(settings, optimizer=replace(settings.optimizer, weight_decay=0.1))
    toy_run.run(tmp_path / "run", settings)
    before, after = read_model(source).weights, last_weights(tmp_path / "run")
    frozen = {name for name in before if name.startswith(FREEZING[pattern])}
    assert frozen
    assert {name for name in before if torch.equal(before[name], after[name])} == frozen
    store = CheckpointStore(tmp_path / "run")
    names = {name.partition("/")[2] for name in store.load(2).optimizer}
    assert names == before.keys() - frozen  # nor has the optimizer any state of it


@pytest.mark.parametrize(
    "settings", [{"ema": 0.9}, {"activation_checkpointing": True}], ids=["moving average", "activation checkpointing"]
)
def test_freezing_goes_with_the_other_ways_of_training(settings: dict[str, Any], source: Path, tmp_path: Path) -> None:
    toy_run.run(tmp_path / "run", config(source, freeze=("encoder", "embeddings"), max_steps=4, **settings))
    before = read_model(source).weights
    for after in (last_weights(tmp_path / "run"), read_model(tmp_path / "run" / "model.safetensors").weights):
        same = {name for name in before if torch.equal(before[name], after[name])}
        assert same == {name for name in before if name.startswith(("encoder.", "source_embedding."))}


def test_a_resumed_run_with_frozen_parts_is_the_run_that_was_not_stopped(source: Path, tmp_path: Path) -> None:
    settings = config(source, freeze=("encoder",), save_every=1)
    # What it began with is not needed any more.
    toy_run.assert_resumes(tmp_path, settings, stopped_before=6, meanwhile=source.unlink)


def test_how_much_is_trained_is_said(source: Path) -> None:
    settings = config(source, freeze=("encoder", "embeddings"))
    trainer = Trainer(settings, tokenizers(), CPU)
    n_all = sum(x.numel() for x in trainer.model.parameters())
    n_decoder = sum(x.numel() for x in trainer.model.decoder.parameters())  # type: ignore[union-attr]
    assert describe(trainer.model, settings) == f"{n_decoder:,} of {n_all:,} parameters; frozen: encoder, embeddings"
    assert describe(trainer.model, config(source)) is None


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (("encodr",), r"init\.freeze: `encodr` is the name of no part of this model; did you mean `encoder`\?"),
        (("decoder.layers.7",), r"init\.freeze: `decoder\.layers\.7` is .* did you mean `decoder\.layers\.0`\?"),
        (("xyz",), r"Choose among embeddings, decoder, encoder, source_embedding, or a part of one"),
        (("*",), r"init\.freeze=\[\*\]: nothing is left to train"),
    ],
)
def test_a_pattern_that_names_nothing_or_all_is_refused(patterns: tuple[str, ...], message: str, source: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        with_initial_sizes(config(source, freeze=patterns), read_initial_model(config(source)))


def test_an_embedding_has_the_name_of_its_use() -> None:
    settings = replace(toy_run.config(), init=InitConfig(from_="x", freeze=["output"]))
    assert not is_trained("own_output.weight", settings)
    assert not is_trained("source_embedding.bias", settings)
    assert is_trained("own_target_embedding.weight", settings)


# Sizes and layers


def test_the_sizes_and_tokenizers_are_those_of_the_model(source: Path, caplog: pytest.LogCaptureFixture) -> None:
    wanted = replace(config(source), model=replace(MODEL, d_model=64, dropout=0.4))
    with caplog.at_level("INFO", logger="tfm"):
        start = read_initial_model(wanted)
        derived = with_initial_sizes(wanted, start)
    assert (derived.model.d_model, derived.model.dropout) == (MODEL.d_model, 0.4)
    assert f"init.from={source}: en → fr, step 7, with its tokenizer in place of data.tokenizer" in caplog.text
    assert "as there: model.d_model=16 (not 64)" in caplog.text
    assert "was trained from en to fr, and data=files is from en to xx" in caplog.text
    taken = initial_tokenizers(derived, start)
    assert taken is not None
    assert taken.source.sha256 == tokenizers().source.sha256


def test_two_tokenizers_stay_two(tmp_path: Path) -> None:
    path = tmp_path / "two.safetensors"
    model = model_file(joint=False)
    path.write_bytes(packed(model))
    start = read_initial_model(config(path))
    derived = with_initial_sizes(config(path), start)
    taken = initial_tokenizers(derived, start)
    assert taken is not None
    assert (taken.source.sha256, taken.target.sha256) == (
        model.tokenizers.source.sha256,
        model.tokenizers.target.sha256,
    )
    assert not derived.data.tokenizer.joint


@each(
    "n_old, n_new, wanted",
    [
        (3, 6, [0, 0, 1, 1, 2, 2]),
        (2, 3, [0, 0, 1]),
        (6, 3, [0, 2, 5]),
        (6, 2, [0, 5]),
        (6, 1, [0]),
        (4, 4, [0, 1, 2, 3]),
        (12, 4, [0, 4, 7, 11]),
    ],
)
def test_layers_are_repeated_or_left_out_evenly(n_old: int, n_new: int, wanted: list[int]) -> None:
    assert copied_layers(n_old, n_new) == wanted


def test_a_deeper_model_begins_with_copies_of_the_layers(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(packed(model_file(n_encoder_layers=2, n_decoder_layers=3)))
    wanted = config(path, init={"encoder_layers": 3, "decoder_layers": 2})
    start = read_initial_model(wanted)
    assert start is not None
    derived = with_initial_sizes(wanted, start)
    assert (derived.model.n_encoder_layers, derived.model.n_decoder_layers) == (3, 2)
    old, new = read_model(path).weights, initial_weights(derived, start, tokenizers())
    for side, chosen in (("encoder", [0, 0, 1]), ("decoder", [0, 2])):
        for i, j in enumerate(chosen):
            prefix, of_old = f"{side}.layers.{i}.", f"{side}.layers.{j}."
            mine = {name: x for name, x in new.items() if name.startswith(prefix)}
            assert len(mine) == sum(name.startswith(of_old) for name in old)
            assert all(torch.equal(x, old[of_old + name.removeprefix(prefix)]) for name, x in mine.items())
    trainer = Trainer(derived, tokenizers(), CPU)
    trainer.load_weights(new)  # which has every name, and no other


# Several ranks


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    return folder, scenarios("fine_tuning", folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["frozen", "lora", "16 bits"])
@pytest.mark.parametrize("other", ["2 ranks", "resumed"])
def test_several_ranks_learn_what_one_learns(ranks: tuple[Path, dict[str, Any]], name: str, other: str) -> None:
    _, outcome = ranks
    assert codes(outcome[f"{name}, {other}"]) == [0, 0]
    assert outcome[f"{name}, {other}"]["losses"] == pytest.approx(outcome[f"{name}, 1 ranks"]["losses"], rel=1e-5)


@pytest.mark.slow
def test_several_ranks_leave_what_is_frozen_as_it_was(ranks: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = ranks
    before, after = read_model(folder / "source.safetensors").weights, last_weights(folder / "frozen2")
    assert {name for name in before if torch.equal(before[name], after[name])} == {
        name for name in before if name.startswith(("encoder.", "source_embedding."))
    }


@pytest.mark.slow
def test_shards_can_be_frozen(tmp_path: Path) -> None:
    outcome = scenarios("fine_tuning_shards", tmp_path)
    assert codes(outcome["shards"]) == [0, 0]
    assert outcome["shards"]["losses"] == pytest.approx(outcome["1 ranks"]["losses"], rel=1e-5)
    before, after = read_model(tmp_path / "source.safetensors").weights, last_weights(tmp_path / "2")
    assert {name for name in before if torch.equal(before[name], after[name])} == {
        name for name in before if name.startswith(("encoder.", "source_embedding."))
    }


@pytest.mark.slow
@OF_TORCH
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize(
    "changes", [{"init": {"freeze": ["encoder", "embeddings"]}}, {"lora": {"rank": 3}}], ids=["frozen", "lora"]
)
def test_what_is_compiled_has_the_gradients_of_what_is_not(
    changes: dict[str, Any], checkpointing: bool, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced(monkeypatch)
    torch._dynamo.reset()

    def trainer(compile: Compile) -> Trainer:
        whole = toy_run.config(
            model=replace(MODEL, dropout=0.0), compile=compile, activation_checkpointing=checkpointing
        )
        init = InitConfig(from_=str(source), **changes.get("init", {}))
        return Trainer(replace(whole, init=init, lora=LoraConfig(**changes.get("lora", {}))), tokenizers(), CPU)

    compiled, plain = trainer(Compile.default), trainer(Compile.none)
    compiled.expect(batches(), longest=20)
    assert compiled.compiled_sizes
    for batch in batches(2):
        assert_same(compiled, plain, batch)
    torch._dynamo.reset()


# The command


def corpus(folder: Path, name: str, letters: str, n: int, seed: int) -> None:
    """`n` sentences of `letters`, to be copied."""
    draw = random.Random(seed)
    lines = "".join(" ".join(draw.sample(letters, k=draw.randint(2, 6))) + "\n" for _ in range(n))
    for language in ("en", "xx"):
        (folder / f"{name}.{language}").write_text(lines, encoding="utf-8")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a trained model, and text that has letters of its own."""
    monkeypatch.chdir(tmp_path)
    for name, n, seed in (("old", 60, 1), ("olddev", 6, 2)):
        corpus(tmp_path, name, "abcdefghij", n, seed)
    for name, n, seed in (("new", 60, 3), ("newdev", 6, 4)):
        corpus(tmp_path, name, "abcdefklmn", n, seed)
    assert main([*command("old"), "name=base", "train.max_steps=2", "data.name=letters"]) == 0
    return tmp_path


def command(text: str) -> list[str]:
    kept = [word for word in zygote.COMMAND if not word.startswith(("data.train", "data.dev", "data.test", "name="))]
    return [*kept, f"data.train={text}", f"data.dev={text}dev", "train.max_steps=4", "train.eval_every=2"]


def test_the_score_of_the_old_text_stands_beside_that_of_the_new(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main([*command("new"), "init.from=runs/base", "name=tuned"]) == 0
    err = capsys.readouterr().err
    line = r"^dev \(old: letters\) BLEU ([\d.]+) → ([\d.]+) · dev \(new: files\) BLEU [\d.]+ → [\d.]+$"
    (old,) = re.findall(line, err, re.MULTILINE)
    evaluated = {entry["step"]: entry for entry in toy_run.metrics(place / "runs/tuned") if entry["kind"] == "dev"}
    assert set(evaluated) == {0, 2, 4}
    shipped = read_model(place / "runs/tuned/model.safetensors")
    assert old == (f"{evaluated[0]['dev_old_bleu']:.1f}", f"{shipped.scores['dev_old_bleu']:.1f}")
    # What the model was scored with when it was trained, on the same text.
    of_base = json.loads((place / "runs/base/result.json").read_bytes())
    assert evaluated[0]["dev_old_nll"] == pytest.approx(of_base["best"]["dev_nll"], rel=1e-6)


def test_a_checkpoint_below_a_floor_is_never_the_best(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The floor is below the score that fine-tuning began with, also where a run goes on."""
    words = [*command("new"), "init.from=runs/base", "train.best_metric=nll", "schedule.lr=0.01", "train.keep_last=9"]
    assert main([*words, "name=free", "train.max_steps=8", "train.average_last=1"]) == 0
    entries = [entry for entry in toy_run.metrics(place / "runs/free") if entry["kind"] == "dev"]
    lost = {entry["step"]: entry["dev_old_nll"] - entries[0]["dev_old_nll"] for entry in entries}
    assert lost[0] == 0
    [first, *_, last] = sorted(lost, key=lambda step: lost[step])[1:]
    floor = f"train.floor={{old:{-(lost[first] + lost[last]) / 2:.9f}}}"
    allowed = [step for step in lost if step and lost[step] <= (lost[first] + lost[last]) / 2]
    capsys.readouterr()
    assert main([*words, "name=held", "train.max_steps=4", floor, "train.average_last=1"]) == 0
    assert main([*words, "name=held", "train.max_steps=8", floor, "train.average_last=1"]) == 0
    err = capsys.readouterr().err
    best = json.loads((place / "runs/held/result.json").read_bytes())["best"]["step"]
    assert best == min(allowed, key=lambda step: next(e["dev_nll"] for e in entries if e["step"] == step))
    for step in set(lost) - {0}:
        assert (f"step {step}: below train.floor, so it cannot be the best: old nll" in err) == (step not in allowed)


def test_a_part_of_the_dev_set_is_named_without_the_marks_of_its_tags() -> None:
    before = {"dev_bleu": 20.0, "dev_bleu <2fr>": 30.0, "dev_bleu >>en<< >>de<<": 9.0, "dev_old_bleu": 25.0}
    floors = {"2fr": -1.0, "en-de": -1.0, "old": -0.5}
    after = {**before, "dev_bleu <2fr>": 29.0, "dev_bleu >>en<< >>de<<": 7.9, "dev_old_bleu": 24.4}
    assert broken_floors(floors, before, after, "bleu") == [
        "en-de BLEU 9 → 7.9, allowed -1",
        "old BLEU 25 → 24.4, allowed -0.5",
    ]
    assert broken_floors({"old": -0.5}, {"dev_old_ter": 60.0}, {"dev_old_ter": 60.6}, "ter")


def test_where_nothing_keeps_a_floor_the_last_checkpoint_is_exported(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*command("new"), "init.from=runs/base", "train.best_metric=nll", "schedule.lr=0.05"]
    assert main([*words, "name=held", "train.floor={old: -0.0001}"]) == 0
    err = capsys.readouterr().err
    assert "train.floor: no checkpoint keeps it, so that the checkpoint of step 4 is exported: old nll" in err
    assert json.loads((place / "runs/held/result.json").read_bytes())["best"]["step"] == 4


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (["train.floor={old: 1.0}", "init.from=runs/base"], "train.floor={old: 1}: what a score may lose is at most 0"),
        (
            ["train.floor={odl: -1}", "init.from=runs/base"],
            "no dev set with a bleu score is called so. Choose among",
        ),
        (["train.floor={old: -1}"], "there is no model that training begins with. Name one with init.from"),
    ],
)
def test_a_floor_of_nothing_is_refused(
    place: Path, changes: list[str], fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main([*command("new"), "name=refused", *changes]) == 2
    assert fault in capsys.readouterr().err.splitlines()[-1]
    assert not list(place.glob("runs/refused/checkpoints/*"))


def test_old_text_that_is_gone_is_a_line_and_no_error(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in place.glob("olddev.*"):
        file.unlink()
    shutil.rmtree(place / "data")
    (place / "runs/base/held_out.json").unlink()  # as of a run that is older than this file
    assert main([*command("new"), "init.from=runs/base", "name=tuned", "train.max_steps=1"]) == 0
    err = capsys.readouterr().err
    assert "dev (old): the text that init.from=runs/base was trained with is not at hand" in err
    assert re.search(r"^dev \(new: files\) BLEU [\d.]+ → [\d.]+$", err, re.MULTILINE)


def test_text_that_is_no_other_is_scored_once(place: Path) -> None:
    assert main([*command("old"), "init.from=runs/base", "name=tuned", "train.max_steps=1"]) == 0
    assert "old" not in "".join(map(str, toy_run.metrics(place / "runs/tuned")[0]))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param([], marks=pytest.mark.slow),
        pytest.param(["init.extend_vocab=6"], marks=pytest.mark.slow),
        ["lora.rank=2", "lora.also=[embeddings]"],
    ],
)
def test_a_run_goes_on_when_all_that_it_began_with_is_gone(
    changes: list[str], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same command finds a run without a name, too."""
    asked = [*command("new"), "init.from=runs/base", *changes]
    assert main([*asked, "runs=whole"]) == 0
    assert main([*asked, "runs=stopped", "train.max_steps=2"]) == 0
    shutil.rmtree(place / "runs")
    for file in place.glob("old*"):
        file.unlink()
    capsys.readouterr()
    assert main([*asked, "runs=stopped"]) == 0
    assert "resuming from step 2" in capsys.readouterr().err
    (whole,), (stopped,) = (
        [run for run in (place / name).iterdir() if run.name != "latest"] for name in ("whole", "stopped")
    )
    assert whole.name == stopped.name
    checkpoints = [CheckpointStore(run).load(4) for run in (whole, stopped)]
    assert all(torch.equal(x, checkpoints[1].model.weights[name]) for name, x in checkpoints[0].model.weights.items())
    assert all(torch.equal(x, checkpoints[1].optimizer[name]) for name, x in checkpoints[0].optimizer.items())
    found = [[entry for entry in toy_run.metrics(run) if entry["kind"] == "dev"] for run in (whole, stopped)]
    assert found[0] == found[1]


def test_old_and_new_text_are_mixed_with_the_old_tokenizer(place: Path) -> None:
    mixed = [word for word in command("new") if not word.startswith("data.train=")]
    files = "data.train=[old.en,old.xx,new.en,new.xx]"
    assert main([*mixed, files, "data.weights=[1,4]", "init.from=runs/base", "name=mixed", "train.max_steps=1"]) == 0
    of_base, of_mixed = (read_model(place / f"runs/{name}/model.safetensors") for name in ("base", "mixed"))
    assert of_base.tokenizers.source.sha256 == of_mixed.tokenizers.source.sha256


def test_another_kind_of_model_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = ["train", "data=text", "data.train=new.en", "data.dev=newdev.en", "init.from=runs/base"]
    assert main(text) == 4
    assert (
        "init.from: runs/base/model.safetensors: this is a translator, and data.task=language_model needs a language"
        " model. Choose one"
    ) in capsys.readouterr().err


@pytest.mark.parametrize("changes", [slow(["init.freeze=[embeddings]"]), ["init.extend_vocab=6", "lora.rank=2"]])
def test_a_language_model_is_trained_further(changes: list[str], place: Path) -> None:
    kept = [word for word in command("new") if not word.startswith(("data", "decode", "norm"))]
    both = [*kept, "data=text", "data.tokenizer.vocab_size=25", "model.name=decoder", "data.max_length=20"]
    assert main([*both, "data.train=old.en", "data.dev=olddev.en", "name=one"]) == 0
    assert main([*both, "data.train=new.en", "data.dev=newdev.en", "name=two", "init.from=runs/one", *changes]) == 0
    before, after = (read_model(place / f"runs/{name}/model.safetensors") for name in ("one", "two"))
    n_old = len(before.tokenizers.target)
    assert len(after.tokenizers.target) == n_old + 6 * ("lora.rank=2" in changes)
    assert torch.equal(before.weights["embedding.weight"], after.weights["embedding.weight"][:n_old])
    first = next(entry for entry in toy_run.metrics(place / "runs/two") if entry["kind"] == "dev")
    assert first["step"] == 0
    assert {"dev_nll", "dev_old_nll"} <= first.keys()


@pytest.mark.slow
def test_a_classifier_begins_with_another_of_the_same_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", *OVERRIDES, *write_tables(Path(), 100), "train.max_steps=2", "train.samples=0"]
    assert main([*words, "name=one"]) == 0
    assert main([*words, "name=two", "init.from=runs/one", "init.freeze=[encoder,embeddings,output]"]) == 2
    assert main([*words, "name=two", "init.from=runs/one", "init.freeze=[encoder,embeddings]"]) == 0
    before, after = (read_model(tmp_path / f"runs/{name}/model.safetensors").weights for name in ("one", "two"))
    assert {name for name in before if not torch.equal(before[name], after[name])} == {
        "to_classes.weight",
        "to_classes.bias",
    }
    assert (before["to_classes.weight"] - after["to_classes.weight"]).abs().max() < 0.1  # of two updates
    assert main([*words, "train.ema=null", "name=three", "init.from=runs/one", "lora.rank=2"]) == 0
    after = read_model(tmp_path / "runs/three/model.safetensors").weights
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert {"to_classes.weight", "encoder.layers.0.self_attention.to_qkv.weight"} <= changed
    assert "source_embedding.weight" not in changed


def test_a_model_that_has_become_another_is_said(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = [*command("new"), "init.from=runs/base", "name=tuned"]
    assert main([*asked, "train.max_steps=1"]) == 0
    assert main([*asked, "train.max_steps=2"]) == 0
    assert "is another model now" not in capsys.readouterr().err
    (place / "runs/base/model.safetensors").write_bytes(packed(model_file(seed=9)))
    assert main([*asked, "train.max_steps=3"]) == 0
    assert "init.from=runs/base: is another model now than when this run began" in capsys.readouterr().err


@pytest.mark.parametrize("changes", [slow([]), ["init.extend_vocab=4"]])
def test_a_model_of_another_program_is_trained_further(changes: list[str], place: Path) -> None:
    """One vocabulary that the other program has numbered, with a segmenter for each language, and tied embeddings."""
    sides = [foreign(one) for one in (tokenizers().source, tokenizers().source)]
    of_target = replace(sides[1].packed, moses=None, lowercase=True)  # type: ignore[type-var]
    both = Tokenizers(sides[0], Tokenizer(of_target.to_bytes()))
    assert not both.joint
    model = replace(model_file(output_bias=True), tokenizers=both)
    (place / "foreign.safetensors").write_bytes(packed(model))
    asked = [*command("new"), "init.from=foreign.safetensors", "name=tuned", *changes]
    assert main([*asked, "train.max_steps=2"]) == 0
    assert main(asked) == 0
    tuned = read_model(place / "runs/tuned/model.safetensors")
    n_more = len(tuned.tokenizers.source) - len(both.source)
    assert n_more == len(tuned.tokenizers.target) - len(both.target)
    assert (n_more >= 4) == bool(changes)
    assert tuned.tokenizers.target.packed is not None
    assert tuned.tokenizers.target.packed.lowercase
    assert len(tuned.weights["source_embedding.bias"]) == len(tuned.tokenizers.target)


def test_tags_and_symbols_that_the_vocabulary_lacks_are_appended(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tagged = [*command("new"), 'data.tags=["<new>"]', 'data.dev_tags=["<new>"]']
    asked = [*tagged, "init.from=runs/base", "name=tuned", 'data.tokenizer.user_symbols=["[a]"]']
    assert main([*asked, "train.max_steps=2"]) == 0
    assert "appended to the vocabulary: [a], <new>" in capsys.readouterr().err
    assert main(asked) == 0  # goes on
    base, tuned = (read_model(place / f"runs/{name}/model.safetensors").tokenizers.source for name in ("base", "tuned"))
    assert tuned.pieces([len(base), len(base) + 1]) == ["[a]", "<new>"]
    assert tuned.encode(["<new> a b"])[0][0] == len(base) + 1
    assert main([*tagged, "init.from=runs/tuned", "name=again"]) == 0
    again = read_model(place / "runs/again/model.safetensors").tokenizers.source
    assert again.sha256 == tuned.sha256  # which has the tag
    assert main([*command("new"), "init.from=runs/tuned", "data.tokenizer.model=x"]) == 2
    assert "has tokenizers of its own" in capsys.readouterr().err
