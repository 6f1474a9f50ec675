"""`tfm evaluate`: what it scores, what it writes, and what it leaves alone. The models copy letters, badly."""

import csv
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.test_metrics import sacrebleu_command
from tests.evaluation.test_tables import latex_rows, markdown_rows
from tests.golden.make import FOLDER
from tests.support.contract import WITHOUT_TORCH, process, refused, run, tree, untouched
from tests.support.each import each
from tests.toy.run import sentences
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.evaluation.metrics import METRICS, MetricSettings, MetricUnavailable, Score, Translations
from transformer_cli.evaluation.search_signature import search_name, search_signature
from transformer_cli.tasks import evaluate_translations as evaluate

REFERENCES = ["Le chat a bu le lait.", "Elle s'est assise.", "", "Il n'a pas acheté 1 000 pommes."]
TRANSLATIONS = ["Le chat boit le lait.", "Elle s'est assise.", "", "Il a acheté des pommes."]
OTHER = ["evaluate", "--reference", "t.fr", "--hypotheses", "other.fr"]
MODEL = ["evaluate", "--checkpoint", "model.safetensors", "--device", "cpu", "--source", "text", "--reference", "text"]


def put(file: Path, lines: list[str], end: str = "\n") -> None:
    file.write_bytes("".join(f"{line}{end}" for line in lines).encode())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A test set, what some other system made of it, and a model that has nothing to do with it."""
    put(tmp_path / "t.fr", REFERENCES)
    put(tmp_path / "other.fr", TRANSLATIONS)
    put(tmp_path / "text", sentences(6, seed=5))
    (tmp_path / "model.safetensors").write_bytes((FOLDER / "joint-pre.safetensors").read_bytes())
    return tmp_path


# ---- Metrics


def copied_words(translations: Translations, settings: MetricSettings) -> list[Score]:
    """Words of the hypotheses that stand in their sources, in percent: a metric of somebody else's module."""
    if not translations.sources:
        raise MetricUnavailable("copied words", "needs --source")
    pairs = [(h.split(), set(s.split())) for h, s in zip(translations.hypotheses, translations.sources, strict=True)]
    copied = sum(word in source for words, source in pairs for word in words)
    n_words = sum(len(words) for words, _ in pairs)
    return [Score("copied words", 100 * copied / n_words, f"case:mixed|langs:{settings.target_lang}|version:1")]


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(METRICS, "_entries", dict(METRICS._entries))
    METRICS.register("copied_words")(copied_words)


@pytest.mark.usefixtures("plugin")
def test_a_metric_from_another_module_gets_the_sources_and_is_reported_with_its_signature(folder: Path) -> None:
    put(folder / "t.en", ["Le chat", "Elle", "", "pommes. 1"])
    ran = run([*OTHER, "--source", "t.en", "metrics=[chrf,copied_words]"], folder)
    lines = ran.out.decode().split("\n")
    assert [line.split("  ")[0] for line in lines[1:3]] == ["chrF2", "copied words"]
    assert lines[2].split() == ["copied", "words", f"{100 * 4 / 13:.2f}", "case:mixed|langs:fr|version:1"]
    found = json.loads(run([*OTHER, "--source", "t.en", "metrics=[copied_words]", "--json"], folder).out)
    assert found["scores"] == [
        {
            "name": "copied words",
            "score": 100 * 4 / 13,
            "signature": "case:mixed|langs:fr|version:1",
            "higher_is_better": True,
        }
    ]


@pytest.mark.usefixtures("plugin")
def test_a_metric_that_cannot_be_computed_says_why(folder: Path) -> None:
    ran = run([*OTHER, "metrics=[bleu,copied_words]"], folder)
    headline, score, *_ = ran.out.split(b"\n")
    assert (ran.code, headline[:5], score[:4]) == (0, b"t.fr,", b"BLEU")
    assert b"copied" not in ran.out
    assert ran.err == b"tfm: warning: no copied words: needs --source\n"


def test_a_metric_is_computed_once_and_none_or_an_unknown_one_is_refused_before_anything_is_read(folder: Path) -> None:
    assert run([*OTHER, "metrics=[chrf,chrf]"], folder).out.count(b"chrF2") == 1
    refused([*OTHER, "metrics=[]"], folder, code=2, says=["metrics=[]: nothing to score by"])
    says = ["no metric called `blue`; did you mean `bleu`? (choices: bleu, bracket_f1, chrf, chrf++, "]
    refused([*OTHER[:-1], "nowhere", "metrics=[blue]"], folder, code=2, says=says)


