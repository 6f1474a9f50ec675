"""A report that a plugin registers is asked for by its name, and stands beside the scores of `tfm evaluate`."""

import json
import re
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from tests.golden.make import FOLDER
from tests.support.contract import refused, run
from transformer_cli.errors import ConfigError
from transformer_cli.evaluation.extra_reports import EXTRA_REPORTS

LENGTHS = '''
from dataclasses import dataclass

from transformer_cli.errors import ConfigError
from transformer_cli.evaluation.extra_reports import EXTRA_REPORTS


@dataclass
class Lengths:
    seed: int
    words: list[int]

    def as_dict(self):
        return {"seed": self.seed, "words": self.words}

    def lines(self):
        return [f"{sum(self.words)} words, seed {self.seed}"]


@EXTRA_REPORTS.register("lengths")
def lengths(request):
    """The words of each translation; nothing is said of one line."""
    if len(request.hypotheses) > 1:
        return Lengths(request.config.seed, [len(line.split()) for line in request.hypotheses])

'''
SCORE = ["evaluate", "--checkpoint", "model.safetensors", "--device", "cpu", "decode=greedy"]
SCORE += ["--source", "t.en", "--reference", "t.en", "metrics=[bleu]"]


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    EXTRA_REPORTS.names()
    monkeypatch.setattr(EXTRA_REPORTS, "_entries", dict(EXTRA_REPORTS._entries))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("transformer_cli.plugins._loaded", [])
    monkeypatch.delitem(sys.modules, "lengths_report", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lengths_report.py").write_text(LENGTHS, encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes((FOLDER / "joint-pre.safetensors").read_bytes())
    (tmp_path / "t.en").write_text("the cat\nmilk\n", encoding="utf-8")
    return tmp_path


def test_a_report_of_a_plugin_is_printed_behind_the_scores_and_is_in_the_json(folder: Path) -> None:
    alone = run(SCORE, folder)
    asked = [*SCORE, "--plugin", "lengths_report", "--report", "lengths", "seed=7"]
    as_json = run([*asked, "--json"], folder)
    assert as_json.code == 0, as_json.err
    found = json.loads(as_json.out)["lengths"]
    assert found["seed"] == 7
    assert len(found["words"]) == 2
    ran = run(asked, folder)
    assert ran.out.startswith(alone.out.split(b"\n")[0])
    assert ran.out.endswith(f"\n{sum(found['words'])} words, seed 7\n".encode())


def test_no_report_takes_the_place_of_what_the_json_has_already(folder: Path) -> None:
    as_json = run([*SCORE, "--json"], folder)
    for key in [*json.loads(as_json.out), "sentence_scores", "parts", "missing"]:
        (folder / "lengths_report.py").write_text(LENGTHS.replace('"lengths"', f'"{key}"'), encoding="utf-8")
        asked = [*SCORE, "--plugin", "lengths_report", "--report", key]
        refused(asked, folder, code=2, says=["lengths_report", f"has a key `{key}`", "another name"])
        sys.modules.pop("lengths_report", None)


def test_several_reports_are_asked_for_and_one_has_a_flag_of_its_own(folder: Path) -> None:
    asked = [*SCORE, "--plugin", "lengths_report", "robustness_lines=1", "--json"]
    both = run([*asked, "--report", "lengths", "--report", "robustness"], folder)
    assert both.code == 0, both.err
    assert {"lengths", "robustness"} <= json.loads(both.out).keys()
    by_flag = json.loads(run([*asked, "report=[lengths]", "--robustness"], folder).out)
    assert by_flag == json.loads(both.out)
    (folder / "t.en").write_text("milk\n", encoding="utf-8")
    assert "lengths" not in json.loads(run([*asked, "--report", "lengths", "--robustness"], folder).out)


def test_an_unknown_report_is_refused_with_the_choices_before_anything_is_translated(folder: Path) -> None:
    says = ["report=length: unknown; did you mean `lengths`? Choose lengths, robustness"]
    refused([*SCORE, "--report", "lengths"], folder, code=2, says=["report=lengths: unknown. Choose robustness"])
    refused([*SCORE, "--plugin", "lengths_report", "--report", "length"], folder, code=2, says=says)
    given = ["evaluate", "--hypotheses", "t.en", "--reference", "t.en", "--report", "robustness"]
    refused(given, folder, code=2, says=["report: for a model that translates"])


@pytest.mark.parametrize(
    ("report", "says"),
    [
        ("5 words", "'5 words', which has no as_dict and no lines"),
        (Namespace(as_dict=lambda: {"path": Path()}, lines=list), "JSON and as lines (Object of type "),
        (Namespace(as_dict=dict, lines=lambda: [5]), "JSON and as lines (sequence item 0"),
        (None, ""),
    ],
    ids=["text", "no JSON", "no lines", "nothing to say"],
)
def test_what_is_no_report_is_named_with_its_place(report: object, says: str) -> None:
    EXTRA_REPORTS.register("mine")(lambda request: report)
    request: Any = None
    if says:
        with pytest.raises(ConfigError, match=rf"^plugin {re.escape(__name__)} \(.*: returned .*{re.escape(says)}"):
            EXTRA_REPORTS["mine"](request)
    else:
        assert EXTRA_REPORTS["mine"](request) is None
    with pytest.raises(ConfigError, match=r"an extra report is a function of \(request\)"):
        EXTRA_REPORTS.register("other")(lambda: report)
