"""Word alignments beside links that people made, and tags placed by them: the tables of benchmarks/alignment.md.

python scripts/bench_alignment.py aer PAIRS GOLD --text train.en train.fr --model guided=runs/guided --eflomal FOLDER
                                  [--parts]
python scripts/bench_alignment.py tags TAGS --text train.en train.fr --model guided=runs/guided [--errors guided]
python scripts/bench_alignment.py own TAGS --model guided=runs/guided
python scripts/bench_alignment.py links SOURCE TARGET --eflomal FOLDER > train.links

PAIRS has `source ||| translation` on each line, and GOLD its links as `i-j` (sure) or `ipj` (possible), from 1 (from 0
with --from-0). Every aligner is estimated on the text with the pairs behind it. The alignment error rate is that of Och
and Ney 2003; --parts adds that of pairs of some lengths, in words of the longer side, and of links of words and of
punctuation. TAGS has a kind, a source with tags and its translation with tags, with tabs in between: the translation
is given, its tags are placed by each alignment, and one is right if it has the same letters before it and, of a pair,
within it. --errors prints the others of a row. A model has a second row, in which the rules are those of Bergamot.

`own` translates the sources: as a whole, with tags by both rules, and by the ways that translate the texts of tags by
themselves. BLEU and chrF are those without tags. A pair of tags is counted if the letters in it are the reference's.

`links` writes those of eflomal for each line of two texts, as data.alignments has them.

--model may be given several times. --eflomal is a folder of `pip install --target FOLDER eflomal`, and --fast-align
that of the program fast_align; both get the tokens of tfm, and their two directions are symmetrised as in tfm.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from tag_placement import (
    SoftAlignment,
    fragments,
    n_letters,
    placed_by_bergamot,
    placed_by_search,
    spaced,
    stretches_of,
    tag_by_tag,
    tags_of,
    tree_of,
)

from transformer_cli import api
from transformer_cli.addons.alignment.model_links import ModelAligner
from transformer_cli.addons.alignment.run_align import each_pair
from transformer_cli.addons.alignment.word_corpus import WordCorpus, are_of_words, tokens_of
from transformer_cli.addons.documents.document import translate_documents
from transformer_cli.data.pharaoh import link_line
from transformer_cli.data.sentencepiece_model import SPACE
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.decoding.results import Candidate, Translated
from transformer_cli.evaluation import metrics
from transformer_cli.inference.force_decode import force_decode
from transformer_cli.models.file import read_model
from transformer_cli.models.locate import locate_model

Pair = tuple[str, str]
Row = tuple[str, str, str]
Token = tuple[str, int, int]  # with the number of its word, and its kind
Links = set[tuple[int, int]]
Align = Callable[[Sequence[Pair]], list[Links]]
Place = Callable[[Sequence[Row]], list[str]]  # the translations of rows with their tags
CPU = torch.device("cpu")
LENGTHS = (0, 10, 18, 26, 1000)
LINK = re.compile(r"(\d+)([-p])(\d+)")
EFLOMAL = """
import sys
sys.path.insert(0, sys.argv[1])
from eflomal import Aligner
with open(sys.argv[2]) as source, open(sys.argv[3]) as target:
    Aligner().align(source, target, links_filename_fwd=sys.argv[4], links_filename_rev=sys.argv[5], quiet=True)