def test_the_search_of_a_model_stands_beside_its_scores(folder: Path) -> None:
    found = json.loads(run([*MODEL, "--json", "--beam", "2"], folder).out)
    (sha256,) = found["model_sha256"]
    assert found["search"] == (
        "search:beam|beam_size:2|length_penalty:0.6|engine:torch|precision:fp32|batch_invariant:no|model:" + sha256[:12]
    )
    assert sha256 == hashlib.sha256((folder / MODEL[2]).read_bytes()).hexdigest()
    assert run([*MODEL, "decode=greedy"], folder).out.splitlines()[-1].startswith(b"search:greedy|engine:torch|")


def test_an_engine_other_than_torch_is_named_in_the_signature_and_in_the_file(folder: Path) -> None:
    pytest.importorskip("ctranslate2")
    found = json.loads(run([*MODEL, "--json", "decode=greedy", "--engine", "ctranslate2"], folder).out)
    assert found["search"].startswith("search:greedy|engine:ctranslate2|precision:fp32|batch_invariant:no|model:")
    assert ".greedy-engine=ctranslate2." in found["hypotheses"]


@each(
    "decode, expected",
    [
        (DecodeConfig(), "search:beam|beam_size:4|length_penalty:0.6"),
        (DecodeConfig(beam_size=8, no_repeat_ngram=3), "search:beam|beam_size:8|length_penalty:0.6|no_repeat_ngram:3"),
        (DecodeConfig(batch_tokens=100), "search:beam|beam_size:4|length_penalty:0.6"),
        (DecodeConfig(search="sample", beam_size=1, top_k=5), "search:sample|top_k:5|seed:7"),
        (DecodeConfig(search="mbr", beam_size=1), "search:mbr|n_samples:32|seed:7"),
    ],
)
def test_the_signature_of_a_search_names_what_changes_its_translations(decode: DecodeConfig, expected: str) -> None:
    assert search_signature(decode, seed=7) == f"{expected}|engine:torch|precision:auto|batch_invariant:no"


# ---- Scores of each line


@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter"])
def test_scores_of_each_line_are_those_of_sacrebleus_own_command(metric: str, folder: Path) -> None:
    command = [sys.executable, "-m", "sacrebleu", folder / "t.fr", "-i", folder / "other.fr", "-sl", "-m", metric]
    printed = subprocess.run([*command, "-b", "-w", "12"], check=True, capture_output=True, text=True).stdout.split()
    ran = run([*OTHER, "--sentence-scores", "lines.jsonl", f"metrics=[{metric}]"], folder)
    assert ran.code == 0, ran.err
    rows = [json.loads(line) for line in (folder / "lines.jsonl").read_bytes().splitlines()]
    assert [f"{row['scores'][metric]:.12f}" for row in rows] == [f"{float(one):.12f}" for one in printed]
    assert [row["line"] for row in rows] == [1, 2, 3, 4]
    assert [(row["hypothesis"], row["references"]) for row in rows] == [
        (mine, [theirs]) for mine, theirs in zip(TRANSLATIONS, REFERENCES, strict=True)
    ]


def test_scores_of_each_line_of_a_model_have_its_sources_and_replace_no_file(folder: Path) -> None:
    command = [*MODEL, "--sentence-scores", "lines.jsonl", "metrics=[chrf++,paper_bleu]", "--json"]
    found = json.loads(run(command, folder).out)
    assert "|nc:6|nw:2|" in found["sentence_scores"]["signatures"]["chrf++"]
    rows = [json.loads(line) for line in (folder / "lines.jsonl").read_bytes().splitlines()]
    assert [row["source"] for row in rows] == sentences(6, seed=5)
    assert all(row["scores"].keys() == {"chrf++"} for row in rows)
    refused(command, folder, code=2, says=["lines.jsonl: exists already", "--overwrite"])
    assert run([*command, "--overwrite"], folder).code == 0


def test_a_file_for_scores_of_each_line_that_would_fail_or_destroy_another_is_refused(folder: Path) -> None:
    for arguments, says in (
        (["--sentence-scores", "t.fr", "--overwrite"], "t.fr: both --reference t.fr and --sentence-scores"),
        (["--sentence-scores", "no/folder.jsonl"], "no: no such folder"),
        (["--sentence-scores", "x", "metrics=[paper_bleu]"], "none of metrics=paper_bleu has any"),
    ):
        refused([*OTHER, *arguments], folder, code=5 if "no/" in arguments[1] else 2, says=[says])


