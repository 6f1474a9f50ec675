"""`tfm compare` of files and of models: what it claims, with the p-values of sacrebleu's own command."""

import csv
import gzip
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.evaluation.test_metrics import noised
from tests.evaluation.test_tables import latex_rows, markdown_rows
from tests.golden.make import FOLDER
from tests.support.contract import WITHOUT_TORCH, process, refused, run
from tests.support.forked import environment
from tests.toy.run import sentences
from transformer_cli.addons.comparison.compare_models import notes_on_tags
from transformer_cli.addons.comparison.groups import Grouping, compare_groups
from transformer_cli.addons.comparison.keys import CompareConfig
from transformer_cli.addons.comparison.report import comparison_lines, comparison_tables
from transformer_cli.addons.comparison.results import Comparison, System
from transformer_cli.evaluation import test_sets
from transformer_cli.evaluation.significance import MetricComparison, PairedResult, SystemScore

WORDS = [
    "the",
    "a",
    "small",
    "old",
    "house",
    "stands",
    "near",
    "river",
    "bridge",
    "and",
    "trees",
    "grow",
    "behind",
    "it",
    "in",
    "green",
    "light",
    "of",
    "day",
]
FEW = ["samples=50", "trials=100"]


def text(n: int, *, seed: int) -> list[str]:
    return [" ".join(WORDS[(seed * 7 + i * 5 + k * k) % len(WORDS)] for k in range(6 + i % 9)) for i in range(n)]


def put(file: Path, lines: Sequence[str]) -> None:
    file.write_bytes("".join(f"{line}\n" for line in lines).encode())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three references, two systems that are about as good, and a worse one."""
    reference = text(60, seed=1)
    put(tmp_path / "r0.en", reference)
    put(tmp_path / "r1.en", noised(reference, seed=11))
    put(tmp_path / "r2.en", noised(reference, seed=12))
    put(tmp_path / "a.en", noised(reference, seed=2))
    put(tmp_path / "b.en", noised(reference, seed=3))
    put(tmp_path / "worse.en", noised(noised(noised(reference, seed=4), seed=5), seed=6))
    (tmp_path / "model.safetensors").write_bytes((FOLDER / "joint-pre.safetensors").read_bytes())
    return tmp_path


def compared(folder: Path, *arguments: str) -> dict[str, Any]:
    ran = run(["compare", *arguments, "--json"], folder)
    assert ran.code == 0, ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


def command(folder: Path, references: Sequence[str], *options: str, seed: str = "12345") -> list[dict[str, Any]]:
    """The JSON that sacrebleu's command prints, by system."""
    # Its chrF of resamples are float32, which its JSON cannot have.
    code = "import json; json.JSONEncoder.default = lambda _, x: float(x); from sacrebleu.sacrebleu import main; main()"
    program = [sys.executable, "-c", code, *references, "-i", "a.en", "b.en", "worse.en", "-f", "json", *options]
    variables = {**environment(), "SACREBLEU_SEED": seed}
    printed = subprocess.run(program, cwd=folder, env=variables, check=True, capture_output=True, encoding="utf-8")
    found: list[dict[str, Any]] = json.loads(printed.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("references", "seed"), [(["r0.en"], "12345"), (["r0.en", "r1.en", "r2.en"], "7")])
def test_p_values_and_intervals_are_those_of_sacrebleus_command(folder: Path, references: list[str], seed: str) -> None:
    """TER counts thirds of words with three references, which have another way through the sums."""
    given = [option for name in references for option in ("--reference", name)]
    metrics = ["-m", "bleu", "chrf", "ter"]
    found = compared(folder, "a.en", "b.en", "worse.en", *given, "--metrics", "bleu,chrf,ter", "--seed", seed)
    bootstrap = command(folder, references, *metrics, "--paired-bs", seed=seed)
    randomized = command(folder, references, *metrics, "--paired-ar", seed=seed)
    for metric in found["metrics"]:
        for ours, result, bs, ar in zip(
            metric["scores"], metric["against_baseline"], bootstrap, randomized, strict=True
        ):
            theirs = bs[metric["name"]]
            assert [ours["score"], ours["mean"], ours["half_width"]] == [theirs[k] for k in ("score", "mean", "ci")]
            if result is not None:
                assert result["p_bootstrap"] == theirs["p_value"]
                assert result["p_randomization"] == ar[metric["name"]]["p_value"]
        assert {"seed:" + seed, "bs:1000", "ar:10000"} <= set(metric["signature"].split("|"))