"""


# ---- Aligners


def of_tfm(text: Sequence[Pair]) -> Align:
    def align(pairs: Sequence[Pair]) -> list[Links]:
        with tempfile.TemporaryDirectory() as folder:
            corpus = WordCorpus.of([*text, *pairs], Path(folder))
            return [set(links) for links in corpus.links(Path(folder))][len(text) :]

    return align


def of_model(name: str) -> Align:
    file = read_model(locate_model(name, "runs"))
    aligner = ModelAligner(file.build(CPU), file, CPU, 4096)
    return lambda pairs: [set(links or ()) for links in aligner.links(pairs, first_line=1)]


def of_program(text: Sequence[Pair], run: Callable[[Path], tuple[list[Links], list[Links]]]) -> Align:
    """An aligner of tokens, with those that tfm gives to its own, and links in both directions."""

    def align(pairs: Sequence[Pair]) -> list[Links]:
        every = [*text, *pairs]
        tokens = [[placed_tokens(side) for side in pair] for pair in every]
        real = [i for i, pair in enumerate(tokens) if all(pair)]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for side, ending in enumerate(("source", "target")):
                lines = (" ".join(token for token, _, _ in tokens[i][side]) for i in real)
                (folder / ending).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            both = run(folder)
        found: list[Links] = [set() for _ in every]
        for i, forward, backward in zip(real, *both, strict=True):
            links = symmetrised(forward, backward) if i >= len(text) else set()
            found[i] = {of_words for link in links if (of_words := words_linked(link, *tokens[i])) is not None}
        return found[len(text) :]

    return align


def placed_tokens(line: str) -> list[Token]:
    """The tokens of a line."""
    return [(token, n, kind) for n, word in enumerate(line.split()) for token, kind in tokens_of(word)]


def words_linked(link: tuple[int, int], source: Sequence[Token], target: Sequence[Token]) -> tuple[int, int] | None:
    """The words that a link between tokens links, as `tfm align` has it."""
    one, other = source[link[0]], target[link[1]]
    return (one[1], other[1]) if are_of_words(np.array([one[2]]), np.array([other[2]]))[0] else None


def of_eflomal(folder: str) -> Callable[[Path], tuple[list[Links], list[Links]]]:
    def run(work: Path) -> tuple[list[Links], list[Links]]:
        files = [str(work / name) for name in ("source", "target", "forward", "backward")]
        subprocess.run([sys.executable, "-c", EFLOMAL, folder, *files], check=True, stdout=subprocess.DEVNULL)
        return read_links(Path(files[2])), read_links(Path(files[3]))

    return run


def of_fast_align(folder: str) -> Callable[[Path], tuple[list[Links], list[Links]]]:
    def run(work: Path) -> tuple[list[Links], list[Links]]:
        sides = [(work / name).read_text(encoding="utf-8").split("\n")[:-1] for name in ("source", "target")]
        both = "".join(f"{source} ||| {target}\n" for source, target in zip(*sides, strict=True))
        (work / "both").write_text(both, encoding="utf-8")
        found = []
        for more in ([], ["-r"]):
            command = [str(Path(folder) / "fast_align"), "-i", str(work / "both"), "-d", "-o", "-v", *more]
            with (work / "links").open("wb") as sink:
                subprocess.run(command, check=True, stdout=sink, stderr=subprocess.DEVNULL)
            found.append(read_links(work / "links"))
        return found[0], found[1]

    return run


def read_links(path: Path) -> list[Links]:
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [{(int(i), int(j)) for i, _, j in LINK.findall(line)} for line in lines]


def symmetrised(forward: Links, backward: Links) -> Links:
    """grow-diag-final-and (Koehn et al. 2003), link by link."""
    found, either = forward & backward, forward | backward
    grows = True
    while grows:
        grows = False
        for i, j in sorted(found):
            for near in ((i + a, j + b) for a in (-1, 0, 1) for b in (-1, 0, 1)):
                if near in either - found and is_free(near, found, both=False):
                    found, grows = found | {near}, True
    for links in (forward, backward):
        for link in sorted(links):
            if is_free(link, found, both=True):
                found = found | {link}
    return found


def is_free(link: tuple[int, int], found: Links, *, both: bool) -> bool:
    """Whether one word of a link has none yet, or both have none."""
    free = [all(link[side] != one[side] for one in found) for side in (0, 1)]
    return all(free) if both else any(free)


# ---- Alignment error rate


@dataclass
class Counts:
    found: int = 0
    sure: int = 0
    found_sure: int = 0
    found_possible: int = 0

    def row(self) -> str:
        precision, recall = self.found_possible / max(1, self.found), self.found_sure / self.sure
        aer = 1 - (self.found_sure + self.found_possible) / (self.found + self.sure)
        return f"{100 * precision:.1f} % | {100 * recall:.1f} % | {100 * aer:.1f} %"


def error_rate(found: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links]) -> Counts:
    counts = Counts()
    for a, s, p in zip(found, sure, possible, strict=True):
        counts.found += len(a)
        counts.sure += len(s)
        counts.found_sure += len(a & s)
        counts.found_possible += len(a & (s | p))
    return counts


def parts(pairs: Sequence[Pair]) -> Iterator[tuple[str, list[Links]]]:
    """The name of each part of the pairs, and all links that it may have."""
    words = [(source.split(), target.split()) for source, target in pairs]
    every = [{(i, j) for i in range(len(source)) for j in range(len(target))} for source, target in words]
    for low, high in pairwise(LENGTHS):
        name = f"to {high} words" if high < LENGTHS[-1] else f"from {low + 1} words"
        yield (
            name,
            [one if low < max(map(len, pair)) <= high else set() for pair, one in zip(words, every, strict=True)],
        )
    of_words = [
        {(i, j) for i, j in one if n_letters(source[i]) and n_letters(target[j])}
        for (source, target), one in zip(words, every, strict=True)
    ]
    yield "words", of_words
    yield "punctuation", [one - some for one, some in zip(every, of_words, strict=True)]


def read_gold(path: Path, first: int) -> tuple[list[Links], list[Links]]:
    """The sure links of each line, and the possible ones."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    both = [
        [{(int(i) - first, int(j) - first) for i, m, j in LINK.findall(line) if m == kind} for line in lines]
        for kind in "-p"
    ]
    return both[0], both[1]


