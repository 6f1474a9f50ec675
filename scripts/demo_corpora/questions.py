"""`demo_questions`: invented passages of the grammar of `demo_en_fr`, and questions whose answers stand in them.

A passage tells who did what and who stayed where, in five sentences. Its people, animals and things differ, but verbs
are shared, so that neither the question alone nor the passage alone says the answer: each passage has every kind of
answer several times, and each question asks for the one that goes with the words that it names. It is a demonstration:
real questions are worded otherwise than the passage, and scores on these say nothing of them.
"""

import json
from dataclasses import dataclass
from random import Random

from scripts.demo_corpora.en_fr import (
    ADJECTIVES,
    ANIMAL,
    DETERMINERS,
    GOODS,
    NOUNS,
    PERSON,
    POSTURES,
    VERBS,
    Kind,
    Noun,
    noun_phrase,
)

Pair = tuple[str, str]  # question<TAB>passage, and the JSON of the answers
SPLIT_PASSAGES = {"train": 3000, "dev": 60, "test": 120}
QUESTIONS = 4  # of a passage
TIMES = ("yesterday", "this morning", "last week", "at noon", "in the evening", "before breakfast")
PLACES = ("in", "on", "under", "behind")
LIVING = frozenset({PERSON, ANIMAL})


@dataclass(frozen=True)
class Fact:
    """A sentence, and questions about it, each with its answer."""

    sentence: str
    questions: list[Pair]


class Narrator:
    """Draws the facts of one passage, in which nothing is mentioned twice."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.mentioned: set[str] = set()

    def mention(self, kinds: frozenset[Kind]) -> str:
        """Something that was not mentioned yet."""
        while True:
            noun: Noun = self.draw.choice([noun for noun in NOUNS if noun.kind in kinds])
            adjectives = [adjective for adjective in ADJECTIVES if noun.kind in adjective.kinds]
            determiner = self.draw.choice(("the", "the", "a") if noun.kind is PERSON else tuple(DETERMINERS))
            adjective = self.draw.choice(adjectives) if self.draw.random() < 0.5 else None
            text = noun_phrase(determiner, noun, adjective=adjective).en
            without = text.partition(" ")[2]  # the determiner alone tells nothing apart
            if without not in self.mentioned:
                self.mentioned.add(without)
                return text

    def action(self, verb_en: str) -> Fact:
        [verb] = (one for one in VERBS if one.en == verb_en)
        who, what = self.mention(verb.subjects & LIVING), self.mention(verb.objects)
        when = self.draw.choice(TIMES) if self.draw.random() < 0.5 else ""
        questions = [(f"Who {verb.en_past} {what}?", who), (f"What did {who} {verb.en}?", what)]
        if when:
            questions.append((f"When did {who} {verb.en} {what}?", when))
        return Fact(f"{who} {verb.en_past} {what} {when}".strip(), questions)

    def stay(self, posture_en: str) -> Fact:
        [posture] = (one for one in POSTURES if one.en == posture_en)
        who, where = self.mention(LIVING), f"{self.draw.choice(PLACES)} {self.mention(GOODS)}"
        return Fact(
            f"{who} {posture.en_past} {where}",
            [(f"Where did {who} {posture.en}?", where), (f"Who {posture.en_past} {where}?", who)],
        )


def passage(draw: Random) -> list[Pair]:
    """The pairs of one passage: three actions of two verbs, and two stays, in an order that varies."""
    narrator = Narrator(draw)
    first, second = draw.sample([verb.en for verb in VERBS], 2)
    where = draw.sample([posture.en for posture in POSTURES], 2)
    facts = [narrator.action(verb) for verb in (first, first, second)] + [narrator.stay(one) for one in where]
    draw.shuffle(facts)
    sentences = [f"{fact.sentence[0].upper()}{fact.sentence[1:]}." for fact in facts]
    text = " ".join(sentences)
    starts = [sum(len(one) + 1 for one in sentences[:n]) for n in range(len(sentences))]
    asked = [(start, fact, *one) for start, fact in zip(starts, facts, strict=True) for one in fact.questions]
    pairs = []
    for start, fact, question, answer in draw.sample(asked, QUESTIONS):
        at = start + (0 if fact.sentence.startswith(answer) else fact.sentence.index(f" {answer}") + 1)
        pairs.append((f"{question}\t{text}", json.dumps([[at, text[at : at + len(answer)]]])))
    return pairs


def generate(split: str) -> list[Pair]:
    """The pairs of a split, always the same; no passage is in two splits."""
    seen: set[str] = set()
    for name, n_passages in sorted(SPLIT_PASSAGES.items(), key=lambda item: item[1]):  # small ones first: drawn whole
        draw, pairs, n = Random(f"demo_questions {name}"), list[Pair](), 0
        while n < n_passages:
            found = passage(draw)
            text = found[0][0].partition("\t")[2]
            if text not in seen:
                seen.add(text)
                pairs += found
                n += 1
        if name == split:
            return pairs
    raise AssertionError(split)
