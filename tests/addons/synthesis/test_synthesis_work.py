"""The work on a corpus: whatever file operation a process dies at, the same command makes the same bytes."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.toy.run import Died, tree
from transformer_cli import files
from transformer_cli.addons.synthesis import work as work_module
from transformer_cli.addons.synthesis.work import CorpusReport, Made, files_of, finished, report_of, work
from transformer_cli.data.hashes import file_sha256
from transformer_cli.errors import ConfigError, DataError

LINES = [b"a", b"", b"c d", b"e", b"f f"]
SETTINGS = {"languages": ["en", "de"], "shard": "1/1", "seed": 1}


def double(lines: Sequence[bytes], number: int) -> Made:
    pairs = [(line.decode(), f"{number + i} {line.decode()}") for i, line in enumerate(lines) if line]
    return Made(len(lines), pairs, Counter(blank=lines.count(b"")))


def made(
    folder: Path, settings: dict[str, Any] = SETTINGS, *, replace: bool = False, n: int = len(LINES)
) -> CorpusReport:
    name = folder / "bt"
    return work(name, iter(LINES), double, settings, inputs={}, n_expected=n, block_lines=2, replace=replace)


def die_at(patch: pytest.MonkeyPatch, last: int) -> None:
    """Let the file operation with this number, and each after it, end the process."""
    numbers = count()

    def dying(real: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if next(numbers) >= last:
            raise Died
        return real(*arguments, **options)

    for module, function in (
        (work_module, "write_whole"),
        (work_module, "move_to_free"),
        (work_module.shutil, "rmtree"),
        (files, "_publish"),
    ):
        patch.setattr(module, function, partial(dying, getattr(module, function)))
    unlink = Path.unlink
    patch.setattr(Path, "unlink", lambda path, **options: dying(unlink, path, **options))


@pytest.mark.parametrize("replaces", [False, True])
def test_a_death_at_any_file_operation_loses_and_doubles_nothing(tmp_path: Path, replaces: bool) -> None:
    reference = tmp_path / "reference"
    reference.mkdir()
    report = made(reference)
    assert (report.n_lines, report.n_pairs, report.dropped) == (5, 4, {"blank": 1})
    for last in count():
        folder = tmp_path / str(last)
        folder.mkdir()
        if replaces:
            for ending in ("en", "de", "json"):
                (folder / f"bt.{ending}").write_text("older\n")
        with pytest.MonkeyPatch.context() as patch:
            die_at(patch, last)
            try:
                made(folder, replace=replaces)
                is_dead = False
            except Died:
                is_dead = True
        name = folder / "bt"
        if finished(name, SETTINGS) is None:  # as the command asks before it begins
            there = [file.read_bytes() for file in files_of(name, ("en", "de")) if file.exists()]
            assert len({text == b"older\n" for text in there}) < 2, "an old file beside a new one"
            made(folder, replace=replaces)
        assert tree(folder) == tree(reference)
        if not is_dead:
            break
    assert last > 8


def test_blocks_of_settings_that_are_unknown_are_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "bt.work"
    folder.mkdir()
    (folder / "block-000000000001.json").write_text(json.dumps([2, [["x", "y"]], {"blank": 1}]))
    assert made(tmp_path).n_pairs == 4
    assert b"x" not in (tmp_path / "bt.en").read_bytes()


def test_unfinished_work_goes_on_with_blocks_of_another_size_but_not_with_other_settings(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        die_at(patch, 7)
        with pytest.raises(Died):
            made(tmp_path)
    assert len(list((tmp_path / "bt.work").glob("block-*"))) > 1
    with pytest.raises(ConfigError, match=r"bt\.work: holds unfinished work with other settings \(seed\)\. Repeat its"):
        made(tmp_path, {**SETTINGS, "seed": 2})
    report = work(tmp_path / "bt", iter(LINES), double, SETTINGS, inputs={}, n_expected=5, block_lines=3)
    assert (report.n_lines, (tmp_path / "bt.de").read_text()) == (5, "1 a\n3 c d\n4 e\n5 f f\n")


def test_an_input_that_changes_meanwhile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the input had 6 lines at the start, and 5 were read\. Leave it as it is"):
        made(tmp_path, n=6)
    assert not report_of(tmp_path / "bt").exists()


def test_an_input_that_is_edited_in_place_meanwhile_is_refused(tmp_path: Path) -> None:
    (source := tmp_path / "in.en").write_bytes(b"\n".join(LINES))
    inputs = {source: file_sha256(source)}

    def editing(lines: Sequence[bytes], number: int) -> Made:
        source.write_bytes(source.read_bytes().replace(b"f f", b"g g"))
        return double(lines, number)

    with pytest.raises(DataError, match=r"in\.en was changed while it was read\. Leave it as it is"):
        work(tmp_path / "bt", iter(LINES), editing, SETTINGS, inputs=inputs, n_expected=5, block_lines=2)
    assert not report_of(tmp_path / "bt").exists()


def test_a_corpus_of_one_language_has_two_files(tmp_path: Path) -> None:
    """A summarizer makes such a corpus."""
    report = made(tmp_path, {**SETTINGS, "languages": ["en", "en"]})
    assert report.is_whole(tmp_path / "bt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bt.json", "bt.source", "bt.target"]


def test_the_log_says_how_much_is_done_and_how_long_the_rest_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seconds = count(100, 60)  # a block a minute
    monkeypatch.setattr(work_module.time, "monotonic", lambda: float(next(seconds)))
    with caplog.at_level("INFO", logger="tfm"):
        made(tmp_path)  # two lines, two, one
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / 'bt'}: {n} of 5 lines, 0.0 lines/s, {minutes} minutes left"
        for n, minutes in ((2, "2"), (4, "0"), (5, "0"))
    ]
