"""Corpus formats by their names in the registry: those of the package, and one of a user's own."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import XMLPullParser

import pytest

from transformer_cli.cli import main
from transformer_cli.config.compose import load_config
from transformer_cli.config.data import DataConfig, OnBad, TokenizerConfig
from transformer_cli.data.corpus import ParallelText, check_weights, load_text
from transformer_cli.data.lines import Lines
from transformer_cli.data.prepare import Prepared, prepare
from transformer_cli.data.readers import READERS, Pair, Reader
from transformer_cli.errors import ConfigError, DataError

LETTERS = "abcdefghij"


@dataclass
class Fields:
    source: str = "source"
    target: str = "target"


class JsonLines(Reader):
    """One JSON object per line; `data.options` names the two fields."""

    def pairs(self, files: Sequence[Lines]) -> Iterator[Pair]:
        [lines] = files
        for index, line in lines.numbered():
            try:
                record = json.loads(line)
                yield record[self.options["source"]], record[self.options["target"]]
            except (ValueError, KeyError) as error:
                lines.reject(index, f"no pair: {error!r}")


class Tmx(Reader):
    """Translation memories: elements that span several lines."""

    def pairs(self, files: Sequence[Lines]) -> Iterator[Pair]:
        [lines] = files
        parser = XMLPullParser(["end"])
        for _, line in lines.numbered():
            parser.feed(line)
            for _, element in parser.read_events():
                if element.tag == "tu":
                    text = {variant.get("lang"): variant.findtext("seg", "") for variant in element.iter("tuv")}
                    yield text[self.config.source_lang], text[self.config.target_lang]
                    element.clear()


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers readers as the module of a user does: `@READERS.register("jsonl")`."""
    monkeypatch.setattr(READERS, "_entries", dict(READERS._entries))
    monkeypatch.setattr(READERS, "_options", {})
    READERS.register("jsonl", options=Fields)(JsonLines)
    READERS.register("tmx")(Tmx)


def records(lines: Sequence[Any]) -> str:
    return "".join(f"{json.dumps(line)}\n" for line in lines)


@pytest.fixture
def config(tmp_path: Path) -> DataConfig:
    sentences = [f"{a} {b} {c}" for a in LETTERS for b in LETTERS for c in "xy"]
    pairs = [{"source": sentence, "target": sentence.upper(), "en": "one", "de": "eins"} for sentence in sentences]
    (tmp_path / "corpus.jsonl").write_text(records(pairs), encoding="utf-8")
    return DataConfig(
        source_lang="en",
        target_lang="de",
        root=str(tmp_path),
        train="corpus.jsonl",
        reader="jsonl",
        cache=str(tmp_path / "cache"),
        tokenizer=TokenizerConfig(vocab_size=40),
    )


def folders(config: DataConfig) -> set[str]:
    return {path.name for path in (Path(config.cache) / config.name).glob("prepared-*")}


def prepared_anew(config: DataConfig) -> Prepared | None:
    """What was prepared if it was not in the cache, else None."""
    before = folders(config)
    prepared = prepare(config)
    return prepared if folders(config) > before else None


def test_a_format_from_outside_the_package_is_prepared(config: DataConfig) -> None:
    prepared = prepare(config)
    assert len(prepared.train) + len(prepared.dev) + len(prepared.test or ()) == 200
    assert all(target == source.upper() for source, target in prepared.dev.each())


