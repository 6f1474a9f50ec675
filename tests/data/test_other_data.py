"""A run that goes on with other data than before: what is refused, and which dev scores still compete."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.each import each
from tests.toy.run import CPU, config, metrics, prepared, run, sentences, tokenizer, tokenizers, train, tree
from tests.training.test_training import score_as
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import DataError
from transformer_cli.models.file import read_model
from transformer_cli.training.checkpoints import Checkpoint, CheckpointStore
from transformer_cli.training.main_process import MainProcess
from transformer_cli.training.resuming import refuse_other_data
from transformer_cli.training.validation import TranslationValidator, make_validator

OTHER_PIECES = Tokenizers(tokenizer("target"), tokenizer("target"))
DEV = sentences(6, seed=3)
OTHER_DEV = replace(prepared(), dev=ParallelText(DEV, DEV), fingerprint="other dev")


def settings(*, force: bool = True, **train: Any) -> TrainConfig:
    """Evaluated and saved at each second step."""
    return replace(config(**{"max_steps": 4, "eval_every": 2, "keep_last": 1, "average_last": 1, **train}), force=force)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has ended at step 4, whose best was step 2."""
    folder = tmp_path_factory.mktemp("unchanged")
    with pytest.MonkeyPatch.context() as patch:
        score_as(patch, 9.0, 8.0)
        run(folder, settings())
    return folder


@pytest.fixture
def folder(unchanged: Path, tmp_path: Path) -> Path:
    """The same, to go on with."""
    copy = tmp_path / "run"
    shutil.copytree(unchanged, copy, symlinks=True)
    return copy


def best_step(folder: Path) -> int:
    found: int = json.loads((folder / "result.json").read_bytes())["best"]["step"]
    return found


def newest(folder: Path) -> Checkpoint:
    checkpoint = CheckpointStore(folder).newest()
    assert checkpoint is not None
    return checkpoint


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("is_own", [True, False])
def test_A21_another_vocabulary_of_the_same_size_is_always_refused(
    tmp_path: Path, folder: Path, force: bool, is_own: bool
) -> None:
    before, now = tokenizers().source.sha256[:12], OTHER_PIECES.source.sha256[:12]
    assert len(OTHER_PIECES.source) == len(tokenizers().source)
    untouched = {name: content for name, content in tree(folder).items() if name != "tfm.log"}
    new = replace(prepared(), tokenizers=OTHER_PIECES, fingerprint="other")
    wanted = replace(settings(force=force, max_steps=6), resume="auto" if is_own else str(folder))
    target = folder if is_own else tmp_path / "new"
    target.mkdir(exist_ok=True)
    with pytest.raises(DataError) as refused:
        train(wanted, new, target, device=CPU)
    where = folder if is_own else f"resume={folder}"
    assert str(refused.value) == (
        f"{where}: the checkpoint of step 4 has another vocabulary than these data: the source tokenizer had SHA-256"
        f" {before}, and now {now}. Restore the data and data.tokenizer that it was trained with, or train a new model"
        " with another name= and without resume=. To train a model further on other text, name it with init.from"
    )
    assert {name: content for name, content in tree(folder).items() if name != "tfm.log"} == untouched


def test_A21_the_same_number_of_other_classes_is_always_refused(folder: Path) -> None:
    checkpoint = newest(folder)
    model = replace(checkpoint.model, tokenizers=replace(tokenizers(), labels=("ham", "spam")))
    swapped = replace(prepared(), tokenizers=replace(tokenizers(), labels=("spam", "ham")))
    with pytest.raises(DataError, match=r"its labels were 'ham, spam', and now 'spam, ham'\. Restore the data"):
        refuse_other_data(str(folder), replace(checkpoint, model=model), swapped, force=True)


