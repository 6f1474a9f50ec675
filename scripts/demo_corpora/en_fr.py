"""`demo_en_fr`: English-French sentence pairs from a small grammar, so that a first run needs no download.

Word-by-word lookup cannot translate them: adjectives follow their noun and agree with it, *not* becomes *ne ... pas*,
`the milk drank the cat` is as likely as the reverse, and *it* is *il* or *elle* after whatever it refers to: who does
not cross a street is too tired, and the street too wide.
One English sentence has exactly one French one, so a model of the whole grammar scores near 100 BLEU. The other way
round *son* is *his* or *her*, which nothing in the French tells, and costs a few points.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from random import Random
from typing import Literal

Pair = tuple[str, str]  # the same words in English and in French
Gender = Literal["m", "f"]
Tense = Literal["past", "present"]  # drank: passé composé, was: imparfait; drinks, is: présent


class Kind(Enum):
    """What a noun names; it decides which verbs and adjectives make sense with it."""

    PERSON, ANIMAL, FOOD, DRINK, SEAT, OBJECT, PLACE = range(7)


@dataclass(frozen=True)
class Noun:
    """A noun; a mass noun (*milk*) has no plural, written as empty strings."""

    en: str
    en_plural: str
    fr: str
    fr_plural: str
    gender: Gender
    kind: Kind


@dataclass(frozen=True)
class Adjective:
    """An adjective, the kinds of noun it can describe, and whether *very* or *too* may come before it."""

    en: str
    masculine: str
    feminine: str
    kinds: frozenset[Kind]
    gradable: bool = True


@dataclass(frozen=True)
class Verb:
    """A transitive verb: who can do it to what, and its forms."""

    en: str
    en_past: str
    en_third: str
    fr_present: tuple[str, str, str, str]  # je, il, nous, ils
    participle: str
    subjects: frozenset[Kind]
    objects: frozenset[Kind]

    @property
    def is_contracted(self) -> bool:
        """Whether English writes *didn't* with it, and not *did not*: with verbs of going, so that a French sentence
        has one form in English, and a model knows both.
        """
        return self.objects == PLACES


@dataclass(frozen=True)
class Posture:
    """A verb of being somewhere, used in the past; with *être* its participle agrees with the subject."""

    en: str
    en_past: str
    auxiliary: tuple[str, str]  # il, ils
    participle: str
    agrees: bool


# ---- The lexicon. No English form stands for two French words, and no word starts with an aspirated h (le héros).

PERSON, ANIMAL, FOOD, DRINK, SEAT, OBJECT, PLACE = Kind
ALIVE = frozenset({PERSON, ANIMAL})
PEOPLE = frozenset({PERSON})
MEALS = frozenset({FOOD, DRINK})
GOODS = frozenset({SEAT, OBJECT})
PLACES = frozenset({PLACE})


def nouns(kind: Kind, gender: Gender, rows: str) -> list[Noun]:
    """Nouns of one kind and gender, each written "singular plural singulier pluriel", or "milk lait" for a mass."""
    return [_noun(row.split(), gender, kind) for row in rows.split(", ")]


def _noun(words: list[str], gender: Gender, kind: Kind) -> Noun:
    en, en_plural, fr, fr_plural = words if len(words) == 4 else (words[0], "", words[1], "")
    return Noun(en, en_plural, fr, fr_plural, gender, kind)


NOUNS = (
    *nouns(PERSON, "m", "man men homme hommes, boy boys garçon garçons, king kings roi rois"),
    *nouns(PERSON, "m", "uncle uncles oncle oncles"),
    *nouns(PERSON, "f", "woman women femme femmes, girl girls fille filles, queen queens reine reines"),
    *nouns(PERSON, "f", "actress actresses actrice actrices"),
    *nouns(ANIMAL, "m", "cat cats chat chats, dog dogs chien chiens, horse horses cheval chevaux"),
    *nouns(ANIMAL, "m", "bird birds oiseau oiseaux, animal animals animal animaux"),
    *nouns(ANIMAL, "f", "mouse mice souris souris, frog frogs grenouille grenouilles, bee bees abeille abeilles"),
    *nouns(ANIMAL, "f", "turtle turtles tortue tortues"),
    *nouns(FOOD, "m", "cake cakes gâteau gâteaux, egg eggs œuf œufs, cheese fromage"),
    *nouns(FOOD, "f", "apple apples pomme pommes, orange oranges orange oranges, soup soupe"),
    *nouns(DRINK, "m", "milk lait, coffee café, wine vin"),
    *nouns(DRINK, "f", "water eau, beer bière, lemonade limonade"),
    *nouns(SEAT, "m", "armchair armchairs fauteuil fauteuils, bed beds lit lits, boat boats bateau bateaux"),
    *nouns(SEAT, "f", "chair chairs chaise chaises, car cars voiture voitures, swing swings balançoire balançoires"),
    *nouns(OBJECT, "m", "book books livre livres, mirror mirrors miroir miroirs, bench benches banc bancs"),
    *nouns(OBJECT, "f", "table tables table tables, lamp lamps lampe lampes, wardrobe wardrobes armoire armoires"),
    *nouns(PLACE, "m", "bridge bridges pont ponts, garden gardens jardin jardins, field fields champ champs"),
    *nouns(PLACE, "f", "street streets rue rues, river rivers rivière rivières, forest forests forêt forêts"),
)

ADJECTIVES = (
    Adjective("hungry", "affamé", "affamée", ALIVE, gradable=False),
    Adjective("thirsty", "assoiffé", "assoiffée", ALIVE, gradable=False),
    Adjective("tired", "fatigué", "fatiguée", ALIVE),
    Adjective("happy", "heureux", "heureuse", ALIVE),
    Adjective("furious", "furieux", "furieuse", ALIVE, gradable=False),
    Adjective("sad", "triste", "triste", ALIVE),
    Adjective("lazy", "paresseux", "paresseuse", ALIVE),
    Adjective("elderly", "âgé", "âgée", PEOPLE),
    Adjective("delicious", "délicieux", "délicieuse", MEALS, gradable=False),
    Adjective("cold", "froid", "froide", MEALS),
    Adjective("hot", "chaud", "chaude", MEALS),
    Adjective("fresh", "frais", "fraîche", MEALS),
    Adjective("comfortable", "confortable", "confortable", frozenset({SEAT})),
    Adjective("heavy", "lourd", "lourde", GOODS),
    Adjective("expensive", "cher", "chère", MEALS | GOODS),
    Adjective("broken", "cassé", "cassée", GOODS, gradable=False),
    Adjective("red", "rouge", "rouge", GOODS, gradable=False),
    Adjective("black", "noir", "noire", GOODS | {ANIMAL}, gradable=False),
    Adjective("white", "blanc", "blanche", GOODS | {ANIMAL}, gradable=False),
    Adjective("enormous", "énorme", "énorme", GOODS | {ANIMAL}, gradable=False),
    Adjective("wide", "large", "large", PLACES),
    Adjective("long", "long", "longue", PLACES),
    Adjective("dangerous", "dangereux", "dangereuse", PLACES),
    Adjective("dark", "sombre", "sombre", PLACES),
    Adjective("pretty", "joli", "jolie", GOODS | ALIVE),
    Adjective("strange", "étrange", "étrange", frozenset(Kind)),
)
# Only `demo_en_fr` has it, and COME_HOME: the other corpora draw from ADJECTIVES and POSTURES, and stay what they were.
KIND = Adjective("kind", "gentil", "gentille", PEOPLE)

VERBS = (
    Verb("drink", "drank", "drinks", ("bois", "boit", "buvons", "boivent"), "bu", ALIVE, frozenset({DRINK})),
    Verb("eat", "ate", "eats", ("mange", "mange", "mangeons", "mangent"), "mangé", ALIVE, frozenset({FOOD})),
    Verb("buy", "bought", "buys", ("achète", "achète", "achetons", "achètent"), "acheté", PEOPLE, MEALS | GOODS),
    Verb("sell", "sold", "sells", ("vends", "vend", "vendons", "vendent"), "vendu", PEOPLE, MEALS | GOODS),
    Verb("forget", "forgot", "forgets", ("oublie", "oublie", "oublions", "oublient"), "oublié", ALIVE, MEALS | GOODS),
    Verb("choose", "chose", "chooses", ("choisis", "choisit", "choisissons", "choisissent"), "choisi", ALIVE, GOODS),
    Verb("carry", "carried", "carries", ("porte", "porte", "portons", "portent"), "porté", ALIVE, GOODS),
    Verb("break", "broke", "breaks", ("casse", "casse", "cassons", "cassent"), "cassé", ALIVE, GOODS),
    Verb("wash", "washed", "washes", ("lave", "lave", "lavons", "lavent"), "lavé", ALIVE, GOODS | ALIVE),
    Verb("admire", "admired", "admires", ("admire", "admire", "admirons", "admirent"), "admiré", ALIVE, GOODS | ALIVE),
    Verb("hide", "hid", "hides", ("cache", "cache", "cachons", "cachent"), "caché", ALIVE, MEALS | GOODS),
    Verb("find", "found", "finds", ("trouve", "trouve", "trouvons", "trouvent"), "trouvé", ALIVE, frozenset(Kind)),
    Verb("see", "saw", "sees", ("vois", "voit", "voyons", "voient"), "vu", ALIVE, frozenset(Kind)),
    Verb("hear", "heard", "hears", ("entends", "entend", "entendons", "entendent"), "entendu", ALIVE, ALIVE),
    Verb("follow", "followed", "follows", ("suis", "suit", "suivons", "suivent"), "suivi", ALIVE, ALIVE),
    Verb(
        "cross", "crossed", "crosses", ("traverse", "traverse", "traversons", "traversent"), "traversé", ALIVE, PLACES
    ),
    Verb("leave", "left", "leaves", ("quitte", "quitte", "quittons", "quittent"), "quitté", ALIVE, PLACES),
    Verb("visit", "visited", "visits", ("visite", "visite", "visitons", "visitent"), "visité", ALIVE, PLACES),
)
GOING = tuple(verb for verb in VERBS if verb.objects == PLACES)
OF_PLACES = {"animal", "lazy", *(verb.en for verb in GOING)}
OF_PLACES |= {noun.en for noun in NOUNS if noun.kind is PLACE} | {
    word.en for word in ADJECTIVES if word.kinds == PLACES
}

AVOIR = ("ai", "a", "avons", "ont")  # je, il, nous, ils
TO_BE = {"present": (("is", "est"), ("are", "sont")), "past": (("was", "était"), ("were", "étaient"))}
POSTURES = (
    Posture("sit down", "sat down", ("se est", "se sont"), "assis", agrees=True),
    Posture("fall", "fell", ("est", "sont"), "tombé", agrees=True),
    Posture("stay", "stayed", ("est", "sont"), "resté", agrees=True),
    Posture("sleep", "slept", ("a", "ont"), "dormi", agrees=False),
)
COME_HOME = Posture("come home", "came home", ("est", "sont"), "rentré", agrees=True)

DETERMINERS = {  # masculine, feminine, plural; "a" has its own rules in `noun_phrase`
    "the": ("le", "la", "les"),
    "a": ("un", "une", "des"),
    "my": ("mon", "ma", "mes"),
    "his": ("son", "sa", "ses"),
    "her": ("son", "sa", "ses"),
}
IN, PREPOSITIONS = ("in", "dans"), (("on", "sur"), ("under", "sous"), ("behind", "derrière"))
TIMES = {
    "past": (("yesterday", "hier"), ("this morning", "ce matin")),
    "present": (("today", "aujourd'hui"), ("every day", "tous les jours")),
}
BECAUSE = ("because", "parce que")
LINKS = ((",", ","), BECAUSE, (", but", ", mais"))
VERY, TOO = ("very", "très"), ("too", "trop")


# ---- Phrases. French words are first put side by side (`le eau`, `ne ai pas`); `sentence` then elides them.


@dataclass(frozen=True)
class Mention:
    """Something a sentence speaks of, in both languages, with all that other words agree with."""

    en: str
    fr: str
    kind: Kind | None  # None for "I" and "we": English hides their gender, so no adjective may agree with them
    feminine: bool = False
    plural: bool = False
    person: int = 3


HE, SHE = Mention("he", "il", PERSON), Mention("she", "elle", PERSON, feminine=True)
I, WE = Mention("I", "je", None, person=1), Mention("we", "nous", None, plural=True, person=1)  # noqa: E741


def agree(masculine: str, feminine: str, *, to: Mention) -> str:
    """The form of an adjective or participle that goes with a mention."""
    word = feminine if to.feminine else masculine
    return word + "s" if to.plural and word[-1] not in "sx" else word


def noun_phrase(
    determiner: str, noun: Noun, *, adjective: Adjective | None = None, plural: bool = False, negated: bool = False
) -> Mention:
    """A noun with its determiner; `negated` for the object of a negated verb, where French says *de* for *a*.

    Every adjective follows its noun. French puts a few (`joli`) before it more often, but then also needs
    `bel homme` and `de jolies femmes`: one order keeps the demo about agreement and not about exceptions.
    """
    feminine = noun.gender == "f"
    mention = Mention("", "", noun.kind, feminine=feminine, plural=plural)  # what the adjective agrees with
    en = f"{adjective.en if adjective else ''} {noun.en_plural if plural else noun.en}".strip()
    fr = noun.fr_plural if plural else noun.fr
    if adjective:
        fr += " " + agree(adjective.masculine, adjective.feminine, to=mention)
    fr_determiner = DETERMINERS[determiner][2 if plural else feminine]
    if determiner == "a":
        mass = not noun.en_plural
        if plural or mass:
            determiner = "any" if negated else "some"
        elif en[0] in "aeiou":
            determiner = "an"
        if negated:
            fr_determiner = "de"
        elif mass:
            fr_determiner = "de la" if feminine else "de le"
    return replace(mention, en=f"{determiner} {en}", fr=f"{fr_determiner} {fr}")


def coordinate(first: Mention, second: Mention) -> Mention:
    """Two mentions of one kind joined by *and*: feminine in French only if both are."""
    feminine = first.feminine and second.feminine
    en, fr = f"{first.en} and {second.en}", f"{first.fr} et {second.fr}"
    return Mention(en, fr, first.kind, feminine=feminine, plural=True)


def put_together(finite: str, rest: str, *, negated: bool) -> str:
    """A French verb and what follows it, with *ne ... pas* around the finite verb alone."""
    return f"ne {finite} pas {rest}" if negated else f"{finite} {rest}"


def action(subject: Mention, verb: Verb, thing: Mention, *, tense: Tense, negated: bool = False) -> Pair:
    """Somebody did something to something."""
    third_singular = subject.person == 3 and not subject.plural
    slot = 2 * subject.plural + (subject.person == 3)
    do = "did" if tense == "past" else "does" if third_singular else "do"
    not_done = f"{do}n't {verb.en}" if verb.is_contracted else f"{do} not {verb.en}"
    if tense == "past":
        en = not_done if negated else verb.en_past
        # After avoir the participle agrees with nothing, because our object always comes later.
        fr = put_together(AVOIR[slot], verb.participle, negated=negated)
    else:
        en = not_done if negated else verb.en_third if third_singular else verb.en
        fr = put_together(verb.fr_present[slot], "", negated=negated).strip()
    return f"{subject.en} {en} {thing.en}", f"{subject.fr} {fr} {thing.fr}"


def posture(subject: Mention, verb: Posture, preposition: Pair, place: Mention, *, negated: bool = False) -> Pair:
    """Somebody sat down somewhere."""
    en, fr = intransitive(subject, verb, negated=negated)
    return f"{en} {preposition[0]} {place.en}", f"{fr} {preposition[1]} {place.fr}"


def intransitive(subject: Mention, verb: Posture, *, negated: bool = False) -> Pair:
    """Somebody came home."""
    en = f"did not {verb.en}" if negated else verb.en_past
    participle = agree(verb.participle, verb.participle + "e", to=subject) if verb.agrees else verb.participle
    # The reflexive pronoun belongs to the finite verb, so "ne" goes before both: elle ne s'est pas assise.
    fr = put_together(verb.auxiliary[subject.plural], participle, negated=negated)
    return f"{subject.en} {en}", f"{subject.fr} {fr}"


def description(
    of: Mention, *adjectives: Adjective, tense: Tense, degree: Pair | None = None, negated: bool = False
) -> Pair:
    """Something is or was such, or such and such."""
    en_be, fr_be = TO_BE[tense][of.plural]
    en = " and ".join(a.en for a in adjectives)
    fr = " et ".join(agree(a.masculine, a.feminine, to=of) for a in adjectives)
    if degree:
        en, fr = f"{degree[0]} {en}", f"{degree[1]} {fr}"
    return f"{of.en} {en_be}{' not' if negated else ''} {en}", f"{of.fr} {put_together(fr_be, fr, negated=negated)}"


def refer(to: Mention) -> Mention:
    """The pronoun for a third person: French chooses it by gender, English by what is meant."""
    en = "they" if to.plural else "it" if to.kind is not PERSON else "she" if to.feminine else "he"
    return replace(to, en=en, fr=agree("il", "elle", to=to))


def sentence(*parts: Pair) -> Pair:
    """Join phrases into a sentence of each language: spaces, French elision, a capital and a full stop."""
    en, fr = (" ".join(words).replace(" ,", ",") for words in zip(*parts, strict=True))
    fr = elide(fr)
    return f"{en[0].upper()}{en[1:]}.", f"{fr[0].upper()}{fr[1:]}."


def elide(fr: str) -> str:
    """Merge French words that meet: l'eau, j'ai, n'est, qu'il, mon actrice, du lait. All our h are mute."""
    before_vowel = r" (?=[aeiouâéêœh])"
    fr = re.sub(rf"\b(l|j|n|s|d|qu)[ea]{before_vowel}", r"\1'", re.sub(rf"\b([ms])a{before_vowel}", r"\1on ", fr))
    return re.sub(r"\bde le\b", "du", fr)


# ---- Chance.


class Speaker:
    """Says random sentences of the grammar; all its chance comes from one generator."""

    def __init__(self, seed: int, *, places: bool = True) -> None:
        """KIND, COME_HOME, OF_PLACES, `_crossing` and *too* are of the grammar with `places` alone."""
        self._rng, self._places = Random(seed), places
        self._nouns = [noun for noun in NOUNS if places or noun.en not in OF_PLACES]
        self._adjectives = [adjective for adjective in ADJECTIVES if places or adjective.en not in OF_PLACES]
        self._adjectives += [KIND] if places else []
        self._verbs = [verb for verb in VERBS if places or verb.en not in OF_PLACES]

    def say(self) -> Pair:
        """One random sentence. A few are shorter or longer than the demo wants; see `generate`."""
        plans = [self._plain, self._action, self._action, self._posture, self._posture, self._description]
        return self._rng.choice([*plans, self._crossing, self._crossing] if self._places else plans)()

    def _chance(self, probability: float) -> bool:
        return self._rng.random() < probability

    def _noun(self, kinds: frozenset[Kind]) -> Noun:
        return self._rng.choice([noun for noun in self._nouns if noun.kind in kinds])

    def _mention(self, kinds: frozenset[Kind], *, definite: bool = False, negated: bool = False) -> Mention:
        noun = self._noun(kinds)
        # "My woman" would be "ma femme", which is "my wife": people have no possessive here.
        mine = () if noun.kind is PERSON else ("my", "his", "her")
        adjectives = [adjective for adjective in self._adjectives if noun.kind in adjective.kinds]
        return noun_phrase(
            self._rng.choice(("the", "the", "the", *mine) if definite else ("the", "the", "the", "a", "a", *mine)),
            noun,
            adjective=self._rng.choice(adjectives) if self._chance(0.35) else None,
            plural=bool(noun.en_plural) and self._chance(0.35),
            negated=negated,
        )

    def _bare(self, kinds: frozenset[Kind]) -> Mention:
        noun = self._noun(kinds)
        return noun_phrase("the", noun, plural=bool(noun.en_plural) and self._chance(0.35))

    def _subject(self, kinds: frozenset[Kind], *, definite: bool = False) -> Mention:
        if PERSON in kinds and self._chance(0.2):
            return self._rng.choice((HE, SHE))
        if self._chance(0.1):
            kind = self._noun(kinds).kind
            first, second = self._rng.sample([noun for noun in self._nouns if noun.kind is kind], 2)
            return coordinate(noun_phrase("the", first), noun_phrase("the", second))
        return self._mention(kinds, definite=definite)

    def _plain(self) -> Pair:
        """Two bare nouns and a verb, as often the wrong way round: only word order determines the subject."""
        verb = self._rng.choice(self._verbs)
        subject, thing = self._bare(verb.subjects), self._bare(verb.objects)
        if self._chance(0.5):
            subject, thing = thing, subject
        return sentence(action(subject, verb, thing, tense=self._tense(), negated=self._chance(0.2)))

    def _action(self) -> Pair:
        verb, tense, negated = self._rng.choice(self._verbs), self._tense(), self._chance(0.3)
        subject = self._rng.choice((I, WE)) if self._chance(0.3) else self._subject(verb.subjects)
        if self._chance(0.4):
            thing = self._mention(verb.objects, negated=negated)
            return self._with_time(action(subject, verb, thing, tense=tense, negated=negated), tense)
        # Nothing can refer back to what was not bought ("any chairs"), so a negated object is definite here.
        thing = self._mention(verb.objects, definite=negated)
        clause = action(subject, verb, thing, tense=tense, negated=negated)
        return sentence(clause, *self._afterthought(subject, thing, tense=tense))

    def _crossing(self) -> Pair:
        """Somebody did not cross something, because the one was too tired, or because the other was too wide."""
        verb, tense, negated = self._rng.choice(GOING), self._tense(), self._chance(0.8)
        # Of people English says "he" or "she", which leaves nothing to find out.
        subject = self._subject(frozenset({ANIMAL}) if self._chance(0.85) else PEOPLE)
        place = self._mention(PLACES, definite=negated)
        antecedent, other = self._rng.sample((subject, place), 2)
        pronoun = refer(antecedent)
        adjective = self._rng.choice([a for a in self._fitting(antecedent, other) if a.gradable])
        because = description(pronoun, adjective, tense=tense, degree=TOO if negated else VERY)
        return sentence(action(subject, verb, place, tense=tense, negated=negated), BECAUSE, because)

    def _posture(self) -> Pair:
        if self._places and self._chance(0.15):
            return self._with_time(intransitive(self._subject(ALIVE), COME_HOME, negated=self._chance(0.2)), "past")
        verb, subject, place = self._rng.choice(POSTURES), self._subject(ALIVE), self._mention(GOODS)
        inside = place.kind is SEAT and self._chance(0.6)
        preposition = IN if inside else self._rng.choice(PREPOSITIONS)
        clause = posture(subject, verb, preposition, place, negated=self._chance(0.2))
        if self._chance(0.25):
            return self._with_time(clause, "past")
        return sentence(clause, *self._afterthought(subject, place, tense="past"))

    def _description(self) -> Pair:
        subject, tense = self._subject(frozenset(Kind), definite=True), self._tense()
        adjective, other = self._rng.sample(self._fitting(subject), 2)
        if self._chance(0.3):
            return sentence(description(subject, adjective, other, tense=tense))
        degree, negated = self._degree(adjective), self._chance(0.3)
        return sentence(description(subject, adjective, tense=tense, degree=degree, negated=negated))

    def _afterthought(self, *mentions: Mention, tense: Tense) -> tuple[Pair, ...]:
        """A clause on one mention, found by sense: what is hungry is the cat and what is comfortable the chair."""
        # People are "he" and "she", which leaves "it" to objects, who come last; animals who come first make up for it.
        prefer_first = mentions[0].kind is ANIMAL and self._chance(0.6)
        antecedent = mentions[0] if prefer_first else self._rng.choice(mentions)
        pronoun = refer(antecedent)
        choices = self._fitting(antecedent, *(m for m in mentions if m is not antecedent and refer(m).en == pronoun.en))
        if not choices:
            return ()
        adjective = self._rng.choice(choices)
        degree, negated = self._degree(adjective), self._chance(0.2)
        clause = description(pronoun, adjective, tense=tense, degree=degree, negated=negated)
        return self._rng.choice(LINKS), clause

    def _fitting(self, mention: Mention, *others: Mention) -> list[Adjective]:
        """Adjectives that fit a mention but none of the others, and are not repeated ("the red bed is red")."""
        adjectives = [a for a in self._adjectives if mention.kind in a.kinds and a.en not in mention.en.split()]
        return [a for a in adjectives if not any(other.kind in a.kinds for other in others)]

    def _degree(self, adjective: Adjective) -> Pair | None:
        if not (adjective.gradable and self._chance(0.4)):
            return None
        return self._rng.choice((VERY, VERY, TOO)) if self._places else VERY

    def _with_time(self, clause: Pair, tense: Tense) -> Pair:
        if self._chance(0.4):
            return sentence(clause)
        time = self._rng.choice(TIMES[tense])
        return sentence(clause, time) if self._chance(0.5) else sentence(time, (",", ","), clause)

    def _tense(self) -> Tense:
        return "present" if self._chance(0.5) else "past"


# ---- The corpus.


@dataclass(frozen=True)
class DemoCorpus:
    """Pairs of English and French sentences; no English sentence occurs twice, within a split or across them."""

    train: list[Pair]
    dev: list[Pair]
    test: list[Pair]


def held_out(*, places: bool = True) -> list[Pair]:
    """Sentences that people try first. They open the test set: a good translation of them was not memorised."""
    noun_of = {noun.en: noun for noun in NOUNS}
    cat, milk, chair, animal, street = (
        noun_phrase("the", noun_of[en]) for en in ("cat", "milk", "chair", "animal", "street")
    )
    drink, cross = (verb for en in ("drink", "cross") for verb in VERBS if verb.en == en)
    (sit,) = (verb for verb in POSTURES if verb.en == "sit down")
    comfortable, tired, wide, pretty = (
        adjective for en in ("comfortable", "tired", "wide", "pretty") for adjective in ADJECTIVES if adjective.en == en
    )
    it_was_comfortable = description(refer(chair), comfortable, tense="past", degree=VERY)
    did_not_cross = action(animal, cross, street, tense="past", negated=True)
    found = [
        sentence(posture(SHE, sit, IN, chair), LINKS[0], it_was_comfortable),
        sentence(action(cat, drink, milk, tense="past")),
        sentence(action(milk, drink, cat, tense="past")),
    ]
    if places:
        found += [
            sentence(did_not_cross, BECAUSE, description(refer(animal), tired, tense="past", degree=TOO)),
            sentence(did_not_cross, BECAUSE, description(refer(street), wide, tense="past", degree=TOO)),
            sentence(intransitive(noun_phrase("the", noun_of["woman"], adjective=pretty), COME_HOME)),
        ]
    return found


def generate(
    seed: int = 1, *, n_train: int = 20_000, n_dev: int = 500, n_test: int = 500, places: bool = True
) -> DemoCorpus:
    """Draw the three splits; the same seed gives the same corpus, and its test and dev sets whatever `n_train` is.

    Without `places` it is the smaller grammar of `demo_en_fr_without_places`.
    """
    speaker, famous = Speaker(seed, places=places), held_out(places=places)
    seen = {en for en, _ in famous}

    def fresh() -> Iterator[Pair]:
        while True:
            en, fr = speaker.say()
            if en not in seen and 4 <= len(en.split()) <= 16:
                seen.add(en)
                yield en, fr

    pairs = fresh()
    test = (famous + list(islice(pairs, max(0, n_test - len(famous)))))[:n_test]
    dev = list(islice(pairs, n_dev))
    return DemoCorpus(train=list(islice(pairs, n_train)), dev=dev, test=test)
