"""Preparation: the same text gives the same files, once; what is in the cache is whole, or built again."""

import errno
import fcntl
import gzip
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.each import each
from tests.toy.run import append
from transformer_cli.config.compose import load_config
from transformer_cli.config.data import DataConfig, TokenizerConfig
from transformer_cli.data import cache, hashes
from transformer_cli.data import prepare as preparation
from transformer_cli.data.cache_key import cache_key, input_hashes
from transformer_cli.data.prepare import Prepared, prepare
from transformer_cli.data.readers.builtin import read_builtin
from transformer_cli.data.sentences import share_of_several
from transformer_cli.errors import ConfigError, EnvironmentFault
from transformer_cli.files import locked, writing_whole

SOURCES = [
    f"the {noun} {verb} the {thing} ."
    for noun in ("cat", "dog", "bird", "king")
    for verb in ("saw", "hid")
    for thing in ("milk", "chair", "lamp", "red book", "old red book")
]
TARGETS = [line.replace("the", "le").replace("saw", "a vu").replace("red book", "livre rouge") for line in SOURCES]
FILES = [
    *("dev.json", "manifest.json", "report.json", "source.ids", "source.model", "source.offsets", "target.ids"),
    *("target.model", "target.offsets", "test.json", "warnings.json"),
]


def write(folder: Path, name: str, lines: list[str]) -> str:
    (folder / name).write_bytes("".join(f"{line}\n" for line in lines).encode())
    return name


@pytest.fixture
def config(tmp_path: Path) -> DataConfig:
    """40 pairs to train on, 3 in dev and 2 in test."""
    for split, lines in {"train": slice(None), "dev": slice(0, 3), "test": slice(3, 5)}.items():
        write(tmp_path, f"{split}.en", SOURCES[lines])
        write(tmp_path, f"{split}.fr", TARGETS[lines])
    return DataConfig(
        source_lang="en",
        target_lang="fr",
        root=str(tmp_path),
        train="train",
        dev="dev",
        test="test",
        cache=str(tmp_path / "cache"),
        tokenizer=TokenizerConfig(vocab_size=60),
    )


def test_a_corpus_is_prepared_again_only_when_its_format_changes() -> None:
    config = load_config("train", ["data=demo_en_fr"]).data
    assert cache_key(config, input_hashes(config, hashes.Hashes(Path())))[:12] == "bb1e0e7d8060"


def prepared_folders(config: DataConfig) -> list[Path]:
    return sorted((Path(config.cache) / config.name).glob("prepared-*"))


def test_sentences_that_are_picked_can_be_picked_from_again() -> None:
    corpus = cache.EncodedCorpus.of([[5, 6, 2], [7, 2], [2], [8, 9, 10, 2]], [[1, 2], [2], [3, 4, 2], [5, 2]])
    picked = corpus.pick(np.array([3, 0, 2]))
    assert ids_of(picked) == ([[8, 9, 10, 2], [5, 6, 2], [2]], [[5, 2], [1, 2], [3, 4, 2]])
    assert picked.source_offsets.tolist() == [0, 4, 7, 8]
    assert picked.target_lengths.tolist() == [2, 2, 3]
    again = picked.pick(np.array([1, 1, 0]))
    assert ids_of(again) == ([[5, 6, 2], [5, 6, 2], [8, 9, 10, 2]], [[1, 2], [1, 2], [5, 2]])
    assert (len(picked), len(again)) == (3, 3)


def files(config: DataConfig) -> dict[str, bytes]:
    (folder,) = prepared_folders(config)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def texts(prepared: Prepared) -> list[tuple[str, str]]:
    """The training pairs as text again."""
    source, target = prepared.tokenizers.source, prepared.tokenizers.target
    sources, targets = ids_of(prepared.train)
    return [(source.decode(a), target.decode(b)) for a, b in zip(sources, targets, strict=True)]


def ids_of(corpus: cache.EncodedCorpus) -> tuple[list[list[int]], list[list[int]]]:
    """The sentences of the two sides."""

    def cut(ids: cache.Array, offsets: cache.Array) -> list[list[int]]:
        return [part.tolist() for part in np.split(ids, offsets[1:-1])]

    return cut(corpus.source_ids, corpus.source_offsets), cut(corpus.target_ids, corpus.target_offsets)


# ---- What comes out


