"""Parallel text in every form that a config may name, and every way in which it can be wrong."""

import gzip
import hashlib
import io
import logging
import os
import re
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.support.each import each
from tests.toy import run as toy_run
from transformer_cli.config.compose import load_config
from transformer_cli.config.data import DataConfig, Download, OnBad
from transformer_cli.config.yaml_files import config_dir, read_yaml
from transformer_cli.data.corpus import ParallelText, input_files, load_text
from transformer_cli.data.readers import READERS
from transformer_cli.data.splits import Splits, hold_out, load_splits
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.evaluation.model_test_sets import named_test_set, own_corpus
from transformer_cli.logs import LOGGER

CORPORA = sorted(path.stem for path in (ROOT / "configs" / "data").glob("*.yaml"))
# Of the user, who has to have them.
OF_ONE_LANGUAGE = ("demo_questions",)  # whose sides are not exchanged
OWN_FILES = ("ewt_pos", "files", "labels", "masked_text", "pairs", "questions", "sick", "sst2", "tags", "text", "trec")


@pytest.fixture
def messages(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """What was logged so far, whether or not a command has set up logging in this process."""
    monkeypatch.setattr(LOGGER, "propagate", False)
    LOGGER.addHandler(caplog.handler)
    with caplog.at_level(logging.INFO, LOGGER.name):
        yield lambda: "\n".join(record.getMessage() for record in caplog.records)
    LOGGER.removeHandler(caplog.handler)


class Folder:
    """A folder of corpus files, and configs that name them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, **files: str | bytes) -> None:
        """Write files; "__" in a name stands for a dot."""
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            (self.path / name.replace("__", ".")).write_bytes(data)

    def write_archive(self, members: dict[str, bytes]) -> None:
        with tarfile.open(self.path / "c.tgz", "w:gz") as tar:
            for name, content in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))

    def config(self, train: Any, **options: Any) -> DataConfig:
        return DataConfig(source_lang="en", target_lang="de", root=str(self.path), train=train, **options)

    def pairs(self, train: Any, **options: Any) -> list[tuple[str, str]]:
        text = load_text(self.config(train, **options), "train")
        assert text is not None
        return list(zip(text.sources, text.targets, strict=True))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


TWO_PAIRS = [("one", "eins"), ("two", "zwei")]


# ---- The forms


@pytest.mark.parametrize(
    "spec", [["a.en", "a.de"], ["a.en.gz", "a.de.gz"], "a", "b.tsv", "b.tsv.gz", ["b.tsv"]], ids=str
)
def test_a_split_may_be_two_files_a_prefix_or_a_table(folder: Folder, spec: Any) -> None:
    folder.write(a__en="one\ntwo\n", a__de=b"eins\nzwei\n", b__tsv="one\teins\ntwo\tzwei\n")
    assert folder.pairs(spec) == TWO_PAIRS


def test_packed_files_are_found_under_their_plain_names(folder: Folder) -> None:
    folder.write(a__en__gz=gzip.compress(b"one\ntwo"), a__de="eins\nzwei")
    assert folder.pairs("a") == folder.pairs(["a.en", "a.de.gz"]) == TWO_PAIRS


def test_files_of_several_pairs_are_joined_in_their_order(folder: Folder) -> None:
    folder.write(a__en="one\n", a__de="eins\n", b__tsv="two\tzwei", c__en="three\n", c__de="drei")
    assert folder.pairs(["a.en", "a.de", "b.tsv", "c.en", "c.de"]) == [*TWO_PAIRS, ("three", "drei")]


def test_without_root_names_start_at_the_working_folder(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write(a__en="one\n", a__de="eins\n")
    monkeypatch.chdir(folder.path)
    text = load_text(DataConfig(source_lang="en", target_lang="de", train=["a.en", "a.de"]), "train")
    assert text == ParallelText(["one"], ["eins"])


def test_a_split_that_is_not_named_is_none_and_training_text_must_be(folder: Folder) -> None:
    assert load_text(folder.config("a"), "dev") is None
    with pytest.raises(ConfigError, match=r"data\.train: not set\. Name two text files"):
        load_text(folder.config(None), "train")


def test_wmt_and_iwslt_markup_gives_its_segments(folder: Folder) -> None:
    english = '<seg id="1"> R&amp;D &lt;here&gt; </seg>\n<seg id="2">two\nlines</seg>\n'
    german = '<seg id="1"> eins </seg>\n<url>http://x</url>\n<SEG id="2">zwei</SEG>\n'
    folder.write(
        test__en__sgm=f'<doc docid="1">\n<p>\n{english}</doc>', test__de__xml=f'<?xml version="1.0"?>\n{german}'
    )
    assert folder.pairs(["test.en.sgm", "test.de.xml"]) == [("R&D <here>", "eins"), ("two lines", "zwei")]


def test_markup_without_segments_is_an_error(folder: Folder) -> None:
    folder.write(test__sgm="<html>\n", a__de="eins\n")
    with pytest.raises(DataError, match=r"test\.sgm: has no <seg> elements"):
        folder.pairs(["test.sgm", "a.de"])


def test_iwslt_training_text_is_what_is_not_markup(folder: Folder) -> None:
    for lang, lines in (("en", ["one", "two"]), ("de", ["eins", "zwei"])):
        body = f"<url>http://x</url>\n<title>T</title>\n {lines[0]} \n<reviewer></reviewer>\n{lines[1]}\n"
        (folder.path / f"train.tags.en-de.{lang}").write_text(body, encoding="utf-8")
    assert folder.pairs("train.tags.en-de") == TWO_PAIRS


def test_members_of_archives_are_read_in_place(folder: Folder) -> None:
    folder.write_archive({"d/a.de": b"eins\nzwei\n", "d/a.en.gz": gzip.compress(b"one\ntwo\n")})
    assert folder.pairs(["c.tgz::d/a.en.gz", "c.tgz::d/a.de"]) == TWO_PAIRS
    with pytest.raises(DataError, match=r"c\.tgz: has no member 'd/b\.de'\. Name another, such as 'd/a\.de'"):
        folder.pairs(["c.tgz::d/a.en.gz", "c.tgz::d/b.de"])
    with pytest.raises(ConfigError, match=r"a\.en::b: only members of \.tar"):
        folder.pairs(["a.en::b", "a.de"])


def test_in_a_local_folder_members_of_archives_may_lie_unpacked(folder: Folder) -> None:
    folder.write(newstest2013__en="one\n", newstest2013__de__gz=gzip.compress(b"eins\n"))
    assert folder.pairs(["dev.tgz::dev/newstest2013.en", "dev.tgz::dev/newstest2013.de"]) == [("one", "eins")]


def test_a_corpus_to_download_is_looked_for_among_its_downloads(tmp_path: Path) -> None:
    config = DataConfig(
        name="toy",
        source_lang="en",
        target_lang="de",
        cache=str(tmp_path),
        downloads=[Download(url="http://host/a.en.gz")],
        train=["a.en.gz", "a.de.gz"],
    )
    with pytest.raises(DataError, match=r"toy/downloads/a\.en\.gz: not downloaded\. Run `tfm prepare data=toy`"):
        load_text(config, "train")


def test_the_builtin_corpus_needs_no_files() -> None:
    config = load_config("prepare", ["data=demo_en_fr"]).data
    train, dev, test = (load_text(config, split) for split in ("train", "dev", "test"))
    assert train is not None
    assert dev is not None
    assert test is not None
    assert len(train) > len(dev) > 100
    assert not set(train.sources) & set(test.sources)
    assert input_files(config, "train") == []


def test_C2_an_address_and_a_device_are_no_files_to_train_on() -> None:
    for name in ("https://example.org/a.tsv", "http://example.org/a"):
        with pytest.raises(ConfigError, match=re.escape(f"{name}: is an address, and files are read. Download it")):
            load_text(DataConfig(source_lang="en", target_lang="de", train=name), "train")
    with pytest.raises(DataError, match=rf"data\.train={os.devnull}: is not a regular file"):
        load_text(DataConfig(source_lang="en", target_lang="de", train=os.devnull), "train")


@each("typed", ["missing", "a.de", "*.en", ""])
def test_C2_a_name_that_leads_to_no_file_is_shown_as_it_was_typed(typed: str) -> None:
    config = DataConfig(source_lang="en", target_lang="de", train=typed)
    with pytest.raises(
        DataError, match=re.escape(f"data.train={typed}: no such file, and no {typed}.en either. Name two")
    ):
        load_text(config, "train")


def test_the_files_of_a_split_are_named_once_each(folder: Folder) -> None:
    folder.write(a__en="one\n", a__de="eins\n")
    config = folder.config(["a.en", "a.de", "a.en", "a.de"])
    assert input_files(config, "train") == [folder.path / "a.en", folder.path / "a.de"]
    assert input_files(config, "test") == []


# ---- Which side is which


def test_a_corpus_of_known_languages_follows_the_direction_that_is_asked_for(folder: Folder) -> None:
    folder.write_archive({"d/a.en": b"one\ntwo\n", "d/a.de": b"eins\nzwei\n"})
    folder.write(b__en__sgm="<seg>one</seg>\n<seg>two</seg>", b__de__sgm="<seg>eins</seg>\n<seg>zwei</seg>")
    folder.write(a__en="one\ntwo\n", a__de="eins\nzwei\n", t__tsv="one\teins\ntwo\tzwei\n", t__txt="1\teins\tone\n")
    german_first = {"languages": ["en", "de"], "source_lang": "de", "target_lang": "en"}
    for spec in ("a", ["a.en", "a.de"], "t.tsv", ["c.tgz::d/a.en", "c.tgz::d/a.de"], ["b.en.sgm", "b.de.sgm"]):
        assert folder.pairs(spec, languages=["en", "de"]) == TWO_PAIRS
        for split in ("train", "dev", "test"):
            config = replace(folder.config("a"), **{split: spec}, **german_first)
            text = load_text(config, split)
            assert text == ParallelText(["eins", "zwei"], ["one", "two"])
    columns = replace(folder.config("t.txt", columns=[2, 1]), **german_first)
    assert load_text(columns, "train") == ParallelText(["eins"], ["one"])


def test_the_builtin_corpus_swaps_its_sides() -> None:
    plain = load_config("prepare").data
    swapped = load_config("prepare", ["data.source_lang=fr", "data.target_lang=en"]).data
    for split in ("train", "dev", "test"):
        there, back = load_text(plain, split), load_text(swapped, split)
        assert there is not None
        assert back == ParallelText(there.targets, there.sources)


def test_a_pair_of_languages_that_a_corpus_does_not_have_is_refused_with_its_own() -> None:
    for wrong in (["data.target_lang=de"], ["data.source_lang=fr"]):
        with pytest.raises(ConfigError, match=r"data=multi30k_en_fr has en and fr\. Set data\."):
            load_config("prepare", ["data=multi30k_en_fr", *wrong])


def test_a_model_of_the_other_direction_is_scored_in_its_own_language(tmp_path: Path) -> None:
    model = replace(toy_run.model_file(), source_lang="fr", target_lang="en", data={"name": "demo_en_fr"})
    usual = load_config("evaluate", ["data=demo_en_fr"]).data
    there = load_text(usual, "test")
    assert there is not None
    for corpus in (usual, own_corpus(model, tmp_path / "model.safetensors")):
        test = named_test_set(corpus, [model])
        assert test.name == "demo_en_fr.fr-en.test"
        assert (test.sources, test.references) == (there.targets, [there.sources])


@pytest.mark.parametrize(
    "files",
    [
        ["x.de", "x.en"],
        ["x.de.gz", "x.en.txt"],
        ["x.DE", "x.other"],
        ["other", "x.en.sgm"],
        ["a.en", "a.de", "x.de", "x.en"],
    ],
    ids=str,
)
def test_files_that_are_named_as_the_other_side_are_refused(folder: Folder, files: list[str]) -> None:
    for name in files:
        (folder.path / name).write_bytes(b"<seg>x</seg>\n")
    with pytest.raises(ConfigError, match=r"^data\.train: .* named as the other sides of data\.source_lang=en"):
        folder.pairs(files)


@pytest.mark.parametrize(
    ("files", "languages"),
    [
        (["src.txt", "tgt.txt"], ("en", "de")),
        (["a.de", "b.de"], ("en", "de")),
        (["train.tgt", "train.src"], ("en", "de")),
        (["corpus.de", "corpus.en"], ("x", "y")),
        (["corpus.de", "corpus.en"], ("en", "en")),
    ],
    ids=str,
)
def test_other_names_say_nothing_of_the_direction(folder: Folder, files: list[str], languages: tuple[str, str]) -> None:
    for name in files:
        (folder.path / name).write_bytes(name.encode())
    source_lang, target_lang = languages
    text = load_text(replace(folder.config(files), source_lang=source_lang, target_lang=target_lang), "train")
    assert text == ParallelText([files[0]], [files[1]])


# ---- Tables


TATOEBA = (
    "Go.\tVa !\tCC-BY 2.0 (France) Attribution: tatoeba.org #2877272 (CM) & #1158250 (Wittydev)\n"
    "Hi.\tSalut !\tCC-BY 2.0 (France) Attribution: tatoeba.org #538123 (CM) & #509819 (Aiji)\n"
)


@pytest.mark.parametrize("name", ["fra.txt", "fra.txt.gz", "corpus", "my pairs.csv", "x.tsv"])
def test_a_file_that_is_named_alone_is_a_table_by_its_tabs(folder: Folder, name: str) -> None:
    content = b"one\teins\ntwo\tzwei\n"
    (folder.path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert folder.pairs(name) == folder.pairs([name]) == TWO_PAIRS
    assert len(input_files(folder.config(name), "train")) == 1


def test_a_member_of_an_archive_is_a_table_by_its_tabs(folder: Folder) -> None:
    with zipfile.ZipFile(folder.path / "fra-eng.zip", "w") as archive:
        archive.writestr("fra.txt", "one\teins\ntwo\tzwei\n")
        archive.writestr("a.en", "one\ntwo\n")
        archive.writestr("a.de", "eins\nzwei\n")
    assert folder.pairs("fra-eng.zip::fra.txt") == folder.pairs("fra-eng.zip::a") == TWO_PAIRS


def test_a_stray_tab_in_a_file_of_one_side_makes_no_table(folder: Folder) -> None:
    folder.write(a__en="one\ntw\to\nthree\n", a__de="eins\nzwei\ndrei\n")
    assert folder.pairs(["a.en", "a.de"])[1] == ("tw\to", "zwei")
    with pytest.raises(ConfigError, match=r"data\.train=a\.en: one file, without tabs in its first lines\. Name two"):
        folder.pairs("a.en")


@pytest.mark.parametrize("on_bad", OnBad)
def test_a_table_of_three_columns_names_the_columns_key(folder: Folder, on_bad: OnBad) -> None:
    folder.write(fra__txt=TATOEBA * 1000)
    with pytest.raises(DataError) as caught:
        folder.pairs("fra.txt", on_bad=on_bad)
    assert str(caught.value).startswith(f"{folder.path}/fra.txt: has 3 columns ('Go.' | 'Va !' | 'CC-BY 2.0 (France) ")
    assert "data.columns=[0,1]" in str(caught.value)
    assert len(str(caught.value)) < 300
    assert folder.pairs("fra.txt", columns=[0, 1])[:2] == [("Go.", "Va !"), ("Hi.", "Salut !")]
    assert folder.pairs("fra.txt", columns=[1, 0])[0] == ("Va !", "Go.")


def test_columns_are_those_of_every_split(folder: Folder) -> None:
    folder.write(a__tsv="id\tone\teins\n", b__en="two\n", b__de="zwei\n")
    config = folder.config(["b.en", "b.de", "a.tsv"], dev="a.tsv", test="a.tsv", columns=[2, 1])
    train, *held = (load_text(config, split) for split in ("train", "dev", "test"))
    assert train == ParallelText(["two", "eins"], ["zwei", "one"])
    assert held == [ParallelText(["eins"], ["one"])] * 2


def test_rows_of_too_few_columns_are_named_or_skipped(folder: Folder, messages: Callable[[], str]) -> None:
    folder.write(a__tsv=f"{TATOEBA}only one\n\n{TATOEBA}two\tdeux\n")
    with pytest.raises(DataError, match=r"a\.tsv:3: too few columns for data\.columns=\[0, 2\], .*: 'only one'\. Corr"):
        folder.pairs("a.tsv", columns=[0, 2])
    text = load_text(folder.config("a.tsv", columns=[0, 2], on_bad=OnBad.skip), "train")
    assert text is not None
    assert (len(text), text.n_bad) == (5, 2)
    assert "2 pairs dropped" in messages()
    assert "a.tsv:3: too few columns" in messages()


@each("bad", [b"no tab\nthree\ttabs\there\n", b"\xff\nthree\tdr\xfc\n"])
def test_C5_rows_of_other_columns_or_bytes_are_skipped_where_most_have_two(folder: Folder, bad: bytes) -> None:
    folder.write(a__tsv=b"one\teins\n" + bad + b"two\tzwei\n")
    assert folder.pairs("a.tsv", on_bad=OnBad.skip) == TWO_PAIRS


def test_columns_that_a_table_does_not_have_are_refused(folder: Folder) -> None:
    folder.write(a__tsv="one\teins\n" * 5)
    with pytest.raises(DataError, match=r"has 2 columns \('one' \| 'eins'\), and data\.columns=\[0, 2\] counts from 0"):
        folder.pairs("a.tsv", columns=[0, 2], on_bad=OnBad.skip)


@each("columns", [[0], [1, 1], [0, 1, 2], [-1, 0], [0, 1000]])
def test_columns_are_two_different_ones(columns: list[int]) -> None:
    with pytest.raises(ConfigError, match=r"^data\.columns="):
        DataConfig(source_lang="en", target_lang="de", columns=columns)


def test_columns_are_refused_where_there_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^data\.columns=\[0, 1\]: data=demo_en_fr is built in, not a table\."):
        load_config("prepare", ["data=demo_en_fr", "data.columns=[0,1]"])
    (tmp_path / "a.txt").write_text("one\n")
    data = load_config("prepare", ["data=text", f"data.train={tmp_path / 'a.txt'}", "data.columns=[0]"]).data
    with pytest.raises(ConfigError, match=r"^data\.columns=\[0\]: no table is named, but other files\. Leave it out"):
        READERS["files"](data).check()


@pytest.mark.parametrize("columns", [[], [1, 0]])
def test_labels_may_be_in_any_column(folder: Folder, columns: list[int]) -> None:
    folder.write(a__tsv="good\tbest\n" if columns else "best\tgood\n")
    config = replace(folder.config("a.tsv", columns=columns), task="classification")
    assert load_text(config, "train") == ParallelText(["good"], ["best"])


# ---- What can be wrong


NO_FILES = r"^data\.train=.*: names no files\. Name two"
ODD = r"data\.train: b\.en has no file of translations after it"


@each("spec, message", [*((spec, NO_FILES) for spec in ([], [1, 2], 5, {"en": "a"}, [""])), (["a", "a", "b.en"], ODD)])
def test_a_split_that_names_no_files_or_an_odd_one_is_a_config_error(folder: Folder, spec: Any, message: str) -> None:
    folder.write(a="one\n", b__en="two\n")
    with pytest.raises(ConfigError, match=message):
        folder.pairs(spec)


def test_C2_a_file_that_is_missing_is_named_with_its_folder(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write(a__en="one\n")
    with pytest.raises(DataError, match=rf"data\.root={folder.path}: holds no a\.de, packed or not"):
        folder.pairs("a")
    monkeypatch.chdir(folder.path)
    with pytest.raises(DataError, match=r"^b\.de: no such file\. Correct data\.train"):
        load_text(DataConfig(source_lang="en", target_lang="de", train=["a.en", "b.de"]), "train")


@pytest.mark.parametrize("line", ["no tab", "two\ttabs\there"])
def test_a_table_line_without_exactly_one_tab_is_named(folder: Folder, line: str) -> None:
    folder.write(a__tsv=f"one\teins\n{line}\n")
    with pytest.raises(DataError, match=r"a\.tsv:2: (0|2) tabs, must be one, between source and target"):
        folder.pairs("a.tsv")


def test_F11_lines_shown_in_errors_are_escaped_and_cut(folder: Folder) -> None:
    folder.write(a__tsv="\x1b[2J" + "x" * 500 + "\n")
    with pytest.raises(DataError) as caught:
        folder.pairs("a.tsv")
    assert "\\x1b[2J" in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert "x" * 100 not in str(caught.value)


def test_C3_crlf_gives_the_same_pairs_as_lf_and_is_reported(folder: Folder, messages: Callable[[], str]) -> None:
    folder.write(a__en="one\r\ntwo\r\n", a__de="eins\nzwei\n")
    assert folder.pairs("a") == TWO_PAIRS
    assert r"a.en: 2 lines end in \r\n" in messages()


def test_C10_an_empty_line_of_a_tab_separated_file_is_an_empty_pair(folder: Folder) -> None:
    folder.write(a__tsv="one\teins\n\ntwo\tzwei\n")
    assert folder.pairs("a.tsv") == [TWO_PAIRS[0], ("", ""), TWO_PAIRS[1]]


def test_C4_byte_order_marks_are_removed_on_both_sides(folder: Folder) -> None:
    folder.write(a__en="\ufeffone\ntwo\n", a__de="\ufeffeins\nzwei\n")
    assert folder.pairs("a") == TWO_PAIRS


def test_C5_a_bad_line_drops_its_pair_and_the_first_ten_are_listed(folder: Folder, messages: Callable[[], str]) -> None:
    folder.write(a__en=b"one\n\xff\ntwo\n" + b"x\n" * 12, a__de=b"eins\nx\nzwei\n" + b"\xe4\n" * 12)
    with pytest.raises(DataError, match=r"a\.en:2: byte 0xff at column 1"):
        folder.pairs("a")
    text = load_text(folder.config("a", on_bad=OnBad.skip), "train")
    assert text == ParallelText(["one", "two"], ["eins", "zwei"], n_bad=13)
    assert "13 pairs dropped, their lines cannot be read" in messages()
    assert messages().count("byte 0x") == 10
    assert "a.en:2: byte 0xff" in messages()


@pytest.mark.parametrize("name", ["test.sgm", "train.tags.en"])
def test_C5_bad_lines_of_markup_cannot_be_skipped(folder: Folder, name: str) -> None:
    folder.write(a__de="eins\n")
    (folder.path / name).write_bytes(b'<seg id="1">\xff</seg>\n')
    with pytest.raises(DataError, match=rf"{name}:1: byte 0xff .* cannot be skipped"):
        folder.pairs([name, "a.de"], on_bad=OnBad.skip)


def test_C10_blank_lines_stay_aligned_in_dev_and_test(folder: Folder) -> None:
    folder.write(a__en="one\n\n \ntwo\n", a__de="eins\n\nx\n\n")
    text = load_text(folder.config("a", test="a"), "test")
    assert text == ParallelText(["one", "", " ", "two"], ["eins", "", "x", ""])


def test_C17_one_file_named_twice_is_warned_of(folder: Folder, messages: Callable[[], str]) -> None:
    folder.write(a__en="one\ntwo\n")
    load_text(folder.config("a", test=["a.en", "a.en"]), "test")
    assert "a.en: is both source and target" in messages()
    assert "data.test: source and target are equal in 100% of the pairs" in messages()


def test_C17_a_few_copied_lines_are_normal(folder: Folder, messages: Callable[[], str]) -> None:
    folder.write(a__en="OK\none\ntwo\nthree\n", a__de="OK\neins\nzwei\ndrei\n")
    folder.pairs("a")
    assert messages() == ""


def test_C5_skipping_is_offered_where_lines_can_be_skipped(folder: Folder) -> None:
    folder.write(a__en=b"\xff\n", a__de="eins\n", b__en__sgm=b'<seg id="1">\xff</seg>\n', b__de__sgm="<seg>eins</seg>")
    with pytest.raises(DataError, match=r"UTF-8`, or drop such pairs with data\.on_bad=skip$"):
        folder.pairs("a")
    with pytest.raises(DataError, match=r"-t UTF-8`$"):
        folder.pairs(["b.en.sgm", "b.de.sgm"])


# ---- Held-out text


def parted(text: ParallelText, n: int, seed: int, **options: Any) -> tuple[ParallelText, ParallelText]:
    """Training and held-out pairs."""
    held = hold_out(text, n, seed, **options)
    assert held.n_before == len(text)
    return text.pick(i for i, source in enumerate(text.sources) if source.strip() not in held.sources), held.text


def splits_of(config: DataConfig, folder: Folder) -> Splits:
    spool = folder.path / "spool"
    spool.mkdir()
    try:
        splits = load_splits(config, spool)
        pairs = [(source, target) for source, target in splits.train.each() if source.strip() not in splits.held_out]
        splits.train = ParallelText([source for source, _ in pairs], [target for _, target in pairs])
    finally:
        shutil.rmtree(spool)
    return splits


def numbered(n: int) -> ParallelText:
    return ParallelText([f"source {i}" for i in range(n)], [f"target {i}" for i in range(n)])


def test_held_out_pairs_are_at_most_the_asked_number_and_five_percent() -> None:
    for n, asked, expected in ((4, 1000, 1), (40, 1000, 2), (1000, 1000, 50), (1000, 7, 7)):
        train, held = parted(numbered(n), asked, 1)
        assert (len(train), len(held)) == (n - expected, expected)
        assert sorted(train.sources + held.sources) == sorted(numbered(n).sources)


def test_holding_out_is_a_function_of_seed_and_split() -> None:
    assert parted(numbered(500), 20, 1) == parted(numbered(500), 20, 1)
    assert parted(numbered(500), 20, 1) != parted(numbered(500), 20, 2)
    assert parted(numbered(500), 20, 1, split="dev") != parted(numbered(500), 20, 1, split="test")
    assert parted(numbered(500), 20, 1, split="dev") == parted(numbered(500), 20, 1)


def test_what_is_held_out_hardly_changes_with_the_corpus() -> None:
    def held(text: ParallelText, n: int) -> set[str]:
        return set(parted(text, n, 1)[1].sources)

    text, backwards = numbered(1000), range(999, -1, -1)
    assert held(text.pick(backwards), 20) == held(text, 20)
    assert held(text, 10) < held(text, 20)
    first_half = set(text.sources[:500])
    assert held(text, 20) & first_half == held(text, 20) & held(text.pick(range(500)), 20)


def test_no_held_out_source_sentence_stays_in_training() -> None:
    many = ParallelText([f"source {i % 20}{' ' * (i % 2)}" for i in range(200)], [f"target {i}" for i in range(200)])
    train, held = parted(many, 5, 1)
    assert len(held) == 5
    assert not {source.strip() for source in held.sources} & {source.strip() for source in train.sources}
    assert len(train) == 200 - 5 * 10


def test_what_was_held_out_is_counted(folder: Folder) -> None:
    folder.write(a__en="".join(f"source {i % 20}\n" for i in range(200)), a__de="x\n" * 200)
    splits = splits_of(folder.config("a", test="a", holdout=5), folder)
    assert list(splits.notes(len(splits.train))) == [
        "5 pairs held out of the training text as dev; 45 others of the same source sentences left out"
    ]
    splits = splits_of(folder.config("a", test="a", holdout=50), folder)
    assert list(splits.notes(len(splits.train))) == [
        "10 pairs held out of the training text as dev (at most 5 % of them are, and data.holdout=50 is more); 90"
        " others of the same source sentences left out"
    ]


def test_blank_pairs_are_never_held_out() -> None:
    text = ParallelText(["", "a", "b", "c", "d", " "] * 10, ["x", "", "y", "z", "v", "w"] * 10)
    _, held = parted(text, 1000, 1)
    assert all(source.strip() and target.strip() for source, target in zip(held.sources, held.targets, strict=True))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_C21_a_tiny_corpus_is_its_own_dev_text(folder: Folder, n: int) -> None:
    folder.write(a__en="".join(f"source {i}\n" for i in range(n)), a__de="".join(f"target {i}\n" for i in range(n)))
    splits = splits_of(folder.config("a"), folder)
    assert splits.dev == splits.train
    assert splits.train == numbered(n)
    assert splits.test is None


def test_only_splits_that_are_not_named_are_held_out(folder: Folder) -> None:
    folder.write(a__en="".join(f"source {i}\n" for i in range(100)), a__de="".join(f"target {i}\n" for i in range(100)))
    folder.write(b__en="dev\n", b__de="Dev\n")
    splits = splits_of(folder.config("a", dev="b", test="b"), folder)
    assert splits.train == numbered(100)
    assert splits.dev == splits.test == ParallelText(["dev"], ["Dev"])
    splits = splits_of(folder.config("a"), folder)
    assert splits.test is not None
    assert [len(part) for part in (splits.train, splits.dev, splits.test)] == [91, 5, 4]


# ---- The corpora that come with the project


@each("name", [name for name in CORPORA if name not in (*OWN_FILES, *OF_ONE_LANGUAGE)])
def test_every_corpus_that_comes_along_names_its_languages_and_files_that_its_downloads_have(name: str) -> None:
    corpus = read_yaml(config_dir() / "data" / f"{name}.yaml")
    assert corpus["name"] == name
    assert corpus["languages"] == [corpus["source_lang"], corpus["target_lang"]]
    if "builtin" not in corpus:
        names = {download["url"].rsplit("/", 1)[-1] for download in corpus["downloads"]}
        specs = [corpus[split] for split in ("train", "dev", "test") if split in corpus]
        files = [[spec] if isinstance(spec, str) else spec for spec in specs]
        assert {item.partition("::")[0] for spec in files for item in spec} == names
        assert all(len(spec) % 2 == 0 for spec in specs if not isinstance(spec, str))


@pytest.mark.parametrize("target", ["de", "fr"])
def test_multi30k_is_read_from_a_local_folder_and_has_its_published_hashes(shared_data: Path, target: str) -> None:
    config = load_config("prepare", [f"data=multi30k_en_{target}", f"data.root={shared_data / 'multi30k'}"]).data
    texts = [load_text(config, split) for split in ("train", "dev", "test")]
    assert [len(text) for text in texts if text is not None] == [29000, 1014, 1000]
    for download in config.downloads:
        packed = shared_data / "multi30k" / download.url.rsplit("/", 1)[-1]
        content = gzip.decompress(packed.read_bytes()) if packed.exists() else packed.with_suffix("").read_bytes()
        assert hashlib.sha256(content).hexdigest() == download.text_sha256


def test_newstest2013_is_the_dev_text_of_wmt14(shared_data: Path) -> None:
    config = load_config("prepare", ["data=wmt14_en_fr", f"data.root={shared_data / 'wmt14_en_de'}"]).data
    dev = load_text(config, "dev")
    assert dev is not None
    assert len(dev) == 3000
