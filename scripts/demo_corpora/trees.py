"""`demo_trees`: English sentences of a small grammar with their trees, so that a first parser needs no download.

What a phrase belongs to is told by its words alone: one eats soup *with a spoon* and soup *with carrots*, a nurse reads
*in the garden* and knows a nurse *from the village*. It is a demonstration: real sentences are far harder.
"""

from collections.abc import Callable
from random import Random

from transformer_cli.addons.parsing.trees import Constituent, TaggedWord, linearize

Pair = tuple[str, str]  # the sentence and the linear form of its tree
SPLIT_SIZES = {"train": 8000, "dev": 300, "test": 500}


def _listed(text: str) -> list[str]:
    return text.split()


PEOPLE = _listed("nurse farmer teacher painter baker sailor girl boy widow judge tailor guard pilot poet cook miner")
ANIMALS = _listed("cat dog horse goat owl fox donkey hen")
NAMES = _listed("Anna Peter Maria Tom Clara Hugo Emma Otto")
SIZES = _listed("old young tall small tired clever famous quiet")
QUALITIES = _listed("red heavy cheap broken wooden strange new dusty")
PLACES = _listed("garden kitchen village forest harbour market valley station")
ORIGINS = _listed("village island city north mountains coast")
# Verb → what it is done to, what it is done with, and what such a thing has.
DEEDS = {
    "ate": (_listed("soup cake stew salad"), _listed("spoon fork"), _listed("carrots nuts raisins herbs")),
    "cut": (_listed("bread rope cloth cake"), _listed("knife saw"), _listed("seeds knots stripes cream")),
    "painted": (_listed("fence door boat wall"), _listed("brush roller"), _listed("holes cracks hinges sails")),
    "opened": (_listed("chest gate letter drawer"), _listed("key hammer"), _listed("stamps coins nails letters")),
    "watched": (
        _listed("ship cat dancer parade"),
        _listed("telescope camera"),
        _listed("flags whiskers drums scars"),
    ),
    "carried": (_listed("basket sack bench piano"), _listed("cart rope"), _listed("apples handles wheels onions")),
}
KNOWN = _listed("knew met helped visited followed greeted")
SAYINGS = _listed("said knew thought heard claimed")
RESTS = _listed("slept waited sang laughed sat")
PRONOUNS = _listed("she he they we")
SUBORDINATES = _listed("because when while although")


def _leaf(tag: str, text: str) -> TaggedWord:
    return TaggedWord(tag, text)


def _phrase(label: str, *parts: Constituent | TaggedWord) -> Constituent:
    return Constituent(label, parts)


