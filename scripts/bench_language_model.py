"""Perplexity per word of a language model and of 5-grams, as a Markdown table: see scripts/bench_language_model.

All train on the lines of the training text without repetitions, as data.drop_duplicates leaves them. All predict the
same events: the words of the test text, separated by white space, and the end of each line. The log-probability of a
word is the sum over its subwords. A word that the training text lacks is one event, <unk>, for an n-gram over words,
and is spelled by the model of tfm: the last column excludes such words for all models.
"""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_cli.data.lines import read_lines
from transformer_cli.models.file import read_model
from transformer_cli.models.locate import locate_model

ORDER = 5
END = "</s>"


@dataclass(frozen=True)
class Entry:
    """`words` are the log-probabilities of the test text's words, line by line, each with the end of its line."""

    name: str
    words: Sequence[Sequence[float]]


def main(folder: Path, checkpoint: str) -> None:
    train = list(dict.fromkeys(read_lines(folder / "train.en.gz").texts))
    test = read_lines(folder / "test.en").texts
    seen = {word for line in train for word in line.split()}
    tokenizer = read_model(locate_model(checkpoint, "runs")).tokenizers.target

    def pieces(line: str) -> list[list[str]]:
        return grouped(tokenizer.pieces(tokenizer.encode([line])[0]))

    found = [
        Entry("5-gram, words", n_gram(train, test, lambda line: [[word] for word in line.split()])),
        Entry("5-gram, words and marks apart", n_gram(train, test, apart)),
        Entry("5-gram, pieces of tfm", n_gram(train, test, pieces)),
        Entry("tfm", tfm_scores(folder / "test.en", checkpoint)),
    ]
    unseen = [[word not in seen for word in line.split()] + [False] for line in test]
    n_words, n_unseen = sum(map(len, unseen)), sum(map(sum, unseen))
    print(f"| perplexity per word | all {n_words:,} | without the {n_unseen} unseen words |")
    print("|---|---:|---:|")
    for one in found:
        assert [len(line) for line in one.words] == [len(line) for line in unseen], one.name
        rows = zip(one.words, unseen, strict=True)
        each = [pair for line, new in rows for pair in zip(line, new, strict=True)]
        columns = [perplexity([p for p, _ in each]), perplexity([p for p, is_new in each if not is_new])]
        print(f"| {one.name} | {columns[0]:.2f} | {columns[1]:.2f} |")


def perplexity(log_probs: Sequence[float]) -> float:
    return math.exp(-math.fsum(log_probs) / len(log_probs))


def apart(line: str) -> list[list[str]]:
    """Each word as letters and digits, and every other mark for itself."""
    return [re.findall(r"\w+|[^\w\s]", word) for word in line.split()]


def grouped(pieces: Sequence[str]) -> list[list[str]]:
    """Pieces by the words that they are parts of."""
    words: list[list[str]] = []
    for piece in pieces:
        if piece.startswith("▁"):
            words.append([])
        words[-1].append(piece)
    return words


def n_gram(train: Sequence[str], test: Sequence[str], cut: Callable[[str], list[list[str]]]) -> list[list[float]]:
    """Estimate an n-gram model of the training text; log-probabilities of the words of the test text."""
    text = [
        "".join(f"{' '.join(part for word in cut(line) for part in word)}\n" for line in side).encode()
        for side in (train, test)
    ]
    with tempfile.TemporaryDirectory() as scratch:
        arpa = Path(scratch) / "model.arpa"
        with arpa.open("wb") as file:
            command = [program("lmplz"), "-o", str(ORDER), "-S", "500M", "-T", scratch]
            subprocess.run(command, input=text[0], stdout=file, stderr=subprocess.PIPE, check=True)
        done = subprocess.run([program("query"), "-v", "word", arpa], input=text[1], capture_output=True, check=True)
    values = iter(done.stdout.decode().split("\t"))  # part=id order log10, tab-separated
    found = []
    for line in test:
        words = [*cut(line), [END]]
        found.append([sum(log_probability(next(values), part) for part in word) for word in words])
    return found


def log_probability(text: str, part: str) -> float:
    label, number = text.strip().rsplit("=", 1)
    assert label == part, f"expected {part}, found {label}"
    return float(number.split(" ")[2]) * math.log(10)


def program(name: str) -> str:
    path = shutil.which(name, path=os.environ.get("KENLM"))
    if path is None:
        sys.exit(f"{name}: not found. Build KenLM (see benchmarks/language_model.md), and set KENLM to its folder bin")
    return path


def tfm_scores(text: Path, checkpoint: str) -> list[list[float]]:
    command = [sys.executable, "-c", "from transformer_cli.cli import entry_point; entry_point()"]
    arguments = ["score", "--json", "--source", str(text), "--checkpoint", checkpoint]
    done = subprocess.run([*command, *arguments], stdout=subprocess.PIPE, check=True)
    found = []
    for line in done.stdout.decode().split("\n")[:-1]:
        tokens = json.loads(line)["tokens"]
        log_probs = iter(log_prob for _, log_prob in tokens)
        words = [*grouped([piece for piece, _ in tokens[:-1]]), [END]]
        found.append([sum(next(log_probs) for _ in word) for word in words])
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
