"""Test sets by name: sacrebleu's cache is filled from a server on this machine, and scores are those of its command."""

import csv
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from sacrebleu.dataset import DATASETS

from tests.commands.test_evaluate_command import put
from tests.data.test_download import Handler, Site, site  # noqa: F401 (a fixture)
from tests.golden.make import FOLDER
from tests.support.contract import refused, run
from tests.toy.run import sentences
from transformer_cli.addons.comparison import compare_models
from transformer_cli.config.data import DataConfig
from transformer_cli.data import named_sets
from transformer_cli.data.corpus import ParallelText, load_text
from transformer_cli.data.named_sets import SetFiles, set_files, set_names
from transformer_cli.errors import ConfigError, EnvironmentFault
from transformer_cli.models.file import read_model

SOURCES = ["The cat sat on the mat .", "She left.", "A third & last line."]
GERMAN = ["Die Katze saß auf der Matte.", "Sie ging.", "Eine dritte & letzte Zeile."]


def sgm(lines: list[str]) -> bytes:
    """Lines as WMT publishes them: no well-formed XML, and entities are not replaced by sacrebleu."""
    segments = "".join(f'<seg id="{number}">{line}</seg>\n' for number, line in enumerate(lines, 1))
    return f'<srcset>\n<doc docid="d1" genre="news" origlang="en">\n{segments}</doc>\n</srcset>\n'.encode()


