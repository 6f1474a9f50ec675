"""What `tfm augment loop` gains: real pairs, and monolingual text of the same corpus in both languages.

    python scripts/bench_loop.py FOLDER --languages en fr --output loop-en-fr model=small train.max_steps=2000

FOLDER holds train, valid and test, as train.en or train.en.gz. The text is drawn without overlap: no sentence of either
language stands in two of the real pairs, the pairs whose source sides are monolingual text, and those whose target
sides are. What follows is of `tfm augment loop`.
"""

import argparse
import gzip
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from transformer_cli.cli import main
from transformer_cli.data.normalization import canonical

Pair = tuple[str, ...]


def read(folder: Path, split: str, languages: Sequence[str]) -> list[Pair]:
    """The pairs of a split."""
    sides = []
    for language in languages:
        file = folder / f"{split}.{language}"
        content = file.read_bytes() if file.exists() else gzip.decompress(Path(f"{file}.gz").read_bytes())
        sides.append(content.decode().split("\n")[:-1])
    return list(zip(*sides, strict=True))


def without_overlap(pairs: Sequence[Pair], seen: Sequence[Pair]) -> Iterator[Pair]:
    """The pairs neither of whose sides is in an earlier pair, or in `seen`."""
    known = [{canonical(pair[side]) for pair in seen} for side in (0, 1)]
    for pair in pairs:
        keys = [canonical(text) for text in pair]
        if not any(key in of_side for key, of_side in zip(keys, known, strict=True)):
            for key, of_side in zip(keys, known, strict=True):
                of_side.add(key)
            yield pair


def write(file: Path, lines: Sequence[str]) -> str:
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(file)


def arguments_of(options: argparse.Namespace, rest: Sequence[str]) -> list[str]:
    """The command line of `tfm augment loop`, after its text is written."""
    languages, text = options.languages, Path(f"{options.output}-text")
    text.mkdir(parents=True, exist_ok=True)
    splits = {split: read(options.folder, split, languages) for split in ("train", "valid", "test")}
    drawn = list(without_overlap(splits["train"], [*splits["valid"], *splits["test"]]))
    n_real, n_mono = options.real, options.monolingual
    if len(drawn) < n_real + 2 * n_mono:
        raise SystemExit(f"{options.folder}: has {len(drawn):,} pairs without overlap, fewer than are asked for")
    real, of_source, of_target = drawn[:n_real], drawn[n_real:][:n_mono], drawn[n_real + n_mono :][:n_mono]
    pairs = {"train": real, "dev": splits["valid"], "test": splits["test"]}
    files = {
        split: [
            write(text / f"{split}.{language}", [pair[side] for pair in found])
            for side, language in enumerate(languages)
        ]
        for split, found in pairs.items()
    }
    source = write(text / f"mono.{languages[0]}", [pair[0] for pair in of_source])
    target = write(text / f"mono.{languages[1]}", [pair[1] for pair in of_target])
    corpus = [f"data.{split}=[{','.join(names)}]" for split, names in files.items()]
    sides = [f"data.source_lang={languages[0]}", f"data.target_lang={languages[1]}"]
    flags = ["--source", source, "--target", target, "--output", options.output]
    return ["augment", "loop", "data=files", *sides, *corpus, *flags, *rest]


def options_of(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--languages", nargs=2, default=["en", "fr"])
    parser.add_argument("--real", type=int, default=5000, help="real pairs")
    parser.add_argument("--monolingual", type=int, default=20_000, help="lines of monolingual text in each language")
    parser.add_argument("--output", default="loop")
    return parser.parse_known_args(arguments)


if __name__ == "__main__":
    sys.exit(main(arguments_of(*options_of(sys.argv[1:]))))