# ---- A file of translations


def test_a_file_of_translations_is_scored_as_sacrebleu_does_and_not_written(folder: Path, tmp_path: Path) -> None:
    before = tree(folder)
    ran = run([*OTHER, "--json"], folder)
    assert (ran.code, ran.err) == (0, b"")
    untouched(before, folder)
    found = json.loads(ran.out)
    assert {key: found[key] for key in ("model", "test_set", "lines", "hypotheses")} == {
        "model": None,
        "test_set": "t.fr",
        "lines": 4,
        "hypotheses": "other.fr",
    }
    printed = sacrebleu_command(tmp_path, TRANSLATIONS, [REFERENCES], "-m", "bleu", "chrf", "ter")
    assert [round(score["score"], 12) for score in found["scores"][:3]] == [entry["score"] for entry in printed]
    assert [score["signature"] for score in found["scores"][:3]] == [entry["signature"] for entry in printed]
    printed = run(OTHER, folder).out.decode().split("\n")
    assert printed[0] == "t.fr, 4 lines, hypotheses other.fr"
    assert [line.split("  ")[0] for line in printed[1:5]] == ["BLEU", "chrF2", "TER", "tokenised BLEU"]


def test_the_numbers_of_a_pasted_table_are_those_of_json(folder: Path) -> None:
    found = json.loads(run([*OTHER, "--json"], folder).out)
    plain = run(OTHER, folder).out.decode().split("\n")
    tables = {form: run([*OTHER, "--table", form], folder) for form in ("csv", "markdown", "latex")}
    for ran in tables.values():  # what is no table is on standard error
        assert ran.code == 0
        assert [line.split() for line in ran.err.decode().split("\n")] == [
            plain[0].split(),
            *([*name.split(), signature] for name, signature in named_signatures(found)),
            *(["t.fr:", *line.split()] for line in plain[5:-1]),
            [],
        ]
    head, row = csv.reader(io.StringIO(tables["csv"].out.decode(), newline=""), strict=True)
    values = dict(zip(head, row, strict=True))
    assert (values.pop("test set"), values.pop("lines")) == ("t.fr", "4")
    for score in found["scores"]:
        assert float(values.pop(score["name"])) == score["score"]
        assert values.pop(f"{score['name']} signature") == score["signature"]
    assert not values
    wanted = [["test set", "lines"], ["t.fr", "4"]]
    wanted[0] += [score["name"] for score in found["scores"]]
    wanted[1] += [f"{score['score']:.2f}" for score in found["scores"]]
    rows, aligned, html = markdown_rows(tables["markdown"].out.decode())
    assert (rows, aligned) == (wanted, ["", *["text-align:right"] * 5])
    latex = tables["latex"].out.decode()
    assert latex_rows(latex) == wanted
    for _, signature in named_signatures(found):
        assert f"  {signature} -->" in "".join(html)
        assert f"  {signature}\n" in latex


def named_signatures(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(score["name"], score["signature"]) for score in found["scores"]]


def test_a_pasted_table_of_a_model_names_its_search_in_a_comment(folder: Path) -> None:
    ran = run([*MODEL, "decode=greedy", "metrics=[chrf]", "--table", "latex", "--save", "out"], folder)
    assert ran.code == 0, ran.err
    assert re.search(
        r"^% text, 6 lines, model\.safetensors\n% chrF2  nrefs:1\|.*\n% search:greedy\|", ran.out.decode(), re.M
    )
    assert latex_rows(ran.out.decode())[0] == ["test set", "lines", "chrF2"]


@each(
    "arguments, says",
    [
        ([*OTHER, "--table", "csv", "--json"], "--table csv: and --json is another format. Leave one of them out"),
        ([*OTHER, "--table", "tex"], "table=tex: unknown. Choose latex, markdown, csv"),
        (
            ["evaluate", "--test-set", "list", "--table", "latex"],
            "--table latex: of scores, and --test-set list prints",
        ),
        (
            ["evaluate", "data=labels", "data.test=test.tsv", "--hypotheses", "other.fr", "--table", "markdown"],
            "--table markdown: for scores of translations; these are labels. Leave it out",
        ),
    ],
)
def test_a_table_that_cannot_be_printed_is_refused(folder: Path, arguments: list[str], says: str) -> None:
    put(folder / "test.tsv", ["good\ta film", "bad\tno film", "good\tfine", "bad\tdull"])
    refused(arguments, folder, code=2, says=[says])