def packed(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


WMT14 = packed(
    {
        "test/newstest2014-deen-src.en.sgm": sgm(SOURCES),
        "test/newstest2014-deen-ref.de.sgm": sgm(GERMAN),
        "test/newstest2014-deen-src.de.sgm": sgm(GERMAN),
        "test/newstest2014-deen-ref.en.sgm": sgm(SOURCES),
        "test/of nobody": b"not unpacked",
        "../outside": b"an attack",
    }
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SACREBLEU", str(folder))
    return folder


@pytest.fixture
def wmt14(site: Site, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Site:  # noqa: F811
    """A server with a tiny newstest2014, which sacrebleu's table names."""
    monkeypatch.setattr(DATASETS["wmt14"], "data", [f"{site.url}/test-filtered.tgz"])
    monkeypatch.setattr(DATASETS["wmt14"], "md5", [hashlib.md5(WMT14).hexdigest()])
    site.replies["/test-filtered.tgz"] = lambda handler: handler.send(WMT14)
    return site


def found(languages: str = "en-de") -> SetFiles:
    return set_files("wmt14", languages, asked_by="--test-set wmt14")


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_set_is_downloaded_once_and_laid_out_as_sacrebleu_does(wmt14: Site, cache: Path) -> None:
    files = found()
    assert (files.source_lang, files.target_lang) == ("en", "de")
    assert files.read() == (SOURCES, [GERMAN])
    fields = ("docid", "genre", "origlang", "ref", "src")
    raw = sorted([f"newstest2014-deen-{side}.sgm" for side in ("ref.de", "ref.en", "src.de", "src.en")])
    assert names(cache) == [
        *(f"wmt14/raw/test/{name}" for name in raw),
        "wmt14/raw/wmt14.test-filtered.tgz",
        *(f"wmt14/wmt14.en-de.{field}" for field in fields),
    ]
    assert found("de-en").read() == (GERMAN, [SOURCES])
    assert found() == files
    assert len(wmt14.requests) == 1


def test_nothing_is_left_of_a_download_that_fails(wmt14: Site, cache: Path) -> None:
    def page(handler: Handler) -> None:
        handler.send(b"<html>log in</html>", Content_Type="text/html")

    for reply, says in (
        (lambda handler: handler.send(WMT14, stop_after=100), "bytes are missing"),
        (lambda handler: handler.send(WMT14[:100]), "what came has MD5"),
        (lambda handler: handler.send(b"", status=404), "the server answers 404"),
        (page, "a web page came instead"),
    ):
        wmt14.replies["/test-filtered.tgz"] = reply
        with pytest.raises(EnvironmentFault, match=says) as caught:
            found()
        assert str(caught.value).startswith(f"--test-set wmt14: not in {cache}, and {wmt14.url}/test-filtered.tgz")
        assert "--source and --reference" in str(caught.value)
        assert list(cache.iterdir()) == []


def test_a_server_that_is_not_there_is_said(wmt14: Site, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DATASETS["wmt14"], "data", ["http://127.0.0.1:9/test-filtered.tgz"])
    with pytest.raises(EnvironmentFault, match="refused"):
        found()


@pytest.mark.parametrize("damage", ["no text", "empty text", "archive cut short", "member cut short", "no archive"])
def test_what_an_interrupted_sacrebleu_has_left_is_made_whole(wmt14: Site, cache: Path, damage: str) -> None:
    found()
    folder = cache / "wmt14"
    for text in folder.glob("wmt14.*"):
        text.unlink()
    archive = folder / "raw/wmt14.test-filtered.tgz"
    match damage:
        case "empty text":
            for field in ("docid", "genre", "origlang", "ref", "src"):
                (folder / f"wmt14.en-de.{field}").touch()
        case "archive cut short":
            archive.write_bytes(WMT14[:50])
        case "member cut short":
            (folder / "raw/test/newstest2014-deen-ref.de.sgm").write_bytes(sgm(GERMAN)[:-40])
        case "no archive":
            archive.unlink()
    assert found().read() == (SOURCES, [GERMAN])
    assert archive.read_bytes() == WMT14


def test_a_lock_of_sacrebleu_is_not_waited_for(wmt14: Site, cache: Path) -> None:
    lock = cache / "wmt14/raw/wmt14.test-filtered.tgz.lock"
    lock.parent.mkdir(parents=True)
    portalocker = pytest.importorskip("portalocker")
    with portalocker.Lock(lock):
        assert found().read() == (SOURCES, [GERMAN])


def test_files_that_do_not_fit_are_refused(wmt14: Site, cache: Path) -> None:
    found()
    (cache / "wmt14/wmt14.en-de.ref").write_text("one line\n", encoding="utf-8")
    with pytest.raises(EnvironmentFault, match=r"ref: has 1 lines, .*src 3\. Delete .*wmt14, and it is made again"):
        found().read()


def test_a_set_in_the_cache_needs_neither_network_nor_a_disk_to_write_to(wmt14: Site, cache: Path) -> None:
    found()
    wmt14.replies.clear()
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
    assert found().read() == (SOURCES, [GERMAN])
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*")} == before


XML = b"""<dataset id="t"><doc id="d" origlang="en"><src lang="en">
<p><seg id="1">One.</seg><seg id="2">Two.</seg></p></src>
<ref lang="de" translator="A"><p><seg id="1">Eins.</seg><seg id="2">Zwei.</seg></p></ref>
<ref lang="de" translator="B"><p><seg id="1">Ein.</seg><seg id="2">Zwo.</seg></p></ref></doc></dataset>"""


def test_a_set_with_two_references_has_both(site: Site, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    archive = packed({"test/newstest2021.en-de.xml": XML})
    for name in ("wmt21/AC", "wmt21", "wmt21/AB"):
        monkeypatch.setattr(DATASETS[name], "data", [f"{site.url}/test.tgz"])
        monkeypatch.setattr(DATASETS[name], "md5", [hashlib.md5(archive).hexdigest()])
    site.replies["/test.tgz"] = lambda handler: handler.send(archive)
    one = set_files("wmt21", "en-de", asked_by="").read()
    assert one == (["One.", "Two."], [["Eins.", "Zwei."]])
    monkeypatch.setitem(DATASETS["wmt21/AC"].kwargs, "refs", ["A", "B"])
    both = set_files("wmt21/AC", "en-de", asked_by="").read()
    assert both == (["One.", "Two."], [["Eins.", "Zwei."], ["Ein.", "Zwo."]])


def test_names_and_directions_that_there_are_not_are_answered_with_those_that_there_are(cache: Path) -> None:
    with pytest.raises(ConfigError, match=r"--test-set wmt41: sacrebleu has no such test set; did you mean `wmt14`\?"):
        set_files("wmt14x", "en-de", asked_by="--test-set wmt41")
    with pytest.raises(ConfigError, match=r"--test-set wmt14: has no en-ja.*\(choices: cs-en, de-en, en-cs, en-de"):
        set_files("wmt14", "en-ja", asked_by="--test-set wmt14")
    assert set(set_names("en-de")) < set(set_names()) == set(DATASETS)
    assert not cache.exists()
    assert named_sets.check_languages("en-de") == ("en", "de")
    with pytest.raises(ConfigError, match="Write it as en-de"):
        named_sets.check_languages("English")


# ---- tfm evaluate


def by_sacrebleu(cache: Path, hypotheses: Path, name: str, *options: str) -> list[dict[str, object]]:
    asked = ["-t", name, "-l", "en-de", "-i", str(hypotheses), "-w", "12", *options]
    command = [sys.executable, "-m", "sacrebleu", *asked]
    environment = {key: value for key, value in os.environ.items() if key != "SACREBLEU_FORMAT"}
    environment["SACREBLEU"] = str(cache)
    answer = json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)
    return answer if isinstance(answer, list) else [answer]


def text_of(cache: Path, name: str, sources: list[str], *references: list[str]) -> None:
    """The text files of a set, as sacrebleu keeps them."""
    folder = cache / name
    folder.mkdir(parents=True, exist_ok=True)
    fields = {"src": sources, **{field: ["x"] * len(sources) for field in ("docid", "genre", "origlang")}}
    fields |= {f"ref-{i}": lines for i, lines in enumerate(references)} if references[1:] else {"ref": references[0]}
    for field, lines in fields.items():
        put(folder / f"{name.replace('/', '_')}.en-de.{field}", lines)


OUTPUT = ["Die Katze sitzt auf der Matte.", "Sie ging.", "Eine dritte Zeile."]


def test_scores_of_files_are_those_of_sacrebleus_own_command(cache: Path, tmp_path: Path) -> None:
    text_of(cache, "wmt14", SOURCES, GERMAN)
    # Neither U+2028 nor a carriage return in a line ends it.
    second = ["Die Katze lag da.", "Sie\u2028ist gegangen.", "Zeile\x85drei."]
    text_of(cache, "wmt20/tworefs", SOURCES, GERMAN, second)
    put(tmp_path / "a", OUTPUT)
    put(tmp_path / "b", second)
    command = ["evaluate", "--test-set", "wmt14,wmt20/tworefs", "--languages", "en-de"]
    ran = run([*command, "--hypotheses", "a", "--hypotheses", "b", "metrics=[bleu,chrf,ter]"], tmp_path)
    assert ran.code == 0, ran.err
    rows = [line.split() for line in ran.out.decode().split("\n")]
    assert rows[0] == ["test", "set", "lines", "BLEU", "chrF2", "TER"]
    ran = run([*command, "--hypotheses", "a", "--hypotheses", "b", "metrics=[bleu,chrf,ter]", "--json"], tmp_path)
    found = json.loads(ran.out)
    assert [one["test_set"] for one in found] == ["wmt14.en-de", "wmt20/tworefs.en-de"]
    for row, one, name, file in zip(rows[1:3], found, ("wmt14", "wmt20/tworefs"), "ab", strict=True):
        expected = by_sacrebleu(cache, tmp_path / file, name, "-m", "bleu", "chrf", "ter")
        assert [round(score["score"], 12) for score in one["scores"]] == [score["score"] for score in expected]
        assert [score["signature"] for score in one["scores"]] == [score["signature"] for score in expected]
        assert row == [f"{name}.en-de,", file, "3", *(f"{score['score']:.2f}" for score in expected)]
    assert found[1]["scores"][0]["signature"].startswith("nrefs:2|")
    assert ["BLEU", found[1]["scores"][0]["signature"], "(wmt20/tworefs.en-de,", "b)"] in rows
    ran = run(
        [*command, "--hypotheses", "a", "--hypotheses", "b", "metrics=[bleu,chrf,ter]", "--table", "csv"], tmp_path
    )
    pasted = [*csv.DictReader(io.StringIO(ran.out.decode(), newline=""), strict=True)]
    assert [row["test set"] for row in pasted] == ["wmt14.en-de, a", "wmt20/tworefs.en-de, b"]
    assert [float(row["BLEU"]) for row in pasted] == [one["scores"][0]["score"] for one in found]
    assert [row["BLEU signature"] for row in pasted] == [one["scores"][0]["signature"] for one in found]


def test_one_set_is_reported_as_any_test_set(cache: Path, tmp_path: Path) -> None:
    text_of(cache, "wmt14", SOURCES, GERMAN)
    put(tmp_path / "a", OUTPUT)
    put(tmp_path / "ref.de", GERMAN)
    ran = run(["evaluate", "--test-set", "wmt14", "--languages", "en-de", "--hypotheses", "a"], tmp_path)
    own = run(["evaluate", "--reference", "ref.de", "--hypotheses", "a", "--source", "ref.de"], tmp_path)
    first, *scores = ran.out.decode().split("\n")
    assert first == "wmt14.en-de, 3 lines, hypotheses a"
    assert scores[:3] == own.out.decode().split("\n")[1:4]
    put(tmp_path / "a", OUTPUT[:2])
    says = ["a: has 2 lines, wmt14.en-de 3, so nothing is scored"]
    refused(
        ["evaluate", "--test-set", "wmt14", "--languages", "en-de", "--hypotheses", "a"], tmp_path, code=3, says=says
    )


@pytest.mark.parametrize(
    ("given", "code", "says"),
    [
        (["--test-set", "wmt14", "--source", "a"], 2, "--test-set wmt14: and --source a name two test sets"),
        (["--test-set", "wmt14", "data=demo_en_fr"], 2, "--test-set wmt14: and data=demo_en_fr name two test sets"),
        (["--languages", "en-de"], 2, "--languages en-de: says what --test-set is read in"),
        (["--test-set", "wmt14", "--hypotheses", "a"], 2, "--languages: not given"),
        (["--test-set", "wmt14,", "--hypotheses", "a"], 2, "names nothing"),
        (
            ["--test-set", "wmt14,wmt15", "--hypotheses", "a"],
            2,
            "2 sets, but files of --hypotheses: 1. Give one of each",
        ),
        (["--test-set", "wmt14,wmt15", "--save", "a"], 2, "--save a: one file, but --test-set wmt14,wmt15 is 2 sets"),
        (["--test-set", "wmt4", "--languages", "en-de", "--hypotheses", "a"], 2, "did you mean `wmt"),
        (["--test-set", "wmt14", "--languages", "en-xx", "--hypotheses", "a"], 2, "has no en-xx"),
        (["--test-set", "wmt14", "--languages", "de", "--hypotheses", "a"], 2, "Write it as en-de"),
        (["--test-set", "list", "--languages", "en-xx"], 2, "no test set of sacrebleu has it"),
    ],
)
def test_what_does_not_go_together_is_refused(
    cache: Path, tmp_path: Path, given: list[str], code: int, says: str
) -> None:
    put(tmp_path / "a", OUTPUT)
    refused(["evaluate", *given], tmp_path, code=code, says=[says])


def test_the_names_can_be_listed(tmp_path: Path) -> None:
    ran = run(["evaluate", "--test-set", "list", "--languages", "en-ha"], tmp_path)
    lines = ran.out.decode().split("\n")[:-1]
    assert [line.split()[0] for line in lines] == ["wmt21", "wmt21/dev", "wmt21/systems"]
    assert all("en-ha" in line.split() for line in lines)


def test_without_network_a_command_ends_in_one_line(wmt14: Site, cache: Path, tmp_path: Path) -> None:
    wmt14.replies["/test-filtered.tgz"] = lambda handler: handler.send(WMT14, stop_after=9)
    put(tmp_path / "a", OUTPUT)
    command = ["evaluate", "--test-set", "wmt14", "--languages", "en-de", "--hypotheses", "a"]
    says = [f"--test-set wmt14: not in {cache}, and {wmt14.url}/test-filtered.tgz cannot be downloaded"]
    refused(command, tmp_path, code=5, says=says, working=True, new=["cache"])


# ---- Of a model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """It copies letters, badly, from xx to yy."""
    (tmp_path / "model.safetensors").write_bytes((FOLDER / "joint-pre.safetensors").read_bytes())
    return tmp_path


def test_a_model_translates_the_sets_of_its_direction(
    cache: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = sentences(4, seed=5)
    made = read_model(model / "model.safetensors")
    pair = f"{made.source_lang}-{made.target_lang}"
    for name in ("wmt14", "wmt15"):
        monkeypatch.setitem(DATASETS[name].langpairs, pair, ["a", "b"])
        text_of(cache, name, lines, lines)
        for file in (cache / name).iterdir():
            file.rename(file.with_name(file.name.replace("en-de", pair)))
    command = ["evaluate", "--checkpoint", "model.safetensors", "--device", "cpu", "metrics=[chrf]", "--beam", "1"]
    ran = run([*command, "--test-set", "wmt14", "--test-set", "wmt15", "--json"], model)
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    put(model / "own", lines)
    own = json.loads(run([*command, "--source", "own", "--reference", "own", "--json"], model).out)
    assert [one["scores"] for one in found] == [own["scores"]] * 2
    assert [(model / one["hypotheses"]).read_text() for one in found] == [(model / own["hypotheses"]).read_text()] * 2
    assert [one["search"] for one in found] == [own["search"]] * 2
    refused(
        [*command, "--test-set", "wmt14", "--languages", "en-de"], model, code=2, says=["--languages en-de: the model"]
    )


def test_a_corpus_may_name_sets_too(cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text_of(cache, "wmt14", SOURCES, GERMAN)
    text_of(cache, "wmt20/tworefs", SOURCES[:2], GERMAN[:2], OUTPUT[:2])
    put(tmp_path / "own.en", SOURCES)
    put(tmp_path / "own.de", OUTPUT)
    config = DataConfig(
        source_lang="en",
        target_lang="de",
        root=str(tmp_path),
        train="own",
        dev="sacrebleu:wmt14",
        test=["own.en", "own.de", "sacrebleu:wmt14", "sacrebleu:wmt20/tworefs"],
    )
    dev, test = load_text(config, "dev"), load_text(config, "test")
    assert dev == ParallelText(SOURCES, GERMAN)
    assert test is not None
    assert [(part.name, part.n) for part in test.parts] == [("own", 3), ("wmt14", 3), ("wmt20/tworefs", 2)]
    assert test.targets == [*OUTPUT, *GERMAN, *GERMAN[:2]]
    assert "has 2 references, of which the first is used" in caplog.text
    with pytest.raises(ConfigError, match=r"data\.dev=sacrebleu:wmt41: sacrebleu has no such test set"):
        load_text(replace(config, dev="sacrebleu:wmt41"), "dev")


def test_a_comparison_is_of_the_first_named_set_for_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def sets_for(*arguments: object) -> list[str]:
        asked.append(arguments)
        return ["the set"]

    monkeypatch.setattr(compare_models, "sets_for", sets_for)
    monkeypatch.setattr(compare_models, "tags_for", lambda config, model: ("<2de>",))
    config, model = SimpleNamespace(test_set="wmt13", languages="en-de"), SimpleNamespace(first="a model")
    found = compare_models.test_set_for(config, model)  # type: ignore[arg-type]
    assert found == "the set"  # type: ignore[comparison-overlap]
    assert asked == [(["wmt13"], "en-de", "a model", ("<2de>",))]