def test_scores_on_another_dev_set_do_not_compete_with_earlier_ones(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert (folder / "best").readlink() == Path("checkpoints/step-00000002")
    score_as(monkeypatch, 1.0, 3.0)  # of step 4 again, on the new dev set; of step 6
    result = train(settings(max_steps=6), OTHER_DEV, folder, device=CPU)
    logged = [message for message in caplog.messages if "do not compare" in message]
    assert logged == [
        "step 4: data.dev changed, so earlier dev scores do not compare with those from now on:"
        " the best checkpoint is chosen, and patience counted, from here"
    ]
    assert (best_step(folder), result.dev_score) == (6, 3.0)
    assert read_model(result.model_path).step == 6
    assert (folder / "best").readlink() == Path("checkpoints/step-00000006")
    scored = [(entry["step"], entry["dev_bleu"]) for entry in metrics(folder) if entry["kind"] == "dev"]
    assert scored == [(2, 9.0), (4, 1.0), (6, 3.0)]


def test_what_was_best_on_another_dev_set_is_kept_as_a_checkpoint_like_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MainProcess, "recording", stop)
    with pytest.raises(KeyboardInterrupt):
        train(settings(max_steps=6), OTHER_DEV, folder, device=CPU)
    assert CheckpointStore(folder).steps() == [2, 4]
    assert not (folder / "best").is_symlink()


def stop(*args: Any) -> None:
    raise KeyboardInterrupt


def test_a_finished_run_is_scored_again_on_another_dev_set(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    score_as(monkeypatch, 1.0)
    assert train(settings(), OTHER_DEV, folder, device=CPU).dev_score == 1.0
    assert best_step(folder) == 4
    score_as(monkeypatch, 0.1)
    assert train(settings(), OTHER_DEV, folder, device=CPU).dev_score == 1.0  # and then it is finished


def test_patience_begins_anew_with_another_dev_set(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert train(settings(max_steps=8, patience=1), prepared(), folder, device=CPU).step == 4  # it has run out
    score_as(monkeypatch, 1.0, 0.5)
    assert train(settings(max_steps=8, patience=1), OTHER_DEV, folder, device=CPU).step == 6


def test_other_training_text_with_the_same_dev_set_leaves_the_best_where_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    score_as(monkeypatch, 8.0)
    train(settings(max_steps=6), replace(prepared(), fingerprint="other text"), folder, device=CPU)
    assert best_step(folder) == 2
    assert "do not compare" not in caplog.text


def test_scores_by_another_metric_do_not_compete(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    score_as(monkeypatch, 1.0)
    train(settings(max_steps=6, best_metric="nll"), prepared(), folder, device=CPU)
    assert "step 4: train.best_metric (bleu, now nll) changed, so earlier" in caplog.text
    assert best_step(folder) == 4  # the first that was scored so; what is as good later is no better


def ranked_by(settings: TrainConfig) -> dict[str, Any]:
    return make_validator(settings, prepared(), CPU).ranked_by()


@each(
    "key, changed",
    [
        ("train.eval_lines", config(eval_lines=3)),
        ("decode", replace(config(), decode=DecodeConfig(search="beam", beam_size=2))),
        ("data.max_length", replace(config(), data=replace(config().data, max_length=19))),
        (None, replace(config(), decode=replace(config().decode, batch_tokens=7))),  # how, not what
        (None, config(eval_lines=50)),  # the dev set has 6
        (None, config(patience=9)),
    ],
)
def test_what_a_dev_score_depends_on_decides_whether_it_competes(key: str | None, changed: TrainConfig) -> None:
    before, now = ranked_by(config()), ranked_by(changed)
    assert [name for name in before if before[name] != now[name]] == [key] * (key is not None)


def test_a_translation_metric_of_another_kind_has_another_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    before = ranked_by(config())
    monkeypatch.setattr(TranslationValidator, "metric_signature", lambda self: "chrF2")
    assert before != ranked_by(config())


def test_a_search_option_that_a_later_tfm_adds_leaves_the_ranks() -> None:
    assert ranked_by(config())["decode"] == {"search": "greedy", "beam_size": 1, "max_extra_length": 5}