def test_scoring_a_file_loads_neither_torch_nor_a_model(folder: Path) -> None:
    data = ["data=files", "data.source_lang=fr", "data.target_lang=fr", "data.test=[t.fr,t.fr]"]
    assert process(["evaluate", "--hypotheses", "other.fr", *data], folder, program=WITHOUT_TORCH).code == 0


def test_a_file_is_scored_against_the_test_set_of_a_corpus(folder: Path) -> None:
    put(folder / "t.en", ["a", "b", "c", "d"])
    data = ["data=files", "data.source_lang=en", "data.target_lang=fr", "data.test=t", "--hypotheses", "other.fr"]
    ran = run(["evaluate", *data], folder)
    assert ran.out.startswith(b"files.test, 4 lines, hypotheses other.fr\n")
    assert ran.out.split(b"\n")[1:] == run([*OTHER, "--source", "t.en"], folder).out.split(b"\n")[1:]
    says = ["other.fr: has 4 lines, data=demo_en_fr: its test set 500, so nothing is scored"]
    refused(["evaluate", "data=demo_en_fr", "--hypotheses", "other.fr"], folder, code=3, says=says)


def test_several_references_and_a_source_are_taken_and_counted(folder: Path) -> None:
    put(folder / "second.fr", TRANSLATIONS)
    put(folder / "t.en", ["a", "b", "c", "d"])
    ran = run([*OTHER, "--reference", "second.fr", "--source", "t.en"], folder)
    assert ran.code == 0, ran.err
    assert ran.out.startswith(b"t.fr, second.fr, 4 lines, hypotheses other.fr\nBLEU            100.00  nrefs:2|")
    put(folder / "t.en", ["a", "b"])
    says = ["other.fr: has 4 lines, t.en 2, so nothing is scored. Make line n of one"]
    refused([*OTHER, "--source", "t.en"], folder, code=3, says=says)
    put(folder / "second.fr", TRANSLATIONS[:3])
    refused([*OTHER, "--reference", "second.fr"], folder, code=3, says=["other.fr: has 4 lines, second.fr 3"])


def test_english_and_german_files_get_the_score_of_the_paper_too(folder: Path) -> None:
    for name in ("t.en", "t.de.gz", "h"):
        (folder / name).write_bytes(gzip.compress(b"ein Text\n") if name.endswith("gz") else b"ein Text\n")
    ran = run(["evaluate", "--source", "t.en", "--reference", "t.de.gz", "--hypotheses", "h"], folder)
    assert b"\npaper BLEU" in ran.out, ran


def test_odd_files_are_read_as_a_corpus_is(folder: Path) -> None:
    plain = run(OTHER, folder).out.split(b"\n")[1:]
    put(folder / "other.fr", TRANSLATIONS, end="\r\n")
    ran = run(OTHER, folder)
    assert ran.out.split(b"\n")[1:] == plain
    assert ran.err == b"other.fr: 4 lines end in \\r\\n; the \\r was left out\n"
    (folder / "other.fr.gz").write_bytes(gzip.compress("\n".join(TRANSLATIONS).encode()))
    assert run([*OTHER[:-1], "other.fr.gz"], folder).out.split(b"\n")[1:] == plain
    put(folder / "other.fr", ["a\u2028b", "\x85", "c\x0b", "d\x0c"])
    assert run(OTHER, folder).code == 0, "lines end at line feeds only"
    for content, says in (
        (b"Le chat\ncaf\xe9\nc\nd\n", "other.fr:2: byte 0xe9 at column 4 is not UTF-8"),
        (b"", "other.fr: is empty"),
        ("Le chat\n".encode("utf-16"), "other.fr: is UTF-16LE, not UTF-8"),
    ):
        (folder / "other.fr").write_bytes(content)
        refused(OTHER, folder, code=3, says=[says])