def test_the_seed_is_sacrebleus_where_none_is_given(folder: Path) -> None:
    arguments = ["a.en", "b.en", "--reference", "r0.en", "--metrics", "chrf", *FEW, "--json"]
    by_flag = run(["compare", *arguments, "--seed", "3"], folder)
    by_environment = run(["compare", *arguments], folder, env={"SACREBLEU_SEED": "3"})
    assert by_flag.out == by_environment.out
    assert by_flag.out != run(["compare", *arguments], folder).out
    refusal = run(["compare", *arguments], folder, env={"SACREBLEU_SEED": "x"})
    assert (refusal.code, b"SACREBLEU_SEED=x: no seed" in refusal.err) == (2, True)
    unseeded = run(["compare", *arguments], folder, env={"SACREBLEU_SEED": "none"})
    assert "without a seed" in json.loads(unseeded.out)["notes"][-1]


def test_a_worse_system_is_found_and_one_as_good_is_not_called_better(folder: Path) -> None:
    found = compared(folder, "a.en", "b.en", "worse.en", "--reference", "r0.en")
    assert [result["significant"] for result in found["metrics"][0]["against_baseline"][1:]] == [False, True]
    equal, worse = found["conclusions"]
    assert equal.startswith("No difference between b.en and a.en is shown by BLEU and chrF2")
    assert worse.startswith("worse.en is worse than a.en by BLEU (-")
    assert any("not corrected" in note for note in found["notes"])


def test_the_same_translations_are_called_the_same(folder: Path) -> None:
    (folder / "copy.gz").write_bytes(gzip.compress((folder / "a.en").read_bytes()))
    found = compared(folder, "a.en", "a.en", "copy.gz", "--reference", "r0.en", *FEW)
    assert [system["name"] for system in found["systems"]] == ["a.en", "a.en (2)", "copy.gz"]
    assert found["conclusions"][1] == "copy.gz and a.en have the same translations, so there is no difference."
    assert found["metrics"][0]["against_baseline"][2] == {
        "difference": 0.0,
        "p_bootstrap": 1.0,
        "p_randomization": 1.0,
        "p_with_ties": 1.0,
        "significant": False,
    }


def test_a_difference_in_three_lines_is_not_called_significant(folder: Path) -> None:
    """Chance gives one in four as large a difference of three lines that all favour one system (a sign test)."""
    lines = (folder / "r0.en").read_text().split("\n")[:-1]
    for i in (3, 20, 41):
        lines[i] = "something else"
    put(folder / "three.en", lines)
    found = compared(folder, "r0.en", "three.en", "--reference", "r1.en", "--metrics", "chrf")
    result = found["metrics"][0]["against_baseline"][1]
    assert result["p_randomization"] < 0.05  # as sacrebleu has it
    assert result["p_with_ties"] == pytest.approx(1 / 4, abs=0.02)
    assert not result["significant"]


def test_lines_that_gain_and_lose_most_come_with_their_scores(folder: Path) -> None:
    found = compared(folder, "a.en", "worse.en", "--reference", "r0.en", "sentences=3", *FEW)
    differences = [line["scores"][1] - line["scores"][0] for line in found["worse"]["1"]]
    assert len(differences) == 3
    assert differences == sorted(differences)
    assert differences[-1] < 0
    line = found["worse"]["1"][0]
    assert line["translations"][1] == (folder / "worse.en").read_text().split("\n")[line["line"] - 1]


def test_the_table_marks_what_is_significant(folder: Path) -> None:
    page = folder / "page.html"
    page.write_text("old")
    ran = run(["compare", "a.en", "b.en", "worse.en", "--reference", "r0.en", "--json", "samples=100"], folder)
    assert (ran.code, page.read_text()) == (0, "old")
    results = [None, PairedResult(1.5, 0.01, 0.002), PairedResult(-0.2, 0.4, 0.5)]
    scores = [SystemScore(30, 30.1, 1.0), SystemScore(31.5, 31.4, 1.1), SystemScore(29.8, 29.9, 0.9)]
    metric = MetricComparison("BLEU", "tok:13a", True, scores, results)
    systems = [System(name, name, "translations", [name]) for name in "abc"]
    lines = comparison_lines(Comparison("test", 1, 1, systems, [metric], "BLEU"))
    assert lines[4].split() == ["b", "31.50", "(31.40", "±", "1.10)", "+1.50", "0.0100", "0.0020", "*"]
    assert lines[5].split()[-1] == "0.5000"