# ---- Tags


def placed_with(align: Align, pairs: Sequence[Pair], rows: Sequence[Row]) -> list[str]:
    return placed_by(rows, align(pairs))


def read_rows(path: Path) -> list[Row]:
    """The kind, the source and the translation of each line, with their tags."""
    cells = (line.split("\t") for line in path.read_text(encoding="utf-8").split("\n")[:-1])
    return [(kind, source, target) for kind, source, target in cells]


def placed_by(rows: Sequence[Row], alignments: Sequence[Links | None]) -> list[str]:
    """The translations with their tags, as they are placed by each alignment."""
    pairs = [(spaced(tags_of(source).text), spaced(tags_of(target).text)) for _, source, target in rows]
    known = {source: (target, links) for (source, target), links in zip(pairs, alignments, strict=True)}

    def translate(texts: Sequence[str]) -> list[Translated]:
        found = []
        for text in texts:
            target, links = known.get(text, ("", None))
            found.append(Translated([Candidate(target, 0.0)], alignment=None if links is None else sorted(links)))
        return found

    documents = translate_documents([f"<p>{source}</p>" for _, source, _ in rows], "html", translate)
    return [one.text.removeprefix("<p>").removesuffix("</p>") for one in documents]


def by_bergamot(name: str) -> Place:
    """The tags of given translations by the rules of Bergamot, with the attention of a model."""
    file = read_model(locate_model(name, "runs"))
    model, tokenizers = file.build(CPU), file.tokenizers

    def place(rows: Sequence[Row]) -> list[str]:
        sources = [stretches_of(source) for _, source, _ in rows]
        pairs = [(text, tags_of(target).text) for (text, _), (_, _, target) in zip(sources, rows, strict=True)]
        ids = list(zip(*tokenizers.encode_scored(pairs, ()), strict=True))
        forced = force_decode(model, ids, tokenizers, device=CPU, batch_tokens=4096, with_attention=True)
        found = []
        for (_, stretches), pair, (source_ids, target_ids), scores in zip(sources, pairs, ids, forced, strict=True):
            source = surfaces(tokenizers.source, source_ids, pair[0])
            target = surfaces(tokenizers.target, target_ids, pair[1])
            assert scores.attention_TS is not None
            weights_TS = scores.attention_TS[: len(target), : len(source)].double().numpy()
            found.append(placed_by_bergamot(stretches, SoftAlignment(source, target, weights_TS)))
        return found

    return place