def test_every_training_pair_is_there_in_order_and_ends_with_eos(config: DataConfig) -> None:
    prepared = prepare(config)
    assert texts(prepared) == list(zip(SOURCES, TARGETS, strict=True))
    corpus, tokenizers = prepared.train, prepared.tokenizers
    sources, targets = ids_of(corpus)
    assert {ids[-1] for ids in sources} == {tokenizers.source.eos_id}
    assert {ids[-1] for ids in targets} == {tokenizers.target.eos_id}
    assert corpus.source_lengths.tolist() == [len(ids) for ids in sources]
    assert corpus.target_lengths.tolist() == [len(ids) for ids in targets]
    assert corpus.source_ids.nbytes == 2 * corpus.source_lengths.sum()
    assert prepared.report.n_read == prepared.report.n_kept == 40
    assert (prepared.dev.sources, prepared.dev.targets) == (SOURCES[:3], TARGETS[:3])
    assert prepared.test is not None
    assert (prepared.test.sources, prepared.test.targets) == (SOURCES[3:5], TARGETS[3:5])


def test_the_highest_id_of_a_vocabulary_is_kept_and_in_as_few_bytes_as_hold_it(tmp_path: Path) -> None:
    ids, sizes = [[0, 65_535, 65_536, 3], [65_536, 3]], {"source_vocab_size": 65_536, "target_vocab_size": 65_537}
    with cache.CorpusWriter(tmp_path, **sizes) as writer:
        append(writer, [[65_535, 3]] * 2, ids)
        nothing = np.empty(0, np.int64)
        writer.write((nothing, nothing), (nothing, nothing))
        append(writer, [[7]], [[8]])
    corpus = cache.EncodedCorpus.open(tmp_path, **sizes)
    assert ids_of(corpus) == ([[65_535, 3], [65_535, 3], [7]], [*ids, [8]])
    assert [(tmp_path / f"{side}.ids").stat().st_size for side in ("source", "target")] == [5 * 2, 7 * 4]