def test_a_file_that_is_not_there_or_has_no_references_is_told_what_the_flags_mean(folder: Path) -> None:
    says = ["nowhere.fr: no such file", "--hypotheses is an input", "--save names a file"]
    refused([*OTHER[:-1], "nowhere.fr"], folder, code=3, says=says)
    says = ["--reference: not given, but --hypotheses is", "data=NAME"]
    refused(["evaluate", "--hypotheses", "other.fr"], folder, code=2, says=says)
    refused(["evaluate", "--hypotheses", "other.fr", "--source", "t.fr"], folder, code=2, says=says)


@each(
    "given, key",
    [
        (["--checkpoint", "model.safetensors"], "checkpoint: "),
        (["--beam", "4"], "decode.beam_size: "),
        (["decode=greedy"], "decode: "),
        (["engine=ctranslate2"], "engine: "),
        (["--save", "new"], "save: "),
        (["--hypotheses", "t.fr"], "--hypotheses: names 2 files, and one is read at a time"),
        (["data=demo_en_fr"], "reference=t.fr: and data=demo_en_fr name two test sets"),
    ],
)
def test_what_only_a_model_has_a_use_for_is_refused_beside_a_file(folder: Path, given: list[str], key: str) -> None:
    refused([*OTHER, *given], folder, code=2, says=[key])


def test_text_in_another_language_than_the_models_is_scored_with_a_warning(folder: Path) -> None:
    put(folder / "t", ["Le chat est dans la maison et il ne boit pas le lait avec une amie."] * 8)
    texts = ["--source", "t", "--reference", "t", "robustness=false"]
    ran = run([*MODEL[:5], *texts], folder)
    assert b"warning: t: reads like fr, but the model translates from en\n" in ran.err
    put(folder / "t", ["The cat is in the house and it was not with the milk that we have."] * 8)
    assert b"reads like" not in run([*MODEL[:5], *texts], folder).err


def test_the_reference_itself_is_scored_with_a_warning(folder: Path) -> None:
    ran = run([*OTHER[:-1], "t.fr"], folder)
    assert ran.code == 0
    assert ran.err == b"tfm: warning: t.fr: is both --hypotheses and --reference, which says nothing of a translation\n"


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (
            ["a b", "", "", "c d"],
            b"given: 1 of 4 lines are blank where t.fr has text, the first is line 2, and are scored",
        ),
        (
            ["a\tb", "c\td", "", "e"],
            b"given: has tabs in its lines, as a table has; all columns of a line are scored as",
        ),
        (["a b", "c\td", "", "e"], None),
    ],
)
def test_references_that_lack_text_or_are_a_table_are_scored_with_a_warning(
    folder: Path, lines: list[str], says: bytes | None
) -> None:
    put(folder / "t.fr", ["a b", "c d", "", "e f"])
    put(folder / "given", lines)
    ran = run(["evaluate", "--hypotheses", "t.fr", "--reference", "given", "metrics=[chrf]"], folder)
    assert ran.code == 0
    assert ran.err == b"" if says is None else ran.err.startswith(b"tfm: warning: " + says), ran.err


def test_a_line_that_some_reference_has_is_no_blank_one(folder: Path) -> None:
    put(folder / "t.fr", ["a b", "c d"])
    for name, lines in (("one", ["a b", ""]), ("two", ["", "c d"])):
        put(folder / name, lines)
    files = ["--reference", "one", "--reference", "two"]
    assert run(["evaluate", "--hypotheses", "t.fr", *files, "metrics=[chrf]"], folder).err == b""


def test_a_source_that_is_its_own_reference_is_translated_with_a_warning(folder: Path) -> None:
    put(folder / "t", ["the cat", "a dog"])
    ran = run([*MODEL[:5], "--source", "t", "--reference", "t", "robustness=false"], folder)
    assert b"warning: t: is both --source and --reference, which says nothing of a translation\n" in ran.err


def test_labels_are_scored_against_labels(folder: Path) -> None:
    put(folder / "test.tsv", ["good\ta film", "bad\tno film", "", "good\tfine", "bad\tdull"])
    data = ["evaluate", "data=labels", "data.test=test.tsv", "--json", "--hypotheses", "printed"]
    for printed in (["good", "good", "", "good", "bad"], ["good", "good", "good", "bad"]):  # with and without blanks
        put(folder / "printed", printed)
        found = json.loads(run(data, folder).out)
        assert (found["accuracy"]["score"], found["lines"], found["hypotheses"]) == (75.0, 4, "printed")
        assert found["confusion"] == [[1, 1], [0, 2]]  # bad, good
    put(folder / "printed", ["god", "bad", "good", "bad"])
    ran = run([word for word in data if word != "--json"], folder)
    assert ran.out.startswith(b"labels.test, 4 lines, hypotheses printed\naccuracy   75.00")
    assert ran.err == b"tfm: warning: printed: 1 of 4 labels are none of the test set's, as 'god'\n"
    put(folder / "printed", ["good"])
    refused(data, folder, code=3, says=["printed: has 1 lines, data=labels: its test set 5"])
    text = ["evaluate", "data=text", "data.test=t.fr", "--hypotheses", "printed"]
    refused(text, folder, code=2, says=["language model"])


