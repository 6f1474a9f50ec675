"""Tags that a model writes, beside tags that are placed by word alignment: a table of benchmarks/alignment.md.

python scripts/bench_written_tags.py text train.en train.fr train.links tagged [--glued]
python scripts/bench_written_tags.py measure TAGS --model control=runs/control --model tagged=runs/tagged [--glued]

`text` writes tagged.en and tagged.fr: a half of the pairs, with one to three numbered tags around phrases that the
links (data.alignments) make translations of each other, or a tag alone before two linked words. A space is between a
tag and its words, as data.inline_tags=keep has it; with --glued none is.

`measure` translates the sources of TAGS (bench_alignment.py) without tags, which are then placed by the attention of
the model, and with numbered tags, which the model writes. Written tags count if each is there once and pairs are
nested; else there are none, or they are placed. BLEU and chrF are those without tags, and a pair of tags is counted if
the letters in it are the reference's.
"""

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from bench_alignment import Row, measured_row, of_model, placed_by, read_rows
from tag_placement import ALONE, TAG, spaced, tags_of

from transformer_cli import api
from transformer_cli.data.numbered_tags import NUMBERED_TAG, without_tags
from transformer_cli.data.numbered_tags import spaced as apart

Links = Sequence[tuple[int, int]]
Span = tuple[int, int]  # first and last word
FIRST, LAST = re.compile(r"[\w<]"), re.compile(r"[\w>](?=[^\w>]*\Z)")  # of a word, or of a tag around it
SHARE, SHARE_ALONE, TRIED = 0.5, 0.15, 8
N_TAGS = (1, 1, 1, 2, 2, 3)


# ---- Text with tags


def tagged_pair(source: Sequence[str], target: Sequence[str], links: Links, random: Random) -> tuple[str, str] | None:
    """The pair with tags at translations of each other; None if none are found."""
    if random.random() < SHARE_ALONE:
        places = [
            link for link in links if link[0] and all((i == link[0]) == (j == link[1]) for i, j in links)
        ]  # words that are linked with each other alone
        if not places:
            return None
        i, j = random.choice(places)
        return with_tags(source, [], i), with_tags(target, [], j)
    found: list[tuple[Span, Span]] = []
    wanted = random.choice(N_TAGS)
    for _ in range(TRIED):
        phrase = linked_phrase(source, target, links, random)
        if phrase is not None and all(are_nested_alike(phrase, other) for other in found):
            found.append(phrase)
        if len(found) == wanted:
            break
    found.sort(key=lambda phrase: (phrase[0][0], -phrase[0][1]))
    return (
        (with_tags(source, [one for one, _ in found]), with_tags(target, [two for _, two in found])) if found else None
    )


def linked_phrase(
    source: Sequence[str], target: Sequence[str], links: Links, random: Random
) -> tuple[Span, Span] | None:
    """A phrase of up to four words and its translation, if that has no link to others; the ends of both are linked."""
    first = random.randrange(len(source))
    last = min(first + random.choice((0, 0, 0, 1, 1, 2, 3)), len(source) - 1)
    places = [j for i, j in links if first <= i <= last]
    if not places or {first, last} - {i for i, _ in links}:
        return None
    span = min(places), max(places)
    if any(span[0] <= j <= span[1] and not first <= i <= last for i, j in links):
        return None
    edges = (source[first], source[last], target[span[0]], target[span[1]])
    return ((first, last), span) if all(any(map(str.isalnum, word)) for word in edges) else None


def are_nested_alike(one: tuple[Span, Span], other: tuple[Span, Span]) -> bool:
    """Whether two phrases are apart on both sides, or one is within the other on both."""

    def relation(a: Span, b: Span) -> str:
        if a[1] < b[0] or b[1] < a[0]:
            return "apart"
        if a == b:
            return "same"
        return "in" if b[0] <= a[0] and a[1] <= b[1] else "around" if a[0] <= b[0] and b[1] <= a[1] else "crossed"

    relations = {relation(a, b) for a, b in zip(one, other, strict=True)}
    return relations in ({"apart"}, {"in"}, {"around"})


def with_tags(words: Sequence[str], spans: Sequence[Span], alone: int | None = None) -> str:
    """The words with tags 1, 2, … around `spans`, outer ones first, without the punctuation at their edges."""
    found = list(words)
    if alone is not None:
        found[alone] = f"<1/> {found[alone]}"
    for number, (first, last) in reversed(list(enumerate(spans, 1))):  # inner ones first
        found[first] = FIRST.sub(lambda match, tag=f"<{number}>": tag + match[0], found[first], count=1)
        found[last] = LAST.sub(lambda match, tag=f"</{number}>": match[0] + tag, found[last], count=1)
    return " ".join(found)