def test_the_cache_of_a_format_depends_on_its_files_options_and_version(
    config: DataConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert prepared_anew(config)
    assert not prepared_anew(config)
    exchanged = replace(config, options={"source": "target", "target": "source"})
    assert prepared_anew(exchanged)
    assert not prepared_anew(config)
    with (Path(config.root or "") / "corpus.jsonl").open("a", encoding="utf-8") as file:
        file.write(records([{"source": "a b z", "target": "A B Z"}]))
    assert prepared_anew(config)
    monkeypatch.setattr(JsonLines, "version", 2)
    assert prepared_anew(config)
    assert not prepared_anew(config)


def test_a_format_from_outside_the_package_is_trained_on(
    config: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.jsonl").rename(tmp_path / "corpus.json.lines")
    data = ["data=files", "recipe=files", "data.source_lang=en", "data.target_lang=de", "data.train=corpus.json.lines"]
    data += ["data.reader=jsonl", "data.options={source: target, target: source}", "data.tokenizer.vocab_size=40"]
    assert main(["prepare", *data]) == 0
    sizes = [
        "model.d_model=16",
        "model.n_heads=2",
        "model.d_ff=16",
        "model.n_encoder_layers=1",
        "model.n_decoder_layers=1",
    ]
    short = ["device=cpu", "train.robustness_lines=0", "train.samples=0", "decode.max_extra_length=5"]
    assert main(["train", "--name", "run", *data, *sizes, *short, "train.max_steps=2"]) == 0
    assert main(["train", "--name", "run", *data, *sizes, *short, "train.max_steps=3"]) == 0  # resumed
    assert (tmp_path / "runs" / "run" / "model.safetensors").exists()


def test_a_line_that_holds_no_pair_is_named_or_skipped(config: DataConfig, tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"source": "a", "target": "A"}\n{"source": 1\n{}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"corpus\.jsonl:2: no pair: JSONDecodeError.* Correct the line$"):
        load_text(config, "train")
    text = load_text(replace(config, on_bad=OnBad.skip), "train")
    assert text == ParallelText(["a"], ["A"], n_bad=2)


def test_each_file_of_a_format_is_a_corpus_with_a_weight(config: DataConfig, tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text('{"source": "a", "target": "A"}\n', encoding="utf-8")
    two = replace(config, train=["corpus.jsonl", "other.jsonl"])
    check_weights(replace(two, weights=[1.0, 2.0]))
    with pytest.raises(ConfigError, match=r"1 weights, but data\.train names 2 corpora"):
        check_weights(replace(two, weights=[1.0]))
    text = load_text(two, "train")
    assert text is not None
    assert len(text) == 201


def test_pairs_may_span_lines(config: DataConfig, tmp_path: Path) -> None:
    units = "".join(
        f'<tu>\n<tuv lang="de"><seg>{word.upper()}</seg></tuv>\n<tuv lang="en">\n<seg>{word}</seg></tuv></tu>\n'
        for word in ("one", "two")
    )
    (tmp_path / "corpus.tmx").write_text(f"<tmx><body>\n{units}</body></tmx>\n", encoding="utf-8")
    text = load_text(replace(config, train="corpus.tmx", reader="tmx"), "train")
    assert text == ParallelText(["one", "two"], ["ONE", "TWO"])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"reader": "jsnl"}, r"no corpus reader called `jsnl`; did you mean `jsonl`\?"),
        ({"options": {"sourc": "en"}}, r"data\.options\.sourc: unknown key; did you mean `data\.options\.source`\?"),
        (
            {"options": {"source": False}},
            r"data\.options\.source=False: must be text, and is read as a bool\. Write it in",
        ),
        (
            {"options": {"target": 1000.0}},
            r"data\.options\.target=1000\.0: must be text, and is read as a float\. Write",
        ),
        (
            {"reader": None, "options": {"source": "en"}},
            r"data\.options\.source: corpus reader `files` has no such option\. Leave",
        ),
        (
            {"reader": "columns", "options": {"x": 1}},
            r"data\.options\.x: corpus reader `columns` has no such option\. Leave",
        ),
        (
            {"reader": "plain"},
            r"data\.task=translation: data\.reader=plain is for language_model and masked_language_model\. Choose",
        ),
        ({"reader": "builtin"}, r"data\.reader=builtin: data\.builtin is not set"),
        ({"columns": [0, 1]}, r"data\.columns=\[0, 1\]: data\.reader=jsonl has none\. Leave it out"),
        ({"train": []}, r"data\.train=\[\]: names no files"),
        ({"train": None}, r"data\.train: not set\. Name"),
    ],
    ids=str,
)
def test_a_reader_that_does_not_fit_is_a_config_error(config: DataConfig, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        prepare(replace(config, **changes))


def test_a_generated_corpus_takes_no_reader() -> None:
    with pytest.raises(ConfigError, match=r"^data\.reader=jsonl: data=demo_en_fr is built in and reads no files"):
        load_config("prepare", ["data.reader=jsonl"])


def test_options_are_a_mapping() -> None:
    for value in ("en", "[en]", "null"):
        with pytest.raises(ConfigError, match=r"^data\.options(: must be a table of keys|=null: has a value)"):
            load_config("train", [f"data.options={value}"])
    found = load_config("train", ["data.options={source: en}", "data.options.target=de"]).data.options
    assert found == {"source": "en", "target": "de"}


def test_a_format_that_is_named_is_not_detected(config: DataConfig, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\teins\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("two\tzwei\n", encoding="utf-8")
    table = replace(config, train=["a.txt", "b.txt"], reader="columns")
    assert load_text(table, "train") == ParallelText(["one", "two"], ["eins", "zwei"])
    files = replace(table, reader="parallel")
    assert load_text(files, "train") == ParallelText(["one\teins"], ["two\tzwei"])
    text = replace(table, reader="plain", task="language_model", train="a.txt")
    assert load_text(text, "train") == ParallelText(["one\teins"], ["one\teins"])


@pytest.mark.parametrize("change", ["fewer", "more", "other", "in another order"])
def test_a_reader_that_gives_other_pairs_at_another_pass_is_refused(config: DataConfig, change: str) -> None:
    """Counts, held-out sentences and duplicates are those of the first pass, so they would not hold."""
    passes = iter(range(100))

    class Changing(Reader):
        def pairs(self, files: Sequence[Lines]) -> Iterator[Pair]:
            pairs = [(f"{a} {b}", f"{b} {a}") for a in LETTERS for b in LETTERS]
            if (n := next(passes)) == 0 or change == "":
                yield from pairs
                return
            match change:
                case "fewer":
                    yield from pairs[:-1]
                case "more":
                    yield from [*pairs, ("a", "b")]
                case "other":
                    yield from [*pairs[:-1], (f"pass {n}", "b")]
                case _:
                    yield from reversed(pairs)

    READERS.register("changing")(Changing)
    changing = replace(config, reader="changing", options={}, tokenizer=TokenizerConfig(vocab_size=20))
    says = r"corpus\.jsonl: the reader gives other pairs at another pass over the text \(.*test_readers\.py:\d+\)"
    with pytest.raises(DataError, match=says):
        prepare(changing)
    assert not folders(changing)
    passes, change = iter(range(100)), ""
    assert len(prepare(changing).train) > 0