def test_an_unknown_builtin_corpus_is_corrected_before_any_work(config: DataConfig) -> None:
    with pytest.raises(ConfigError, match="no built-in corpus called `demo_en_rf`; did you mean `demo_en_fr`"):
        prepare(replace(config, builtin="demo_en_rf", train=None, dev=None, test=None, root=None))
    assert not Path(config.cache).exists()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_drawn_on_a_terminal_only(
    config: DataConfig, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    prepare(config, progress=True)
    assert ("encoding: 100%" in screen.getvalue()) == is_terminal


@pytest.mark.parametrize("joint", [True, False])
def test_vocabularies_are_joint_or_one_for_each_language(config: DataConfig, joint: bool) -> None:
    prepared = prepare(replace(config, tokenizer=TokenizerConfig(vocab_size=45, joint=joint)))
    assert prepared.tokenizers.joint == joint
    assert texts(prepared) == list(zip(SOURCES, TARGETS, strict=True))


def test_without_dev_and_test_pairs_are_held_out(config: DataConfig) -> None:
    prepared = prepare(replace(config, dev=None, test=None))
    assert prepared.test is not None
    held = list(zip(prepared.dev.sources, prepared.dev.targets, strict=True))
    held += zip(prepared.test.sources, prepared.test.targets, strict=True)
    assert sorted(texts(prepared) + held) == sorted(zip(SOURCES, TARGETS, strict=True))
    assert len(held) >= 2


def test_C10_blank_lines_are_dropped_in_train_and_kept_in_dev(config: DataConfig, tmp_path: Path) -> None:
    blank_source, blank_target = ["", "\u00a0\t", "a", "b"], ["c", "d", "", "\u3000"]
    for split in ("train", "dev"):
        write(tmp_path, f"{split}.en", [*blank_source, *SOURCES])
        write(tmp_path, f"{split}.fr", [*blank_target, *TARGETS])
    prepared = prepare(config)
    assert texts(prepared) == list(zip(SOURCES, TARGETS, strict=True))
    assert prepared.report.n_blank == 4
    assert prepared.dev.sources == [*blank_source, *SOURCES]
    assert prepared.dev.targets == [*blank_target, *TARGETS]


def test_C11_a_line_of_a_million_characters_is_left_out_and_counted(config: DataConfig, tmp_path: Path) -> None:
    write(tmp_path, "train.en", ["cat " * 250_000, *SOURCES, "x" * 1_000_000])
    write(tmp_path, "train.fr", ["chat", *TARGETS, "y"])
    prepared = prepare(config)
    assert texts(prepared) == list(zip(SOURCES, TARGETS, strict=True))
    assert prepared.report.n_long == 2


def test_the_end_of_sentence_is_one_of_the_max_length_tokens(config: DataConfig) -> None:
    lengths = prepare(config).train.source_lengths
    for longest in (lengths.max(), lengths.max() - 1):
        prepared = prepare(replace(config, max_length=int(longest)))
        assert prepared.train.source_lengths.max() <= longest
        assert prepared.report.n_long == 40 - len(prepared.train)
    assert prepared.report.n_long > 0


@pytest.mark.parametrize("n_several", [0, 10, 40])
def test_the_share_of_lines_with_several_sentences_is_measured_on_the_training_text(
    config: DataConfig, tmp_path: Path, n_several: int
) -> None:
    sources = [f"A man ate {n} eggs.{' He is Dr. No.' * (n <= n_several)}" for n in range(1, 41)]
    write(tmp_path, "train.en", sources)
    write(tmp_path, "train.fr", sources)
    prepared = prepare(config)
    assert share_of_several(prepared.train, prepared.tokenizers.source, "en") == n_several / 40


def test_C21_one_pair_is_enough(config: DataConfig, tmp_path: Path) -> None:
    write(tmp_path, "train.en", SOURCES[:1])
    write(tmp_path, "train.fr", TARGETS[:1])
    config = replace(config, dev=None, test=None, tokenizer=TokenizerConfig(vocab_size=20))
    prepared = prepare(config)
    assert texts(prepared) == [(SOURCES[0], TARGETS[0])]
    assert prepared.dev.sources == SOURCES[:1]
    assert prepared.test is None


def test_corpora_are_mixed_by_weight_and_share_what_is_prepared(config: DataConfig, tmp_path: Path) -> None:
    write(tmp_path, "more.en", ["", *SOURCES[:2], *(f"one {line}" for line in SOURCES[:10]), "cat " * 300])
    write(tmp_path, "more.fr", ["x", *TARGETS[:2], *(f"un {line}" for line in TARGETS[:10]), "chat " * 300])
    config = replace(config, train=["train.en", "train.fr", "more.en", "more.fr"])
    assert prepare(config).parts == []
    plain = files(config)
    mixed = replace(config, name="mixed", weights=[1.0, 3.0])
    assert prepare(mixed).parts == [(40, 1.0), (10, 3.0)]
    assert {name for name, content in files(mixed).items() if plain.get(name) != content} == {
        "parts.json",
        "manifest.json",
    }
    again = prepare(replace(mixed, weights=[], temperature=5.0))
    assert len(prepared_folders(mixed)) == 1
    assert [part.n_pairs for part in again.parts] == [40, 10]
    assert again.parts[0].times < 1 < again.parts[1].times


def test_weights_that_leave_an_epoch_without_pairs_are_refused(
    config: DataConfig, caplog: pytest.LogCaptureFixture
) -> None:
    twice = replace(config, train=["train.en", "train.fr", "train.en", "train.fr"], drop_duplicates=False)
    with pytest.raises(ConfigError, match=r"^data\.weights=\[0\.001, 0\.001\]: leave an epoch without a pair\. Raise"):
        prepare(replace(twice, weights=[0.001, 0.001]))
    prepare(replace(twice, weights=[1.0, 0.001]))
    assert "data.weights: an epoch has none of the 40 pairs of corpus 2" in caplog.text


def test_a_weight_of_a_corpus_that_is_part_of_an_earlier_one_is_a_warning(
    config: DataConfig, caplog: pytest.LogCaptureFixture
) -> None:
    prepare(replace(config, train=["train.en", "train.fr", "train.en", "train.fr"], weights=[1.0, 5.0]))
    assert "data.weights: all pairs of corpus 2 are in an earlier one or left out in cleaning" in caplog.text


def test_each_side_has_a_vocabulary_of_its_own_size(config: DataConfig, tmp_path: Path) -> None:
    write(tmp_path, "train.en", [f"go {'up' if i % 2 else 'down'}" for i in range(40)])
    config = replace(config, dev=["train.en", "train.fr"], test=None, drop_duplicates=False)

    def sizes(vocab_size: Any) -> tuple[int, int]:
        tokenizer = TokenizerConfig(joint=False, vocab_size=vocab_size)
        name = re.sub(r"\W", "", str(vocab_size))
        prepared = prepare(replace(config, name=name, tokenizer=tokenizer))
        return len(prepared.tokenizers.source), len(prepared.tokenizers.target)

    source, target = sizes("auto")
    assert source < 30 < 60 < target
    assert sizes("auto") == (source, target)
    assert len(list((tmp_path / "cache" / "auto").glob("prepared-*"))) == 1
    assert sizes([14, 60]) == (14, 60)
    assert sizes(["auto", 50]) == (source, 50)
    with pytest.raises(ConfigError, match=r"vocab_size=60: more pieces than the source text has; .* auto takes \d+\."):
        sizes(60)
    with pytest.raises(ConfigError, match=r"vocab_size=\[12, 60\]: must be one number, or two with .*joint=false"):
        TokenizerConfig(vocab_size=[12, 60])
    with pytest.raises(ConfigError, match=r"vocab_size=7: out of range"):
        TokenizerConfig(vocab_size=[12, 7], joint=False)


@pytest.mark.parametrize(("n_new", "is_warned"), [(1, True), (4, True), (5, False), (40, False)])
def test_a_weight_that_acts_on_a_tenth_of_a_corpus_or_less_is_a_warning(
    config: DataConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture, n_new: int, is_warned: bool
) -> None:
    """Corpus 2 has the 40 pairs of corpus 1, or less of them, and `n_new` others."""
    n_old = 40 - n_new
    write(tmp_path, "more.en", [*SOURCES[:n_old], *(f"one {line}" for line in SOURCES[:n_new])])
    write(tmp_path, "more.fr", [*TARGETS[:n_old], *(f"un {line}" for line in TARGETS[:n_new])])
    mixed = replace(config, train=["train.en", "train.fr", "more.en", "more.fr"], weights=[1.0, 3.0])
    for _ in ("prepared", "opened"):
        caplog.clear()
        prepare(mixed)
        assert (f"corpus 2 acts on {n_new} of its 40 pairs" in caplog.text) == is_warned


@each("weights", [[1.0], [1.0, 2.0, 3.0]])
def test_weights_are_as_many_as_the_corpora(config: DataConfig, weights: list[float]) -> None:
    twice = replace(config, train=["train.en", "train.fr", "train.en", "train.fr"], weights=weights)
    with pytest.raises(
        ConfigError, match=rf"^data\.weights=.*: {len(weights)} weights, but data\.train names 2 corpora\. Give"
    ):
        prepare(twice)


# ---- The key, and using what is there


def test_a_second_call_uses_what_the_first_has_built(config: DataConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    first = prepare(config)
    (folder,) = prepared_folders(config)
    before = {path: path.stat() for path in (folder, *folder.iterdir())}
    for name in ("load_splits", "train_tokenizer", "clean"):
        monkeypatch.delattr(preparation, name)
    second = prepare(config)
    assert {path: path.stat() for path in (folder, *folder.iterdir())}.keys() == before.keys()
    assert all(path.stat().st_mtime_ns == stat.st_mtime_ns for path, stat in before.items())
    assert all(path.stat().st_ino == stat.st_ino for path, stat in before.items())
    assert second.fingerprint == first.fingerprint
    assert second.report == first.report
    assert texts(second) == texts(first)


def test_two_builds_are_equal_byte_for_byte(config: DataConfig, tmp_path: Path) -> None:
    other = replace(config, cache=str(tmp_path / "other"))
    assert prepare(config).fingerprint == prepare(other).fingerprint
    assert files(config) == files(other)
    assert sorted(files(config)) == FILES


def test_another_option_is_another_folder(config: DataConfig) -> None:
    others = {"max_length": 50, "max_ratio": 5.0, "drop_duplicates": False, "test": None, "seed": 2}
    for name, value in {"tokenizer": TokenizerConfig(vocab_size=59), **others}.items():
        before = prepared_folders(config)
        prepare(replace(config, **{name: value}))
        assert len(prepared_folders(config)) == len(before) + 1, name
    prepare(config)
    assert len(prepared_folders(config)) == 7


def test_languages_that_change_nothing_keep_the_folder_and_a_swapped_corpus_has_its_own(config: DataConfig) -> None:
    def prepared_in(config: DataConfig) -> str:
        return cache_key(config, {"train": [["train.en", "12ab"]]})

    known = replace(config, languages=["en", "fr"])
    swapped, mislabelled = (replace(of, source_lang="fr", target_lang="en") for of in (known, config))
    assert prepared_in(known) == prepared_in(config)
    assert len({prepared_in(config), prepared_in(swapped), prepared_in(mislabelled)}) == 3


def test_columns_that_no_table_is_named_for_are_refused(config: DataConfig) -> None:
    with pytest.raises(ConfigError, match=r"^data\.columns=\[0,1\]: no table is named, but other files"):
        prepare(replace(config, columns=[0, 1]))


@each("name", ["train.en", "train.fr", "dev.en", "dev.fr", "test.en", "test.fr"])
def test_another_text_has_another_fingerprint(config: DataConfig, tmp_path: Path, name: str) -> None:
    before = prepare(config).fingerprint
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes().replace(b".", b"!", 1))
    assert prepare(config).fingerprint != before


def test_the_same_text_in_other_files_has_the_same_fingerprint(config: DataConfig, tmp_path: Path) -> None:
    before = prepare(config).fingerprint
    packed = gzip.compress((tmp_path / "train.en").read_bytes())
    (tmp_path / "packed.en.gz").write_bytes(packed)
    moved = replace(config, name="packed", train=["packed.en.gz", "train.fr"])
    assert prepare(moved).fingerprint == before


# ---- Whole or absent


@each("name, damage", product(FILES, ["cut", "flipped", "missing"]))
def test_C20_a_damaged_file_is_found_and_everything_built_again(
    config: DataConfig, caplog: pytest.LogCaptureFixture, name: str, damage: str
) -> None:
    first = prepare(config)
    whole = files(config)
    caplog.clear()
    path = prepared_folders(config)[0] / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    if damage != "missing":
        path.write_bytes(content if damage == "flipped" else whole[name][:-1])
    with caplog.at_level(logging.WARNING, "tfm"):
        again = prepare(config)
    (record,) = caplog.records
    assert "it is built again" in record.getMessage()
    assert str(path.parent) in record.getMessage()
    assert files(config) == whole
    assert again.fingerprint == first.fingerprint


CHILD = """
import json, os, signal, sys, time
from pathlib import Path
from transformer_cli.data import cache, prepare
from transformer_cli.config.data import DataConfig, TokenizerConfig

options = json.loads(sys.argv[1])
config = DataConfig(**{**options, "tokenizer": TokenizerConfig(vocab_size=60)})
def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def child(config: DataConfig, program: str) -> subprocess.Popen[str]:
    options = {name: getattr(config, name) for name in ("source_lang", "target_lang", "root", "train", "dev", "cache")}
    command = [sys.executable, "-c", CHILD + program, json.dumps(options)]
    environment = {**os.environ, "PYTHONPATH": str(Path(cache.__file__).parents[2])}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.parametrize("moment", ["prepare.train_tokenizer", "prepare._write_text", "os.fsync", "Path.rename"])
def test_C20_a_killed_preparation_leaves_nothing_that_is_used(config: DataConfig, moment: str) -> None:
    config = replace(config, test=None)
    killed = child(config, f"{moment} = die\nprepare.prepare(config)")
    assert killed.wait() == -signal.SIGKILL
    assert killed.communicate() == ("", "")
    assert prepared_folders(config) == []
    left = Path(config.cache) / config.name
    assert len(list(left.glob(".prepared-*-*"))) == 1
    prepare(config)
    assert len(prepared_folders(config)) == 1
    assert list(left.glob(".prepared-*-*")) == []


def test_C20_two_processes_at_once_build_once_and_agree(config: DataConfig) -> None:
    config = replace(config, test=None)
    program = """
train = prepare.train_tokenizer
def slowly(*args, **kwargs):
    print("built")
    time.sleep(0.5)
    return train(*args, **kwargs)
prepare.train_tokenizer = slowly
Path(options["root"], f"ready{os.getpid()}").touch()
while len(list(Path(options["root"]).glob("ready*"))) < 2:
    time.sleep(0.01)
print(prepare.prepare(config).fingerprint)
"""
    outputs = [process.communicate() for process in [child(config, program), child(config, program)]]
    assert [err for _, err in outputs] == ["", ""]
    printed = sorted(word for out, _ in outputs for word in out.split())
    fingerprint = prepare(config).fingerprint
    assert printed == sorted(["built", fingerprint, fingerprint])


def test_C20_on_a_disk_without_locks_the_loser_uses_what_the_winner_built(
    config: DataConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*args: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    def build_after_the_winner(folder: Path, *args: Any, **options: Any) -> None:
        monkeypatch.setattr(preparation, "_build", build)
        prepare(config)
        build(folder, *args, **options)

    build = preparation._build
    monkeypatch.setattr(fcntl, "lockf", no_locks)
    monkeypatch.setattr(preparation, "_build", build_after_the_winner)
    prepared = prepare(config)
    assert texts(prepared) == list(zip(SOURCES, TARGETS, strict=True))
    assert [path.name[:9] for path in (Path(config.cache) / config.name).iterdir() if path.is_dir()] == ["prepared-"]


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_B1_a_full_disk_is_one_line_and_leaves_nothing(
    config: DataConfig, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(*((os, "fsync") if call == "fsync" else (Path, "rename")), full)
        with pytest.raises(EnvironmentFault, match=r"^.*: cannot keep the prepared data: No space left .* data\.cache"):
            prepare(config)
    assert [path for path in (Path(config.cache) / config.name).iterdir() if path.is_dir()] == []
    prepare(config)


def test_B5_a_cache_that_cannot_be_written_names_the_folder(config: DataConfig, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    config = replace(config, cache=str(tmp_path / "file"))
    with pytest.raises(EnvironmentFault, match=rf"^{tmp_path}/file/.*: cannot keep .* Make room, or set data\.cache"):
        prepare(config)


def test_every_file_is_synced_before_the_folder_gets_its_name(
    config: DataConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def recorded(name: str, function: Callable[..., Any], of: Callable[..., str]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            events.append(f"{name} {of(*args)}")
            return function(*args)

        return call

    def path_of(descriptor: int) -> str:
        return Path(os.readlink(f"/proc/self/fd/{descriptor}")).name

    monkeypatch.setattr(os, "fsync", recorded("sync", os.fsync, path_of))
    monkeypatch.setattr(Path, "rename", recorded("rename", Path.rename, lambda old, new: new.name))
    prepare(config)
    *synced, built, renamed, parent = events
    assert sorted(synced) == [f"sync {name}" for name in FILES]
    assert built.startswith("sync .prepared-")
    assert renamed.startswith("rename prepared-")
    assert parent == f"sync {config.name}"


# ---- Files and locks


def test_a_file_appears_when_it_is_whole_with_the_rights_that_the_umask_leaves(tmp_path: Path) -> None:
    path = tmp_path / "file"
    before = os.umask(0o027)
    try:
        with writing_whole(path) as file:
            file.write(b"new")
            file.flush()
            assert not path.exists()
    finally:
        os.umask(before)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_replaced_when_it_is_whole_and_keeps_its_rights(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o600)
    with writing_whole(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_interrupted_file_leaves_the_old_one(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(error), writing_whole(path) as file:
        file.write(b"new")
        raise error
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


HOLDER = """
import sys
from pathlib import Path
from transformer_cli.files import locked

with locked(Path(sys.argv[1])) as held:
    print(held, flush=True)
    sys.stdin.read()
"""


def holder(path: Path) -> subprocess.Popen[str]:
    """A process that holds the lock until its standard input ends."""
    environment = {**os.environ, "PYTHONPATH": str(Path(cache.__file__).parents[2])}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    return process


def test_a_lock_that_another_process_holds_is_refused_or_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holder(path) as process:
        with pytest.raises(BlockingIOError, match=f"held by another process: '{path}'"), locked(path, wait=False):
            pass
        assert process.stdin is not None
        threading.Timer(0.2, process.stdin.close).start()
        with locked(path) as held:
            assert held
            assert process.stdin.closed


def test_a_killed_process_loses_its_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holder(path) as process:
        process.kill()
        process.wait()
        with locked(path, wait=False) as held:
            assert held


def test_a_disk_without_locks_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*args: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", no_locks)
    with locked(tmp_path / "lock", wait=False) as held:
        assert not held


# ---- Hashes of large files are noted


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of the files that are read to be hashed, where every file counts as large."""
    names: list[str] = []
    file_sha256 = hashes.file_sha256

    def recorded(path: Path) -> str:
        names.append(path.name)
        return file_sha256(path)

    monkeypatch.setattr(hashes, "CHEAP_BYTES", 10)
    monkeypatch.setattr(hashes, "RACY_NS", 0)
    monkeypatch.setattr(hashes, "file_sha256", recorded)
    return names


def starts(config: DataConfig, hashed: list[str]) -> list[str]:
    """The files that are hashed at a start."""
    hashed.clear()
    prepare(config)
    return sorted(hashed)


def test_a_second_start_reads_no_large_file_unless_it_is_to_verify(config: DataConfig, hashed: list[str]) -> None:
    texts = sorted(f"{split}.{lang}" for split in ("train", "dev", "test") for lang in ("en", "fr"))
    assert starts(config, hashed) == texts
    assert starts(config, hashed) == sorted(set(FILES) - {"manifest.json"})  # once since it was built
    assert starts(config, hashed) == []
    assert starts(replace(config, verify=True), hashed) == sorted({*texts, *FILES} - {"manifest.json"})
    assert len(prepared_folders(config)) == 1


def test_a_file_of_other_times_is_read_again_and_another_text_found(
    config: DataConfig, tmp_path: Path, hashed: list[str]
) -> None:
    before = prepare(config).fingerprint
    path = tmp_path / "train.en"
    content, status = path.read_bytes(), path.stat()
    path.write_bytes(content)
    assert "train.en" in starts(config, hashed)
    path.write_bytes(content.replace(b".", b"!", 1))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # as cp -p does; what remains is the time of the status
    assert prepare(config).fingerprint != before


def test_a_changed_cache_of_the_same_size_is_found_by_its_times_or_by_verifying(
    config: DataConfig, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        whole = prepare(config).fingerprint
    path = prepared_folders(config)[0] / "target.ids"
    content = path.read_bytes()
    stamp = hashes._stamp(path)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with monkeypatch.context() as patch:  # a disk that has rotted: neither the size nor the times change
        patch.setattr(hashes, "_stamp", lambda other: stamp if other == path else real_stamp(other))
        assert starts(config, hashed) == []
        assert path.read_bytes() != content
        assert starts(replace(config, verify=True), hashed) != []
    assert path.read_bytes() == content
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert prepare(config).fingerprint == whole
    assert path.read_bytes() == content


real_stamp = hashes._stamp


@each("damage", [b"", b"\xff", b"[]", b"{", b'{"a": 1}', b'{"a": [["x"], 5]}', b"[" * 100_000])
def test_damaged_notes_of_hashes_are_written_anew(config: DataConfig, hashed: list[str], damage: bytes) -> None:
    whole = prepare(config).fingerprint
    notes = Path(config.cache) / config.name / hashes.RECORDS
    notes.write_bytes(damage)
    assert "train.en" in starts(config, hashed)
    assert starts(config, hashed) == []
    assert prepare(config).fingerprint == whole


def test_notes_that_cannot_be_written_are_done_without(config: DataConfig, hashed: list[str]) -> None:
    prepare(config)
    notes = Path(config.cache) / config.name / hashes.RECORDS
    notes.unlink()
    notes.mkdir()
    assert "train.en" in starts(config, hashed)
    assert "train.en" in starts(config, hashed)


def test_a_file_that_was_just_written_is_not_noted(config: DataConfig, hashed: list[str]) -> None:
    hashes.RACY_NS = 3_600_000_000_000  # the fixture puts it back
    assert "train.en" in starts(config, hashed)
    assert "train.en" in starts(config, hashed)


def test_small_corpora_are_read_at_every_start(config: DataConfig) -> None:
    prepare(config)
    prepare(config)
    assert not (Path(config.cache) / config.name / hashes.RECORDS).exists()


@pytest.mark.slow
def test_processes_that_start_at_once_read_a_large_file_once(config: DataConfig) -> None:
    prepare(config)
    program = """
from transformer_cli.data import hashes
hashes.CHEAP_BYTES, hashes.RACY_NS, real = 10, 0, hashes.file_sha256
def slowly(path):
    print(path.name)
    time.sleep(0.02)
    return real(path)
hashes.file_sha256 = slowly
Path(options["root"], f"ready{os.getpid()}").touch()
while len(list(Path(options["root"]).glob("ready*"))) < 2:
    time.sleep(0.01)
prepare.prepare(config)
"""
    config = replace(config, test=None)
    outputs = [process.communicate() for process in [child(config, program), child(config, program)]]
    printed = [name for out, _ in outputs for name in out.split()]
    assert sorted(name for name in printed if name.startswith(("train", "dev."))).count("train.en") == 1


# ---- What is likely to be wrong


def test_training_pairs_that_are_in_dev_or_test_are_counted(config: DataConfig, tmp_path: Path) -> None:
    write(tmp_path, "dev.en", ["", "unseen .", f" {SOURCES[7]}", SOURCES[8]])
    write(tmp_path, "dev.fr", ["", "x .", TARGETS[7], "autre chose ."])
    write(tmp_path, "test.en", ["another ."])
    write(tmp_path, "test.fr", ["un autre ."])
    prepared = prepare(config)
    (warning,) = prepared.warnings
    assert warning.startswith("data.dev: 2 training pairs have a source sentence of it (1 with the same translation)")
    assert f"such as line 3, '{SOURCES[7]}': its scores will be too good" in warning
    assert prepared.report.n_kept == 40
    assert prepare(config).warnings == prepared.warnings


def test_what_is_held_out_leaks_nothing(config: DataConfig) -> None:
    assert list(prepare(replace(config, dev=None, test=None)).warnings) == []


def test_sides_that_are_not_in_their_declared_languages_are_warned_of(config: DataConfig, tmp_path: Path) -> None:
    pairs = read_builtin("demo_en_fr", "train")[:600]
    for split, chosen in {"train": pairs[:500], "dev": pairs[500:550], "test": pairs[550:]}.items():
        write(tmp_path, f"{split}.tsv", [f"{english}\t{french}" for english, french in chosen])
    config = replace(
        config, train="train.tsv", dev="dev.tsv", test="test.tsv", tokenizer=TokenizerConfig(vocab_size=200)
    )
    assert list(prepare(config).warnings) == []
    swapped = prepare(replace(config, source_lang="fr", target_lang="en")).warnings
    assert [warning.split(":")[0] for warning in swapped[:2]] == ["data.train", "data.train"]
    assert "the source side is declared fr (data.source_lang), but reads like en" in swapped[0]
    assert "the target side is declared en (data.target_lang), but reads like fr" in swapped[1]
    assert list(prepare(replace(config, source_lang="fr", target_lang="en", columns=[1, 0])).warnings) == []
    unknown = replace(config, source_lang="xx", target_lang="yy")
    assert list(prepare(unknown).warnings) == []
    write(tmp_path, "dev.tsv", [f"{french}\t{english}" for english, french in pairs[500:550]])
    (exchanged,) = prepare(unknown).warnings
    assert exchanged.startswith("data.dev: source and target are exchanged, compared with data.train")


def test_a_language_that_is_declared_by_its_name_is_warned_of_with_its_code(config: DataConfig) -> None:
    files = {split: [f"{split}.en", f"{split}.fr"] for split in ("train", "dev", "test")}
    named = prepare(replace(config, source_lang="English", target_lang="allemand", **files)).warnings
    assert named[0].startswith("data.source_lang=English: English is the name of a language")
    assert [one.split()[-2:] for one in named[:2]] == [["Write", "en"], ["Write", "de"]]
    coded = prepare(replace(config, source_lang="en-US", target_lang="fra_Latn", **files)).warnings
    assert not [one for one in coded if "is the name of a language" in one]


def test_bidirectional_training_text_is_the_pairs_and_the_pairs_exchanged(config: DataConfig) -> None:
    one, both = (ids_of(prepare(replace(config, bidirectional=value)).train) for value in (False, True))
    assert sorted(zip(*both, strict=True)) == sorted([*zip(*one, strict=True), *zip(*one[::-1], strict=True)])


@each(
    "settings, message",
    [
        ({"tokenizer": TokenizerConfig(joint=False)}, r"does not go with data\.tokenizer\.joint=false"),
        ({"tags": ["<2de>"]}, r"does not go with data\.tags=\['<2de>'\]"),
        ({"weights": [2.0]}, r"does not go with data\.weights=\[2\.0\]"),
        ({"truncate_source": True}, r"does not go with data\.truncate_source=true"),
    ],
)
def test_bidirectional_is_refused_where_the_directions_differ(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DataConfig(source_lang="en", target_lang="fr", bidirectional=True, **settings)