# ---- Tables that are pasted


def table_of(folder: Path, form: str, *arguments: str) -> str:
    """Standard output, which the table has to itself."""
    ran = run(["compare", *arguments, "--table", form], folder)
    assert ran.code == 0, ran.err
    assert not (folder / "compare.html").exists()
    assert "is worse than a.en by" in ran.err.decode()
    return ran.out.decode()


def test_the_numbers_of_a_pasted_table_are_those_of_json(folder: Path) -> None:
    arguments = ["a.en", "b.en", "worse.en", "--reference", "r0.en", "--metrics", "bleu,ter", *FEW]
    found = compared(folder, *arguments)
    head, *rows = csv.reader(io.StringIO(table_of(folder, "csv", *arguments), newline=""), strict=True)
    for number, row in enumerate(rows):
        values = dict(zip(head, row, strict=True))
        assert values.pop("system") == found["systems"][number]["name"]
        for metric in found["metrics"]:
            wanted = {**metric["scores"][number], "signature": metric["signature"]}
            wanted |= metric["against_baseline"][number] or dict.fromkeys(metric["against_baseline"][1])
            for key, value in wanted.items():
                written = values.pop(f"{metric['name']} {key}")
                assert written == ("" if value is None else value if key == "signature" else json.dumps(value))
        assert not values
    cells, aligned, html = markdown_rows(table_of(folder, "markdown", *arguments))
    assert aligned == ["", *["text-align:right"] * 12]
    shown = [[f"{metric['scores'][i]['score']:.2f}" for metric in found["metrics"]] for i in range(3)]
    assert [[row[1], row[7]] for row in cells[1:]] == shown
    assert all(metric["signature"] in "".join(html) for metric in found["metrics"])
    latex = table_of(folder, "latex", *arguments)
    assert [[row[1].strip("*"), row[7].strip("*")] for row in latex_rows(latex)[1:]] == shown
    assert all(f"\n% {metric['name']}  {metric['signature']}\n" in latex for metric in found["metrics"])


@pytest.mark.parametrize(
    ("systems", "bold"),
    [
        (["a.en", "worse.en"], ["a.en"]),
        (["worse.en", "a.en"], ["a.en"]),
        (["a.en", "b.en", "worse.en"], []),  # the best two are as good
        (["worse.en", "a.en", "b.en"], []),  # and neither of them is the baseline
        (["worse.en", "r1.en", "worst.en"], ["r1.en"]),
        (["worse.en", "a.en", "copy.en"], []),
    ],
)
def test_the_best_score_is_bold_where_it_differs_significantly_from_each_other(
    folder: Path, systems: list[str], bold: list[str]
) -> None:
    put(folder / "copy.en", (folder / "a.en").read_text().split("\n")[:-1])
    put(folder / "worst.en", ["nothing"] * 60)
    ran = run(["compare", *systems, "--reference", "r0.en", "--table", "latex", "samples=100", "trials=200"], folder)
    rows = latex_rows(ran.out.decode())[1:]
    for column in (1, 7):  # BLEU and chrF2, which are columns of six
        assert [row[0] for row in rows if row[column].startswith("**")] == bold, ran.out


def test_a_lower_score_is_bold_where_lower_is_better(folder: Path) -> None:
    text = table_of(folder, "latex", "a.en", "worse.en", "--reference", "r0.en", "--metrics", "ter", *FEW)
    first, second = latex_rows(text)[1:]
    assert first[1] == f"**{first[1].strip('*')}**"
    assert float(first[1].strip("*")) < float(second[1])


def test_groups_of_runs_are_a_second_table() -> None:
    systems = [System(name, name, "run", [name], group="g") for name in "ab"]
    results = [None, PairedResult(1.5, 0.01, 0.002)]
    scores = [SystemScore(30, 30.1, 1.0), SystemScore(33, 31.4, 1.1)]
    metric = MetricComparison("BLEU", "tok:13a", True, scores, results)
    groups, _ = compare_groups("ab", Grouping(["g", "g"]), [metric])
    found = Comparison("test", 1, 1, systems, [metric], "BLEU", groups=groups)
    first, second = comparison_tables(found)
    assert [[row[0].text, row[1].text] for row in first.rows] == [["a", "g"], ["b", "g"]]
    # By hand: the deviations of 30 and 33 from 31.5 are 1.5, and the square root of 4.5 is 2.12.
    assert [one.text for one in second.rows[0]] == ["g", "2", "BLEU", "31.50", "2.12", "30.00-33.00"]