# ---- What a model says, and where it is kept


def test_D16_what_is_saved_replaces_no_file_unasked_and_never_an_input(folder: Path) -> None:
    put(folder / "there", ["mine"])
    (folder / "link").symlink_to("text")
    (folder / "gone").mkdir()
    to = [*MODEL, "--save"]
    model = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(b"not read before")
    refused([*to, "there"], folder, code=2, says=["there: exists already. Add --overwrite, or choose another --save"])
    for name in ("link", "model.safetensors"):
        refused([*to, name, "--overwrite"], folder, code=2, says=[f"{name}: both ", "and --save"])
    refused([*to, "gone", "--overwrite"], folder, code=2, says=["gone: not a plain file"])
    (folder / "model.safetensors").write_bytes(model)
    ran = run([*to, "there", "--overwrite", "--json"], folder)
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["hypotheses"] == "there"
    lines = run(["translate", *MODEL[1:5]], folder, stdin=(folder / "text").read_bytes()).out
    assert (folder / "there").read_bytes() == lines


def test_D16_a_file_that_appears_meanwhile_is_not_replaced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree(folder)
    translate = evaluate.translate

    def slow(*arguments: object, **options: object) -> object:
        put(folder / "new", ["of somebody else"])
        return translate(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(evaluate, "translate", slow)
    ran = run([*MODEL, "--save", "new"], folder)
    assert ran.code != 0
    assert b"\ntfm: error: new: has appeared" in ran.err
    assert (folder / "new").read_bytes() == b"of somebody else\n"
    untouched(before, folder, new=["new", "new.*"])


def test_a_corpus_is_not_overwritten_by_what_a_model_makes_of_it(folder: Path) -> None:
    put(folder / "test.tsv", [f"{line}\t{line}" for line in sentences(4, seed=1)])
    data = ["data=files", "data.source_lang=en", "data.target_lang=xx", "data.test=test.tsv"]
    command = ["evaluate", "--checkpoint", "model.safetensors", "--device", "cpu", *data]
    says = ["test.tsv: both a file of data=files and --save"]
    refused([*command, "--save", "test.tsv", "--overwrite"], folder, code=2, says=says)
    assert run([*command, "--save", "new"], folder).code == 0
    (folder / "own.tsv").symlink_to("test.tsv")
    refused([*command, "--save", "own.tsv", "--overwrite"], folder, code=2, says=["own.tsv: both a file of data=files"])


def test_every_search_keeps_its_translations_in_a_file_of_its_own(folder: Path) -> None:
    names = {
        (): "hypotheses.text.beam4.xx",
        ("decode=greedy",): "hypotheses.text.greedy.xx",
        ("--beam", "2"): "hypotheses.text.beam2.xx",
        ("decode.length_penalty=1", "decode.batch_tokens=64"): "hypotheses.text.beam4-length_penalty=1.0.xx",
    }
    for options, name in names.items():
        before = tree(folder)
        assert run([*MODEL, *options], folder).code == 0
        untouched(before, folder, new=[name, f".{name}.input"])
    written = (folder / name).read_bytes()
    (folder / name).write_bytes(b"older\n")
    assert run([*MODEL, *options], folder).err.endswith(f"translations: {name}\n".encode())
    assert (folder / name).read_bytes() == written, "the same again takes its place"


def test_every_model_of_a_folder_keeps_its_translations_in_a_file_of_its_own(folder: Path) -> None:
    runs = folder / "runs" / "a"
    for model in (runs / "model.safetensors", runs / "checkpoints/step-00000004/model.safetensors", folder / "b.st"):
        model.parent.mkdir(parents=True, exist_ok=True)
        model.write_bytes((folder / "model.safetensors").read_bytes())
    (runs / "config.yaml").touch()
    for name, file in {
        "runs/a": "runs/a/hypotheses.text.greedy.xx",
        "runs/a/checkpoints/step-00000004": "runs/a/hypotheses.text.greedy.step-00000004.xx",
        "b.st": "hypotheses.text.greedy.b.st.xx",
    }.items():
        before = tree(folder)
        assert run(["evaluate", "--checkpoint", name, *MODEL[3:], "decode=greedy"], folder).code == 0
        untouched(before, folder, new=[file, "*.input"])


def test_every_test_set_keeps_its_translations_in_a_file_of_its_own(folder: Path) -> None:
    """Files of one name in two folders, two tables of one corpus, and one set with and without what it has now."""
    for name, seed in (("news", 1), ("talks", 2)):
        (folder / name).mkdir()
        put(folder / name / "test.en", sentences(4, seed=seed))
        put(folder / f"{name}.tsv", [f"{line}\t{line}" for line in sentences(4, seed=seed)])
    files = ["data=files", "data.source_lang=en", "data.target_lang=xx"]
    sets = {
        "news": ["--source", "news/test.en", "--reference", "news/test.en"],
        "talks": ["--source", "talks/test.en", "--reference", "talks/test.en"],
        "news.tsv": [*files, "data.test=news.tsv"],
        "talks.tsv": [*files, "data.test=talks.tsv"],
    }
    command = ["evaluate", "--checkpoint", "model.safetensors", "--device", "cpu", "--json", "decode=greedy"]
    found: dict[str, tuple[str, bytes]] = {}
    for _ in range(2):  # the second time each takes the place of its own
        for key, arguments in sets.items():
            ran = run([*command, *arguments], folder)
            assert ran.code == 0, ran.err
            file = json.loads(ran.out)["hypotheses"]
            assert found.setdefault(key, (file, (folder / file).read_bytes()))[0] == file
    for key, (file, written) in found.items():
        assert (folder / file).read_bytes() == written, key
    assert len({file for file, _ in found.values()}) == len(sets)
    assert found["news"][0] == "hypotheses.test.en.greedy.xx"
    assert found["news.tsv"][0] == "hypotheses.files.test.greedy.xx"
    put(folder / "news" / "test.en", sentences(4, seed=3))
    ran = run([*command, *sets["news"]], folder)
    assert b"hypotheses.test.en.greedy.xx: is of another test set than this test.en, or of other tags, and " in ran.err
    assert (folder / found["news"][0]).read_bytes() == found["news"][1]


def test_the_default_file_is_not_written_over_an_input(folder: Path) -> None:
    reference = folder / "hypotheses.text.greedy.xx"
    put(reference, sentences(6, seed=5))
    before = tree(folder)
    ran = run([*MODEL[:-1], reference.name, "decode=greedy"], folder)
    assert ran.code == 0
    assert b"is an input, so the translations are not saved there" in ran.err
    untouched(before, folder)


@each(
    "decode, seed, name",
    [
        (DecodeConfig(), 7, "beam4"),
        (DecodeConfig(search="greedy", beam_size=1), 1, "greedy"),
        (DecodeConfig(search="mbr", beam_size=1), 1, "mbr32"),
        (DecodeConfig(search="sample", beam_size=1, top_k=5), 2, "sample-top_k=5,seed=2"),
        (DecodeConfig(beam_size=6, min_length=3, batch_invariant=True), 1, "beam6-min_length=3,batch_invariant=True"),
    ],
)
def test_a_search_is_called_by_what_is_not_by_default(decode: DecodeConfig, seed: int, name: str) -> None:
    assert search_name(decode, seed=seed) == name


def test_a_search_of_many_options_and_a_long_name_still_make_a_file(folder: Path) -> None:
    options = ["coverage_penalty=0.25", "max_extra_length=51", "max_length=99", "min_length=1", "no_repeat_ngram=7",
               "max_source_length=99", "long_lines=cut", "length_penalty=0.75"]  # fmt: skip
    put(folder / ("x" * 240), sentences(6, seed=5))
    ran = run([*MODEL[:-3], "x" * 240, "--reference", "text", *(f"decode.{one}" for one in options)], folder)
    assert ran.code == 0, ran.err
    (name,) = [name for name in os.listdir(folder) if name.startswith("hypotheses")]
    assert ran.err.endswith(f"translations: {name}\n".encode())
