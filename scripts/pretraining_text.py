"""English text for the masked language model of benchmarks/classification.md, in the tokens of the Penn Treebank.

Usage: python scripts/pretraining_text.py FOLDER > corpus.txt

FOLDER holds tatoeba_en_de/, tatoeba_en_fr/, multi30k/, europarl_de_en_20k/, iwslt14_de_en_small/, ted_de_en_raw/,
wmt14_en_de/, small_parallel_enja/, sst2/, trec_questions/, sick/ and ud_english_ewt_pos/. The training sentences of the
last four are used without their labels, those of dev and test nowhere: a line is left out if it is one of them, but for
capitals and what is no letter or digit. So is a repeated line.
"""

import gzip
import re
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

PLAIN = (
    *("tatoeba_en_de/train.en.gz", "tatoeba_en_fr/train.en.gz", "multi30k/train.en.gz"),
    *("europarl_de_en_20k/train.en.gz", "small_parallel_enja/train.en.gz"),
    "iwslt14_de_en_small/train_small.en",
    *(f"ted_de_en_raw/{name}.en" for name in ("tedx_dev2012", "tedx_tst2013", "tedx_tst2014")),
    *(f"ted_de_en_raw/{name}.en" for name in ("dev2010", "tst2010", "tst2011", "tst2013", "tst2014")),
    *(f"wmt14_en_de/newstest{year}.en" for year in range(2008, 2014)),
)
TABLES = (("sst2", 1), ("trec_questions", 1), ("sick", 2))  # and how many texts a row has
SCORED = ("dev", "test")
ENTITIES = {"&apos;": "'", "&quot;": '"', "&#91;": "[", "&#93;": "]", "&amp;": "&", "&lt;": "<", "&gt;": ">"}


def main(folder: Path) -> None:
    scored = {key(line) for line in chain.from_iterable(labelled(folder, split) for split in SCORED)}
    seen, n_scored = set(scored), 0
    for line in chain(labelled(folder, "train"), *(lines(folder / name) for name in PLAIN)):
        text = treebank(line)
        n_scored += key(text) in scored
        if key(text) not in seen:
            seen.add(key(text))
            print(text)
    print(f"{len(seen) - len(scored):,} lines; left out as lines of dev or test: {n_scored:,}", file=sys.stderr)


def labelled(folder: Path, split: str) -> Iterator[str]:
    """The sentences of a split of the corpora that are scored."""
    for name, n_texts in TABLES:
        for line in lines(folder / name / f"{split}.tsv"):
            yield from line.split("\t")[1 : 1 + n_texts]
    words: list[str] = []
    for line in lines(folder / "ud_english_ewt_pos" / f"{split}.conll"):
        if line:
            words.append(line.split()[0])
        elif words:
            yield " ".join(words)
            words = []
    if words:
        yield " ".join(words)


def lines(path: Path) -> Iterator[str]:
    """The lines of a file, which may be compressed; none where there is no file."""
    packed = path.with_name(f"{path.name}.gz")
    path = packed if packed.exists() else path
    if path.exists():
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for line in file:
                yield line.decode("utf-8").rstrip("\r\n")


def key(line: str) -> str:
    return re.sub(r"[\W_]+", "", line.lower())


def treebank(line: str) -> str:
    """The line in words of the treebank: "do n't", "it 's", and marks apart."""
    for entity, sign in ENTITIES.items():
        line = line.replace(entity, sign)
    line = line.replace("\u2019", "'").replace("\u00ad", "")
    line = re.sub(r"([\[\](){}<>,;:?!\"\u201c\u201d\u2026%$&@]|--+|\.\.+)(?!\d)", r" \1 ", line)
    line = re.sub(r"\.(\s*[\"')\u201d]*\s*)$", r" . \1", line)
    line = re.sub(r"(?i)(\w)('s|'m|'d|'ll|'re|'ve)\b", r"\1 \2", line)
    line = re.sub(r"(?i)(\w)\s?(n)\s?('t)\b", r"\1 \2\3", line)
    return " ".join(line.split())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python scripts/pretraining_text.py FOLDER > corpus.txt")
    main(Path(sys.argv[1]))
