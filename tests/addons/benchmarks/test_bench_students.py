"""`tfm bench students`: each model by the engines that run it, with the scores of its translations, and the front."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.addons.interop.toy_languages import nllb
from tests.support.contract import refused, run
from tests.support.each import each
from tests.toy.run import model_file, packed, sentences
from transformer_cli.addons.benchmarks.students import Contender, _opened, mark_best, measure_in_turn
from transformer_cli.config.compose import load_config
from transformer_cli.decoding.shortlist import SHORTLIST_FILE, Shortlist


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, seed in (("a", 3), ("b", 4)):
        (tmp_path / f"{name}.safetensors").write_bytes(packed(model_file(seed=seed)))
    for name, seed in (("text", 1), ("reference", 2)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in sentences(5, seed=seed)))
    return tmp_path


TEXT = ["source=text", "reference=reference", "rounds=1", "--device", "cpu", "decode.max_extra_length=3"]


def test_the_scores_are_those_of_evaluate(folder: Path) -> None:
    models = ["--checkpoint", "a.safetensors", "--checkpoint", "b.safetensors"]
    pytest.importorskip("matplotlib")
    ran = run(["bench", "students", *models, *TEXT, "--json", "picture=p.svg"], folder)
    assert ran.code == 0, ran.err.decode()
    figures = json.loads(ran.out)["figures"]
    assert {name.split(",")[0] for name in figures} == {"a.safetensors", "b.safetensors"}
    assert (folder / "p.svg").read_bytes().startswith(b"<?xml")
    given = ["--source", "text", "--reference", "reference", "--device", "cpu", "decode.max_extra_length=3", "--json"]
    for engine, more in (("torch", []), ("ctranslate2", ["--engine", "ctranslate2"])):
        found = figures.get(f"a.safetensors, {engine}, beam 4, 1 threads")
        if found is None:
            continue
        scores = json.loads(run(["evaluate", "--checkpoint", "a.safetensors", *given, *more], folder).out)["scores"]
        by_name = {score["name"]: score["score"] for score in scores}
        assert found["bleu"] == pytest.approx(by_name["BLEU"], abs=0.01)
        assert found["chrf"] == pytest.approx(by_name["chrF2"], abs=0.01)
        assert found["tokens_per_s"] > 0
        assert found["one_p50_ms"] <= found["one_p99_ms"]


def test_the_members_of_an_ensemble_are_also_measured_together(folder: Path) -> None:
    models = ["--checkpoint", "a.safetensors", "--checkpoint", "b.safetensors"]
    ran = run(["bench", "students", *models, *TEXT, "ensemble=2", "--json"], folder)
    assert ran.code == 0, ran.err.decode()
    found = json.loads(ran.out)["figures"]["a.safetensors + b.safetensors, torch, beam 4, 1 threads"]
    given = ["--source", "text", "--reference", "reference", "--device", "cpu", "decode.max_extra_length=3", "--json"]
    scores = json.loads(run(["evaluate", *models, *given], folder).out)["scores"]
    assert found["bleu"] == pytest.approx(next(one["score"] for one in scores if one["name"] == "BLEU"), abs=0.01)
    assert found["megabytes"] * 1e6 == sum((folder / name).stat().st_size for name in models[1::2])


def test_a_shortlist_is_measured_beside_the_search_without(folder: Path) -> None:
    """A note names a model that has none. Where none has one, the bench refuses before it measures anything."""
    models = ["--checkpoint", "m/a.safetensors", "--checkpoint", "b.safetensors"]
    (folder / "m").mkdir()
    shutil.move(folder / "a.safetensors", folder / "m")
    command = ["bench", "students", *models, *TEXT, "decode.shortlist=auto"]
    refused(command, folder, code=4, says=["decode.shortlist=m/shortlist.safetensors: no such file", "tfm shortlist"])
    file = model_file(seed=3)
    some = np.arange(0, len(file.tokenizers.target), 2)
    none = np.zeros(1 + len(file.tokenizers.source), np.int64)
    list_of_all = Shortlist(some, none, np.empty(0, np.int64))
    list_of_all.write(folder / "m" / SHORTLIST_FILE, file.tokenizers, (file.source_lang, file.target_lang))
    ran = run([*command, "n_lines=1"], folder)
    assert ran.code == 0, ran.err.decode()
    cells = [[cell.strip() for cell in row.split("|")] for row in ran.out.decode().splitlines() if row.startswith("| ")]
    searches = {name: [cell[3] for cell in cells if cell[1:3] == [name, "torch"]] for name in models[1::2]}
    assert searches == {
        "m/a.safetensors": ["beam 4", "greedy", "beam 4, shortlist", "greedy, shortlist"],
        "b.safetensors": ["beam 4", "greedy"],
    }
    assert b"\nm/a.safetensors, b.safetensors: not measured by firefox: " in ran.out
    assert b"b.safetensors is not measured with a shortlist: decode.shortlist=shortlist.safetensors: no such" in ran.out


def test_a_model_of_several_languages_is_measured_in_one_direction(tmp_path: Path) -> None:
    """Each engine translates into the language that is asked for, and a bench of ids refuses such a model."""
    nllb(tmp_path / "nllb")
    assert run(["import", "hf", "nllb", "--output", "m", "compare=false"], tmp_path).code == 0
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in sentences(3, seed=1)))
    words = ["--checkpoint", "m", "source=text", "--device", "cpu", "rounds=1", "decode.max_extra_length=3"]
    says = ["--to: no language to translate into"]
    refused(["bench", "students", *words], tmp_path, code=2, says=says, new=[".ctranslate2*"], working=True)
    for command in (["students", *words], ["start", *words[:2]]):
        ran = run(["bench", *command, "--to", "tlh"], tmp_path)
        assert (ran.code, ran.out, ran.err.count(b"\n")) == (2, b"", 1)
        assert b"--to tlh: not a language of the model" in ran.err
    says = ["begin with a token of their language", "Use `tfm bench students`"]
    refused(["bench", "decode", *words, "--from", "en", "--to", "fr"], tmp_path, code=2, says=says)
    refused(["bench", "start", "--to", "fr"], tmp_path, code=2, says=["--to fr: is asked of a model"])
    ran = run(["bench", "students", *words, "--from", "en", "--to", "fr", "--json"], tmp_path)
    assert ran.code == 0, ran.err.decode()
    assert "m, torch, greedy, 1 threads" in json.loads(ran.out)["figures"]


@each(
    "speeds, scores, best",
    [
        ([100, 10], [30, 40], [True, True]),
        ([100, 10], [40, 30], [True, False]),
        ([100, 100], [40, 30], [True, False]),
        ([100, 100], [40, 40], [True, True]),
        ([100, 50, 10], [30, 29, 40], [True, False, True]),
    ],
)
def test_the_front_has_what_no_other_beats(speeds: list[float], scores: list[float], best: list[bool]) -> None:
    contenders = [
        Contender("m", "fr", "torch", "greedy", 1, None, 1.0, 1.0, n_tokens=1, seconds=[1 / speed], bleu=score)  # type: ignore[arg-type]
        for speed, score in zip(speeds, scores, strict=True)
    ]
    mark_best(contenders)
    assert [one.is_best for one in contenders] == best


def test_the_tokens_are_counted_by_one_vocabulary() -> None:
    """A model of half as many pieces for a line is not twice as fast."""

    class Fake:
        """A translator that cuts lines into pieces of `width` characters."""

        def __init__(self, width: int) -> None:
            self.width, self.tokenizers = width, SimpleNamespace(source=self)

        def encode(self, lines: list[str]) -> list[list[int]]:
            return [[0] * (len(line) // self.width) for line in lines]

        def translate(self, lines: list[str]) -> list[SimpleNamespace]:
            return [SimpleNamespace(hypotheses=[(line,)]) for line in lines]

    contenders = [Contender("m", "fr", "torch", "greedy", 1, Fake(width), 1.0, 1.0) for width in (2, 1)]  # type: ignore[arg-type]
    measure_in_turn(contenders, ["abcd", "ab"], 1, torch.device("cpu"))
    assert [one.n_tokens for one in contenders] == [5, 5]
    assert [len(one.seconds) for one in contenders] == [1, 1]


@each(
    "arguments, message",
    [
        ([], "source: not given"),
        (["source=text", "reference=reference", "picture=p.txt"], "picture=p.txt: no picture by its name"),
        (["source=text", "picture=p.svg"], "picture=p.svg: shows BLEU"),
        (
            ["source=text", "reference=reference", "picture=a/p.svg"],
            "no such folder. Create it, or choose another pict",
        ),
        (["source=text", "--checkpoint", "none"], "none: no such file"),
        (["source=text", "reference=longer", "n_lines=2"], "longer: has 6 lines, text 5"),
        (["source=empty"], "empty: is empty"),
        (["source=text", "ensemble=2"], "ensemble=2: is of `tfm bench students`"),
    ],
)
def test_what_does_not_fit_is_refused(folder: Path, arguments: list[str], message: str) -> None:
    (folder / "longer").write_text((folder / "text").read_text() + "a\n")
    (folder / "empty").touch()
    codes = {"picture=a/p.svg": 5, "none": 4, "source=empty": 3, "n_lines=2": 3}
    code = next((codes[argument] for argument in arguments if argument in codes), 2)
    refused(["bench", "students", "--checkpoint", "a.safetensors", *arguments], folder, code=code, says=[message])


def test_an_engine_that_cannot_search_with_a_beam_is_not_noted_without_a_model(folder: Path) -> None:
    left_out: dict[str, list[str]] = {}
    config = load_config("bench", [], flags={"subject": "students", "checkpoint": [str(folder / "a.safetensors")]})
    opened = list(_opened(config, torch.device("cpu"), 1, set(), left_out))
    assert {(one.engine, one.search) for one in opened} >= {("torch", "beam 4"), ("torch", "greedy")}
    assert left_out
    assert all(models == [str(folder / "a.safetensors")] for models in left_out.values())


def test_a_picture_is_of_students_alone(folder: Path) -> None:
    refused(["bench", "machine", "picture=p.png"], folder, code=2, says=["picture=p.png: is of `tfm bench students`"])