def surfaces(tokenizer: Tokenizer, ids: Sequence[int], text: str) -> list[str]:
    """The text of each piece, with the white space before it."""
    pieces = [piece.replace(SPACE, " ") for piece in tokenizer.pieces(tokenizer.text_ids(ids))]
    pieces[0] = pieces[0].removeprefix(" ")
    if spaced("".join(pieces)) != spaced(text):
        sys.exit(f"{text}: the pieces of the model are {''.join(pieces)}. Leave the line out")
    return pieces


def score(rows: Sequence[Row], placed: Sequence[str]) -> tuple[Counter[str], Counter[str], list[int]]:
    """How many tags of each kind there are, how many are right, and which rows have an error."""
    total, right, wrong = Counter[str](), Counter[str](), []
    for n, ((kind, _, target), found) in enumerate(zip(rows, placed, strict=True)):
        gold, own = tags_of(target).spans, tags_of(found).spans
        n_right = sum(own.get(tag) == span for tag, span in gold.items())
        total[kind] += len(gold)
        right[kind] += n_right
        wrong += [n] if n_right < len(gold) else []
    return total, right, wrong


# ---- Translations of a model's own


def own_translations(path: str, rows: Sequence[Row]) -> Iterator[tuple[str, list[str]]]:
    """The translations with tags, in each way."""
    translator = api.load(path, engine="torch", device="cpu")
    trees = [tree_of(source) for _, source, _ in rows]
    texts = sorted(set[str]().union(*map(fragments, trees)))
    found = {text: one.text for text, one in zip(texts, translator.translate(texts), strict=True)}
    whole = [(kind, source, found[tags_of(source).text.strip()]) for kind, source, _ in rows]
    pairs = [(spaced(tags_of(source).text), spaced(target)) for _, source, target in whole]
    yield "whole, placed by tfm", placed_by(whole, of_model(path)(pairs))
    yield "whole, placed by Bergamot's rules", by_bergamot(path)(whole)
    yield (
        "whole where the tags' own translations are found in it, else tag by tag",
        [placed_by_search(tree, found) for tree in trees],
    )
    yield "tag by tag", [tag_by_tag(tree, found) for tree in trees]


def same_within(target: str, found: str) -> int:
    """How many pairs of tags are around the same letters, wherever they are."""
    return sum(
        letters_within(target, tag) == letters_within(found, tag)
        for tag, (start, end) in tags_of(target).spans.items()
        if end > start
    )


def letters_within(marked: str, tag: tuple[str, int]) -> str | None:
    placed = tags_of(marked)
    letters = "".join(filter(str.isalnum, placed.text)).lower()
    return letters[slice(*placed.spans[tag])] if tag in placed.spans else None


# ---- Command line


def aligners(arguments: argparse.Namespace, text: Sequence[Pair]) -> Iterator[tuple[str, Align]]:
    yield "tfm align", of_tfm(text)
    if arguments.eflomal:
        yield "eflomal", of_program(text, of_eflomal(arguments.eflomal))
    if arguments.fast_align:
        yield "fast_align", of_program(text, of_fast_align(arguments.fast_align))
    for name, path in models(arguments):
        yield name, of_model(path)


def models(arguments: argparse.Namespace) -> list[tuple[str, str]]:
    return [(name, path) for name, _, path in (one.partition("=") for one in arguments.model)]


def measure_aer(arguments: argparse.Namespace) -> None:
    lines = Path(arguments.pairs).read_text(encoding="utf-8").split("\n")[:-1]
    pairs = [(source.strip(), target.strip()) for source, _, target in (line.partition("|||") for line in lines)]
    sure, possible = read_gold(Path(arguments.gold), 0 if arguments.from_0 else 1)
    text = list(each_pair(*map(Path, arguments.text))) if arguments.text else []
    print("| aligner | precision | recall | AER | links | seconds |", "|---|---:|---:|---:|---:|---:|", sep="\n")
    for name, align in aligners(arguments, text):
        start = time.perf_counter()
        found = align(pairs)
        counts = error_rate(found, sure, possible)
        print(f"| {name} | {counts.row()} | {counts.found:,} | {time.perf_counter() - start:.0f} |", flush=True)
        for part, links in parts(pairs) if arguments.parts else ():
            of_part = [[one & other for one, other in zip(x, links, strict=True)] for x in (found, sure, possible)]
            counts = error_rate(*of_part)
            print(f"| {name}, {part} | {counts.row()} | {counts.found:,} | |", flush=True)


