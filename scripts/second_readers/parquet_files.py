"""Parquet files and folders that `datasets` of Hugging Face saves, written and read by it.

Another library writes them, so that CASES only names them: PROGRAM writes a file before it reads it.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random

from second_readers import Case, pairs

PROGRAM = """
import datasets
options = case["options"]
texts = [{"en": source, "fr": target} for source, target in options["pairs"]]
numbers = list(range(len(texts)))
if options["nested"]:
    made = datasets.Dataset.from_dict({"id": numbers, "translation": texts})
else:
    made = datasets.Dataset.from_dict(
        {"fr": [text["fr"] for text in texts], "id": numbers, "en": [text["en"] for text in texts]}
    )
if options["kind"] == "saved":
    made.save_to_disk(case["path"], num_shards=options["shards"])
    found = datasets.load_from_disk(case["path"])
elif options["kind"] == "splits":
    folder = case["path"].rpartition("/")[0]
    datasets.DatasetDict({"train": made, "test": made.select(range(1))}).save_to_disk(folder)
    found = datasets.load_from_disk(folder)["train"]
else:
    made.to_parquet(case["path"], batch_size=options["batch"])
    found = datasets.load_dataset("parquet", data_files=case["path"], split="train", cache_dir=case["cache"])
rows = [row["translation"] if options["nested"] else row for row in found]
pairs = [[row["en"], row["fr"]] for row in rows]
assert all(isinstance(text, str) for pair in pairs for text in pair), "a null"
return pairs
"""


def CASES(folder: Path, random: Random, n: int) -> Iterator[Case]:
    kinds = list(product(("file", "saved", "splits"), (True, False), (1, 3)))
    for number, (kind, is_nested, shards) in enumerate([*kinds, *kinds, *kinds[:6]]):
        found: list[tuple[str, str | None]] = [*pairs(random, n, "\n\t\u2028\U0001f600")]
        if number % 8 == 7:
            found[n // 2] = (found[n // 2][0], None)
        name = f"parquet-{number}.parquet" if kind == "file" else f"parquet-{number}"
        path = folder / name / "train" if kind == "splits" else folder / name
        prefix = "translation." if is_nested else ""
        options = {"pairs": found, "nested": is_nested, "kind": kind, "shards": shards, "batch": [1000, 7][shards == 3]}
        yield Case(f"{number}", str(path), (f"{prefix}en", f"{prefix}fr"), options=options)
