"""The warning of a dev score that is no more than chance, once, and only when the warm-up is long over."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.toy.run import config, run
from transformer_cli.config.train import ScheduleConfig
from transformer_cli.evaluation.metrics import Score
from transformer_cli.training import low_score
from transformer_cli.training.low_score import low_score_warning
from transformer_cli.training.progress import Progress
from transformer_cli.training.validation import DevScores, TranslationScores

SETTINGS = config(max_steps=1000, schedule=ScheduleConfig(name="constant", lr=0.01, warmup_steps=100))


def warning(step: int, evaluated: int, bleu: float = 0.4, name: str = "BLEU", max_steps: int = 1000) -> str:
    settings = replace(SETTINGS, train=replace(SETTINGS.train, max_steps=max_steps))
    scores = TranslationScores(6.5, {name.lower(): Score(name, bleu, "scripted")}, [])
    progress = Progress(step=step, evaluated=evaluated)
    return low_score_warning(settings, progress, scores, updates_per_epoch=160)


def test_it_names_the_likely_causes_and_how_to_check_each() -> None:
    assert warning(240, 160) == (
        "dev BLEU is 0.40, which is no more than chance, although the warm-up is long over. Likely causes: lines that"
        " are not translations of each other, swapped sides or other languages (`tfm doctor` with the same arguments"
        " finds these); a learning rate that is too high (the same command with schedule.lr=0.005 and another name=);"
        " too few updates (1.5 epochs until now; if the dev nll, 6.500, still falls, wait or raise train.max_steps)"
    )


@pytest.mark.parametrize(
    ("step", "evaluated", "bleu", "name", "max_steps", "is_warned"),
    [
        (199, 100, 0.4, "BLEU", 1000, False),  # two warm-ups are 200 updates
        (200, 100, 0.4, "BLEU", 1000, True),
        (280, 200, 0.4, "BLEU", 1000, False),  # once
        (240, 160, 1.1, "BLEU", 1000, False),
        (240, 160, 4.0, "chrF2", 1000, True),
        (240, 160, 0.4, "BLEU", 240, False),  # the last evaluation: the end of the run reports it
    ],
)
def test_it_comes_once_after_two_warm_ups(
    step: int, evaluated: int, bleu: float, name: str, max_steps: int, is_warned: bool
) -> None:
    assert bool(warning(step, evaluated, bleu, name, max_steps)) is is_warned


def test_what_does_not_translate_has_no_such_score() -> None:
    progress = Progress(step=240, evaluated=160)
    assert low_score_warning(SETTINGS, progress, DevScores(6.5), updates_per_epoch=160) == ""


@pytest.mark.parametrize(("least", "n_lines"), [(2, 1), (200, 0)])
def test_a_run_warns_in_one_line_but_not_in_its_first_updates(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, least: int, n_lines: int
) -> None:
    monkeypatch.setattr(low_score, "UPDATES", least)
    run(tmp_path, config(eval_every=2, max_steps=6, samples=0))
    lines = [message for message in caplog.messages if "Likely causes" in message]
    assert len(lines) == n_lines
    assert all(re.match(r"step 2: dev BLEU is 0\.\d\d, which is no more than chance, although", line) for line in lines)