def measure_tags(arguments: argparse.Namespace) -> None:
    rows = read_rows(Path(arguments.tags))
    pairs = [(spaced(tags_of(source).text), spaced(tags_of(target).text)) for _, source, target in rows]
    text = list(each_pair(*map(Path, arguments.text))) if arguments.text else []
    kinds = list(dict.fromkeys(kind for kind, _, _ in rows))
    print(f"| tags by | all | texts | {' | '.join(kinds)} |", "|---" + "|---:" * (len(kinds) + 2) + "|", sep="\n")
    every: list[tuple[str, Place]] = [("position", lambda rows: placed_by(rows, [None] * len(rows)))]
    every += [(name, partial(placed_with, align, pairs)) for name, align in aligners(arguments, text)]
    every += [(f"{name}, Bergamot's rules", by_bergamot(path)) for name, path in models(arguments)]
    for name, place in every:
        placed = place(rows)
        total, right, wrong = score(rows, placed)
        share = 100 * right.total() / total.total()
        cells = [f"{right[kind]} of {total[kind]}" for kind in kinds]
        print(f"| {name} | {share:.1f} % | {len(rows) - len(wrong)} of {len(rows)} | {' | '.join(cells)} |", flush=True)
        if name == arguments.errors:
            for n in wrong:
                print(*rows[n], placed[n], "", sep="\n", file=sys.stderr)


def measure_own(arguments: argparse.Namespace) -> None:
    rows = read_rows(Path(arguments.tags))
    print("| model | way | BLEU | chrF | around the same letters |", "|---|---|---:|---:|---:|", sep="\n")
    for name, path in models(arguments):
        for way, found in own_translations(path, rows):
            print(f"| {name} | {way} | {measured_row(rows, found)} |", flush=True)


def measured_row(rows: Sequence[Row], found: Sequence[str]) -> str:
    """BLEU and chrF of translations without their tags, and how many pairs of tags are around the same letters."""
    references = [[spaced(tags_of(target).text) for _, _, target in rows]]
    texts = [spaced(tags_of(one).text) for one in found]
    scores = " | ".join(f"{one(texts, references).value:.1f}" for one in (metrics.bleu, metrics.chrf))
    n_pairs = sum(end > start for _, _, target in rows for start, end in tags_of(target).spans.values())
    n = sum(same_within(target, one) for (_, _, target), one in zip(rows, found, strict=True))
    return f"{scores} | {n} of {n_pairs}"


def write_links(arguments: argparse.Namespace) -> None:
    pairs = list(each_pair(Path(arguments.source), Path(arguments.target)))
    for links in of_program([], of_eflomal(arguments.eflomal))(pairs):
        sys.stdout.write(link_line(sorted(links)))


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    aer, tags, own, links = map(commands.add_parser, ("aer", "tags", "own", "links"))
    aer.add_argument("pairs")
    aer.add_argument("gold")
    aer.add_argument("--from-0", action="store_true")
    aer.add_argument("--parts", action="store_true")
    tags.add_argument("tags")
    tags.add_argument("--errors", help="print the errors of this row")
    own.add_argument("tags")
    own.add_argument("--model", action="append", required=True, metavar="NAME=PATH")
    links.add_argument("source")
    links.add_argument("target")
    links.add_argument("--eflomal", required=True)
    for command in (aer, tags):
        command.add_argument("--text", nargs=2, help="source and translation that the aligners are estimated on")
        command.add_argument("--model", action="append", default=[], metavar="NAME=PATH")
        command.add_argument("--eflomal")
        command.add_argument("--fast-align")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    arguments = parsed(words)
    {"aer": measure_aer, "tags": measure_tags, "own": measure_own, "links": write_links}[arguments.command](arguments)


if __name__ == "__main__":
    main()