def test_models_and_files_are_compared_on_the_same_text(folder: Path) -> None:
    source = sentences(6, seed=5)
    put(folder / "text.en", source)
    test = ["--source", "text.en", "--reference", "text.en", "--device", "cpu", *FEW]
    found = compared(folder, "model.safetensors", "text.en", *test, "decode=greedy")
    model, file = found["systems"]
    assert (model["kind"], file["kind"]) == ("model", "translations")
    assert model["search"].startswith("search:greedy|engine:torch|")
    assert model["search"].endswith(f"model:{model['model_hash'][:12]}")
    assert file["search"] is None
    assert found["metrics"][0]["scores"][1]["score"] == pytest.approx(100)


def test_files_are_compared_without_torch(folder: Path) -> None:
    arguments = ["compare", "a.en", "b.en", "--reference", "r0.en", "--json", *FEW]
    ran = process(arguments, folder, program=WITHOUT_TORCH)
    assert ran.code == 0, ran.err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["a.en"], 2, "systems: only a.en is given. Name two or more"),
        (["a.en", "nowhere", "--reference", "r0.en"], 3, "nowhere: no such file or folder. Check the name"),
        (["a.en", "b.en"], 2, "--reference: not given"),
        (["a.en", "b.en", "--source", "r0.en"], 2, "--reference: not given, but --source is"),
        (["a.en", "short.en", "--reference", "r0.en"], 3, "short.en: has 2 lines, r0.en 60, so nothing is compared"),
        (["a.en", "b.en", "--reference", "r0.en", "--reference", "short.en"], 3, "short.en: has 2 lines, r0.en 60"),
        (["a.en", "latin.en", "--reference", "r0.en"], 3, "latin.en:2: byte 0xfc at column 2 is not UTF-8"),
        (["a.en", "empty.en", "--reference", "r0.en"], 3, "empty.en: is empty"),
        (["a.en", "picture.png", "--reference", "r0.en", "--source", "r0.en"], 4, "picture.png: "),
        (["a.en", "wide.en", "--reference", "r0.en"], 3, "wide.en: is UTF-16LE, not UTF-8"),
        (["a.en", "folder", "--reference", "r0.en", "--source", "r0.en"], 4, "folder: holds no model"),
        (["a.en", "model.safetensors", "--reference", "r0.en"], 2, "--source: not given, but model.safetensors is a"),
        (["a.en", "b.en", "--reference", "r0.en", "--metrics", "blue"], 2, "no metric called `blue`"),
        (["a.en", "b.en", "--reference", "r0.en", "--metrics", "paper_bleu"], 2, "has no scores of single lines"),
        (["a.en", "b.en", "--reference", "r0.en", "--output", "a.en"], 2, "a.en: both system a.en and --output"),
        (["a.en", "b.en", "--reference", "r0.en", "--seed", "0"], 2, "seed=0: out of range"),
        (["a.en", "b.en", "--reference", "r0.en", "--table", "csv", "--json"], 2, "--table csv: and --json is another"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(
    folder: Path, arguments: list[str], code: int, says: str
) -> None:
    put(folder / "short.en", ["one", "two"])
    (folder / "latin.en").write_bytes(b"one\nf\xfcr\n")
    (folder / "empty.en").write_bytes(b"")
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(200)))
    (folder / "wide.en").write_bytes("one\ntwo\n".encode("utf-16"))
    (folder / "folder").mkdir()
    refused(["compare", *arguments], folder, code=code, says=[says])


@pytest.mark.parametrize(
    ("target_lang", "tag", "n_notes"), [("de+fr", None, 1), ("de+fr", "<2de>", 0), ("de", None, 0)]
)
def test_lines_without_the_tag_that_a_model_needs_are_named_in_the_report(
    target_lang: str, tag: str | None, n_notes: int
) -> None:
    tokenizers = SimpleNamespace(source=SimpleNamespace(tags=("<2de>", "<2fr>"), languages={}))
    first = SimpleNamespace(source_lang="en", target_lang=target_lang, tokenizers=tokenizers)
    model: Any = SimpleNamespace(name="joint", first=first)
    notes = notes_on_tags(CompareConfig(tag=tag), model, test_sets.TestSet("t", ["<2de> a", "b", ""], [["x", "y", ""]]))
    assert [note.startswith("joint translates into several languages, and 1 of 3 lines") for note in notes] == (
        [True] * n_notes
    )
