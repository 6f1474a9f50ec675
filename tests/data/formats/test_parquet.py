"""Parquet and Arrow: files that pyarrow writes, and folders as `datasets` of Hugging Face has them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.data.formats.toy_tables import Folder
from transformer_cli.config.data import OnBad
from transformer_cli.errors import DataError, EnvironmentFault

PAIRS = [(f"Sentence {n}.", f"Phrase {n} é.") for n in range(2500)]


@pytest.fixture
def arrow() -> Any:
    return pytest.importorskip("pyarrow", reason="needs the extra `parquet`")


def table_of(arrow: Any, pairs: Any, *, nested: bool = False) -> Any:
    texts = [{"en": source, "fr": target} for source, target in pairs]
    ids = list(range(len(texts)))
    if nested:
        return arrow.table({"id": ids, "translation": texts})
    return arrow.table({"id": ids, "fr": [text["fr"] for text in texts], "en": [text["en"] for text in texts]})


def write(arrow: Any, table: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, path)
        return
    with path.open("wb") as file, arrow.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize("nested", [True, False])
def test_what_pyarrow_writes_is_read_as_it_was(folder: Folder, arrow: Any, ending: str, nested: bool) -> None:
    write(arrow, table_of(arrow, PAIRS, nested=nested), folder.path / f"a.{ending}")
    assert folder.pairs(f"a.{ending}") == PAIRS
    name = "translation.en" if nested else "en"
    assert folder.pairs(f"a.{ending}", columns=[name, name.replace("en", "fr")]) == PAIRS
    with pytest.raises(DataError, match=r"the column 'id' holds no text"):
        folder.pairs(f"a.{ending}", columns=["id", name])


def test_folders_of_datasets_are_read_shard_after_shard(folder: Folder, arrow: Any) -> None:
    halves = [table_of(arrow, PAIRS[:1000]), table_of(arrow, PAIRS[1000:])]
    for number, half in enumerate(halves):
        write(arrow, half, folder.path / f"saved/train/data-{number:05}-of-00002.arrow")
        write(arrow, half, folder.path / f"hub/data/train-{number:05}-of-00002.parquet")
        write(arrow, half, folder.path / f"hub/data/test-{number:05}-of-00002.parquet")
    write(arrow, halves[0], folder.path / "saved/test/data-00000-of-00001.arrow")
    (folder.path / "saved/dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    for name in ("saved/train", "hub/data/train", "hub/train"):
        assert folder.pairs(name) == PAIRS, name
    folder.write("hub/data/test", "one\n")  # text is text, whatever lies beside it
    folder.write("hub/data/test.fr", "un\n")
    assert folder.pairs(["hub/data/test", "hub/data/test.fr"]) == [("one", "un")]
    for name in ("saved", "hub"):
        with pytest.raises(DataError, match=rf"{name}: holds 2 splits: .*Name one, as data\.train=.*{name}/"):
            folder.pairs(name)
    write(arrow, halves[0], folder.path / "saved/train/data-00000-of-00001.arrow")  # saved before, in another number
    with pytest.raises(DataError, match=r"train: has files of several datasets: 'data-00000-of-00001\.arrow', 'data-0"):
        folder.pairs("saved/train")
    (folder.path / "hub/data/train-00000-of-00002.parquet").unlink()
    with pytest.raises(DataError, match=r"has 1 of the 2 files of its dataset\. Fetch it again"):
        folder.pairs("hub/train")


def test_a_row_with_null_is_refused_or_left_out(folder: Folder, arrow: Any) -> None:
    write(arrow, table_of(arrow, [*PAIRS[:5], ("one", None), *PAIRS[5:9]]), folder.path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: row 6: 'fr' is null, not a text\. Correct the row"):
        folder.pairs("a.parquet")
    assert folder.pairs("a.parquet", on_bad=OnBad.skip) == PAIRS[:9]


def test_the_names_of_classes_are_the_labels(folder: Folder, arrow: Any) -> None:
    features = {
        "label": {"_type": "ClassLabel", "names": ["bad", "good"]},
        "text": {"_type": "Value", "dtype": "string"},
    }
    table = arrow.table({"text": ["One.", "Two."], "label": [1, 0]})
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    write(arrow, table, folder.path / "a.parquet")
    config = {"task": "classification", "source_lang": "text", "target_lang": "label"}
    assert folder.pairs("a.parquet", **config) == [("One.", "good"), ("Two.", "bad")]


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_a_damaged_file_is_refused(folder: Folder, arrow: Any, ending: str) -> None:
    write(arrow, table_of(arrow, PAIRS), folder.path / f"a.{ending}")
    content = (folder.path / f"a.{ending}").read_bytes()
    folder.write(f"a.{ending}", content[: len(content) // 2])
    with pytest.raises(DataError, match=rf"a\.{ending}: is damaged \("):
        folder.pairs(f"a.{ending}")


def test_without_pyarrow_one_line_says_what_to_install(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    folder.write("a.parquet", b"PAR1")
    with pytest.raises(
        EnvironmentFault, match=r"a\.parquet: a file of Parquet: the package pyarrow cannot be imported .*parquet"
    ):
        folder.pairs("a.parquet")