def write_text(arguments: argparse.Namespace) -> None:
    sources, targets, links = (
        Path(name).read_text(encoding="utf-8").split("\n")[:-1]
        for name in (arguments.source, arguments.target, arguments.links)
    )
    random = Random(5)
    pairs = list(each_tagged(sources, targets, links, random))
    for side, name in enumerate((arguments.source, arguments.target)):
        lines = [pair[side] if arguments.glued else apart(pair[side]) for pair in pairs]
        Path(arguments.output + Path(name).suffix).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"{len(pairs):,} pairs with tags")


def each_tagged(
    sources: Sequence[str], targets: Sequence[str], links: Sequence[str], random: Random
) -> Iterator[tuple[str, str]]:
    for source, target, line in zip(sources, targets, links, strict=True):
        its_links = [(int(i), int(j)) for i, j in (link.split("-") for link in line.split())]
        if its_links and random.random() < SHARE:
            pair = tagged_pair(source.split(), target.split(), its_links, random)
            if pair is not None:
                yield pair


# ---- What a model makes of it


def numbered(marked: str) -> tuple[str, dict[str, str]]:
    """A text with numbers for its tags, in their order, and the tag of each number's."""
    tags: dict[str, str] = {}
    open_tags: list[int] = []
    n = 0

    def number(match: re.Match[str]) -> str:
        nonlocal n
        if match[1]:
            found = f"</{open_tags.pop()}>"
        else:
            n += 1
            found = f"<{n}/>" if match[2] == ALONE else f"<{n}>"
            open_tags.extend([] if match[2] == ALONE else [n])
        tags[found] = match[0]
        return found

    return TAG.sub(number, marked), tags


def named(text: str, tags: dict[str, str]) -> str | None:
    """The text with the tags of its numbers; None if they are not there once each, or not nested."""
    found = NUMBERED_TAG.findall(text)
    open_tags: list[str] = []
    for tag in found:
        if tag.startswith("</"):
            if not open_tags or open_tags.pop() != tag.replace("/", ""):
                return None
        elif not tag.endswith("/>"):
            open_tags.append(tag)
    return NUMBERED_TAG.sub(lambda match: tags[match[0]], text) if sorted(found) == sorted(tags) else None


def ways(path: str, rows: Sequence[Row], *, glued: bool) -> Iterator[tuple[str, list[str]]]:
    """The translations of the rows with their tags, in each way."""
    translator = api.load(path, engine="torch", device="cpu")
    plain = [one.text for one in translator.translate([tags_of(source).text.strip() for _, source, _ in rows])]
    whole = [(kind, source, text) for (kind, source, _), text in zip(rows, plain, strict=True)]
    pairs = [(spaced(tags_of(source).text), spaced(text)) for _, source, text in whole]
    placed = placed_by(whole, of_model(path)(pairs))
    yield "placed by attention", placed
    texts, tags = zip(*(numbered(source) for _, source, _ in rows), strict=True)
    written = [one.text for one in translator.translate(texts if glued else list(map(apart, texts)))]
    found = [named(text, its_tags) for text, its_tags in zip(written, tags, strict=True)]
    n = sum(one is not None for one in found)
    bare = [without_tags(text) for text in written]
    yield (
        f"written, as they should be in {n} of {len(rows)}",
        [two if one is None else one for one, two in zip(found, bare, strict=True)],
    )
    yield "written, else placed", [two if one is None else one for one, two in zip(found, placed, strict=True)]


def measure(arguments: argparse.Namespace) -> None:
    rows = read_rows(Path(arguments.tags))
    print("| model | tags | BLEU | chrF | around the same letters |", "|---|---|---:|---:|---:|", sep="\n")
    for name, _, path in (one.partition("=") for one in arguments.model):
        for way, found in ways(path, rows, glued=arguments.glued):
            print(f"| {name} | {way} | {measured_row(rows, found)} |", flush=True)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    text, measured = map(commands.add_parser, ("text", "measure"))
    for name in ("source", "target", "links", "output"):
        text.add_argument(name)
    measured.add_argument("tags")
    measured.add_argument("--model", action="append", required=True, metavar="NAME=PATH")
    for command in (text, measured):
        command.add_argument("--glued", action="store_true")
    arguments = parser.parse_args(words)
    {"text": write_text, "measure": measure}[arguments.command](arguments)


if __name__ == "__main__":
    main()