class Speaker:
    """Draws sentences; `depth` bounds how many clauses stand one within another."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw

    def sentence(self) -> Constituent:
        return self._clause(depth=2, front=True, stop=True)

    def _chance(self, share: float) -> bool:
        return self._draw.random() < share

    def _clause(self, *, depth: int, front: bool = False, stop: bool = False) -> Constituent:
        parts: list[Constituent | TaggedWord] = []
        if front and self._chance(0.15):
            parts += [self._place(), _leaf(",", ",")]
        elif front and depth > 1 and self._chance(0.15):
            parts += [self._subordinate(depth - 1), _leaf(",", ",")]
        parts += [self._subject(depth), self._verbs(depth)]
        return _phrase("S", *parts, *([_leaf(".", ".")] if stop else []))

    def _subordinate(self, depth: int) -> Constituent:
        return _phrase("SBAR", _leaf("IN", self._draw.choice(SUBORDINATES)), self._clause(depth=depth))

    def _subject(self, depth: int) -> Constituent:
        if self._chance(0.15):
            return _phrase("NP", _leaf("PRP", self._draw.choice(PRONOUNS)))
        if self._chance(0.15):
            return _phrase("NP", _leaf("NNP", self._draw.choice(NAMES)))
        if self._chance(0.12):
            return _phrase("NP", self._person(depth), _leaf("CC", "and"), self._person(0))
        return self._person(depth)

    def _person(self, depth: int) -> Constituent:
        noun = self._noun(self._draw.choice([*PEOPLE, *PEOPLE, *ANIMALS]), SIZES)
        if depth and self._chance(0.15):
            return _phrase("NP", noun, self._from())
        if depth > 1 and self._chance(0.15):
            who = _phrase("WHNP", _leaf("WP", "who"))
            return _phrase("NP", noun, _phrase("SBAR", who, _phrase("S", self._verbs(depth - 1))))
        return noun

    def _noun(self, noun: str, adjectives: list[str]) -> Constituent:
        described = [_leaf("JJ", self._draw.choice(adjectives))] if self._chance(0.3) else []
        return _phrase("NP", _leaf("DT", self._draw.choice(["the", "a"])), *described, _leaf("NN", noun))

    def _from(self) -> Constituent:
        return _phrase("PP", _leaf("IN", "from"), self._plain(ORIGINS))

    def _place(self) -> Constituent:
        return _phrase("PP", _leaf("IN", self._draw.choice(["in", "behind", "near"])), self._plain(PLACES))

    def _plain(self, nouns: list[str]) -> Constituent:
        return _phrase("NP", _leaf("DT", "the"), _leaf("NN", self._draw.choice(nouns)))

    def _verbs(self, depth: int) -> Constituent:
        first = self._verb(depth)
        if depth and self._chance(0.12):
            return _phrase("VP", first, _leaf("CC", "and"), self._verb(0))
        return first

    def _verb(self, depth: int) -> Constituent:
        kinds: list[Callable[[int], list[Constituent | TaggedWord]]]
        kinds = [self._deed, self._deed, self._rest, self._meeting]
        parts = self._draw.choice([*kinds, self._saying] if depth > 1 else kinds)(depth)
        if isinstance(parts[-1], Constituent) and parts[-1].label == "SBAR":
            return _phrase("VP", *parts)
        if self._chance(0.25):
            parts.append(self._place())
        if depth > 1 and self._chance(0.12):
            parts.append(self._subordinate(depth - 1))
        return _phrase("VP", *parts)

    def _deed(self, depth: int) -> list[Constituent | TaggedWord]:
        verb = self._draw.choice(list(DEEDS))
        things, tools, contents = DEEDS[verb]
        thing = self._noun(self._draw.choice(things), QUALITIES)
        if self._chance(0.35):
            has = _phrase("PP", _leaf("IN", "with"), _phrase("NP", _leaf("NNS", self._draw.choice(contents))))
            thing = _phrase("NP", thing, has)
        parts: list[Constituent | TaggedWord] = [_leaf("VBD", verb), thing]
        if self._chance(0.35):
            tool = _phrase("NP", _leaf("DT", "a"), _leaf("NN", self._draw.choice(tools)))
            parts.append(_phrase("PP", _leaf("IN", "with"), tool))
        return parts

    def _rest(self, depth: int) -> list[Constituent | TaggedWord]:
        return [_leaf("VBD", self._draw.choice(RESTS))]

    def _meeting(self, depth: int) -> list[Constituent | TaggedWord]:
        return [_leaf("VBD", self._draw.choice(KNOWN)), self._person(min(depth, 1))]

    def _saying(self, depth: int) -> list[Constituent | TaggedWord]:
        that = _phrase("SBAR", _leaf("IN", "that"), self._clause(depth=depth - 1))
        return [_leaf("VBD", self._draw.choice(SAYINGS)), that]


def generate(split: str) -> list[Pair]:
    """The pairs of a split; no sentence occurs twice, in it or in another."""
    speaker, seen = Speaker(Random("demo_trees")), set[str]()
    found: dict[str, list[Pair]] = {}
    for name in ("test", "dev", "train"):
        pairs = found.setdefault(name, [])
        while len(pairs) < SPLIT_SIZES[name]:
            tree = speaker.sentence()
            text = " ".join(word.text for word in tree.words())
            if text not in seen and 3 <= len(text.split()) <= 30:
                seen.add(text)
                pairs.append((text, linearize(tree)))
    return found[split]
