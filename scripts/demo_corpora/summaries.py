"""`demo_summaries`: invented local news, each report with a summary, so that a first summarizer needs no download.

A report says where, when, what and with which outcome in sentences of its own, in an order that varies, between others
that do not matter: what happened there in an earlier year, the weather, what somebody said. The summary takes the kind
of event from one sentence and places, names and numbers from others, so neither the first sentence nor any other is
the summary. It is a demonstration: real reports are far harder, and scores on these say nothing of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

Pair = tuple[str, str]  # the report and its summary
SPLIT_SIZES = {"train": 6000, "dev": 200, "test": 300}


def _listed(text: str, separator: str | None = ", ") -> list[str]:
    return text.split(separator)


PLACES = _listed(
    "Alderford Ashwick Barrowby Bellmere Brackenhill Burnmoor Calderton Cliffden Coldbrook Dunmore Easterby Eldham"
    " Fenwick Foxley Glenrow Graymoor Halewood Harrowfield Hazelton Ivybridge Kelsey Kingsby Lakeham Larkfield Linden"
    " Marbury Millbrook Netherton Northam Oakhurst Orton Pendle Quarley Redmoor Riverton Rosedale Saltmarsh Selworth"
    " Stonebridge Thornbury Upbridge Wakeham Westlea Whitcombe Winslow Wolverton Yarrow Yelding",
    separator=None,
)
PEOPLE = _listed(
    "Adams Baker Bennett Carter Clarke Cooper Dawson Doyle Ellis Evans Fisher Foster Graham Grant Harris Hughes Irving"
    " Jensen Keller Lambert Lewis Mason Morgan Nolan Osborne Palmer Porter Quinn Reed Russell Shaw Spencer Turner Usher"
    " Vance Walker Watson Young",
    separator=None,
)
DAYS = _listed("Monday Tuesday Wednesday Thursday Friday Saturday Sunday", separator=None)
BUILDINGS = _listed(
    "the old mill, the town hall, the railway station, the bakery, the public library, the primary school, the brewery,"
    " the paper factory, the furniture shop, the sports hall, the parish church, the harbour office"
)
NEW_BUILDINGS = _listed(
    "footbridge, swimming pool, library, museum, market hall, bus station, playground, theatre, clinic, fire station"
)
GOODS = _listed("bicycles, paintings, laptops, violins, coins, watches, tractors, silver cups, cameras, carpets")
ANIMALS = _listed("goat, pony, parrot, tortoise, piglet, donkey, swan, beaver, owl, hedgehog")

HOLES = _listed("a well, a chimney, a frozen pond, a deep ditch, a tall tree, a drain")
EARLIER = (
    "The last event of this kind was in {year}.",
    "In {year} the town made headlines with a fire in {building}.",
    "In {year} the council had discussed a new {new}.",
    "Older residents remember a similar day in {year}.",
    "{other} had a similar story in {year}.",
)
ASIDES = (
    "The weather was mild for the season.",
    "It rained for most of the day.",
    "The main road was closed for about {number} minutes.",
    "Around {number} people had gathered by noon.",
    "Reporters from {other} were on the spot as well.",
    '"It came as a surprise," said {person}, who lives next door.',
    '"We will talk about it for years," said {person}, a teacher.',
    "{person}, who keeps a shop nearby, served coffee to everybody.",
    "The mayor, {person}, could not be reached for comment.",
    "The town has about {number} thousand inhabitants.",
    "A meeting about the matter will be held in {other}.",
    "Photographs will be shown in {building} next week.",
)


@dataclass(frozen=True)
class Story:
    """A report: sentences that its summary needs, and the summary."""

    needed: list[str]
    summary: str


class Writer:
    """Draws the facts of one report."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.place, self.other = draw.sample(PLACES, 2)
        self.hero, self.rival = draw.sample(PEOPLE, 2)
        self.day = draw.choice(DAYS)

    def number(self, low: int, high: int) -> int:
        return self.draw.randint(low, high)

    def one_of(self, *choices: str) -> str:
        return self.draw.choice(choices)

    def where(self) -> str:
        """A sentence that says where and when."""
        return self.one_of(
            f"{self.place} will not forget this {self.day}.",
            f"It was an unusual {self.day} in {self.place}.",
            f"{self.day} began quietly in {self.place}.",
            f"People in {self.place} had other plans for their {self.day}.",
        )

    def padding(self, n: int) -> list[str]:
        """`n` sentences that do not matter."""
        return [self.filled(template) for template in self.draw.sample(EARLIER + ASIDES, n)]

    def filled(self, template: str) -> str:
        free_people = [name for name in PEOPLE if name not in (self.hero, self.rival)]
        return template.format(
            year=self.number(1961, 2019),
            building=self.draw.choice(BUILDINGS),
            new=self.draw.choice(NEW_BUILDINGS),
            other=self.other,
            number=self.number(11, 99),
            person=self.draw.choice(free_people),
        )


def fire(w: Writer) -> Story:
    building, damage, hurt = w.draw.choice(BUILDINGS), w.number(2, 99), w.number(0, 5)
    people = "no one was hurt" if hurt == 0 else f"{hurt} people were hurt" if hurt > 1 else "one person was hurt"
    return Story(
        [
            w.one_of(
                f"In the early morning flames came out of the roof of {building}.",
                f"Smoke was first seen over {building} shortly after lunch.",
                f"A short circuit had set {building} on fire.",
            ),
            w.one_of(f"The fire brigade says that {people}.", f"By the evening it was clear that {people}."),
            w.one_of(
                f"The damage is put at {damage} thousand pounds.",
                f"Repairs will cost about {damage} thousand pounds, the insurance says.",
            ),
        ],
        f"A fire in {building} of {w.place} caused damage of {damage} thousand pounds; {people}.",
    )


def match(w: Writer) -> Story:
    goals, fewer = w.number(2, 6), w.number(0, 1)
    return Story(
        [
            w.one_of(
                f"The guests in the cup match were the team of {w.other}.",
                f"The cup had brought {w.other} to the small stadium.",
            ),
            w.one_of(
                f"When the referee ended the match, the board showed {goals}:{fewer} for the home side.",
                f"The home side was never in danger and won {goals}:{fewer}.",
            ),
            w.one_of(
                f"Most of the goals were scored by {w.hero}.", f"The crowd sang the name of {w.hero}, the best scorer."
            ),
        ],
        f"{w.place} beat {w.other} {goals}:{fewer} in the cup with goals by {w.hero}.",
    )


def election(w: Writer) -> Story:
    share = w.number(51, 79)
    return Story(
        [
            w.one_of("The votes for a new mayor were counted.", "The town chose its mayor."),
            w.one_of(f"{w.hero} will move into the office in spring.", f"The flowers at the end were for {w.hero}."),
            w.one_of(
                f"The result was {share} percent, the best for many years.",
                f"With {share} percent a second round is not needed.",
            ),
            w.one_of(f"{w.rival}, who lost, was the first to call.", f"{w.rival} spoke of a fair defeat."),
        ],
        f"{w.hero} was elected mayor of {w.place} with {share} percent, ahead of {w.rival}.",
    )


def theft(w: Writer) -> Story:
    goods, count, building = w.draw.choice(GOODS), w.number(3, 60), w.draw.choice(BUILDINGS)
    caught = w.draw.random() < 0.5
    return Story(
        [
            w.one_of(
                f"Somebody had broken a window of {building} during the night.",
                f"The lock of {building} was found open in the morning.",
            ),
            w.one_of(f"Missing are {count} {goods}.", f"The owner counted again and again: {count} {goods} are gone."),
            w.one_of(f"The police arrested {w.hero} two days later.", f"{w.hero} has confessed to the police.")
            if caught
            else w.one_of("The police have no trace so far.", "There are no witnesses, the police say."),
        ],
        f"{count} {goods} were stolen from {building} of {w.place}; "
        + (f"{w.hero} was arrested." if caught else "the thieves have not been found."),
    )


def opening(w: Writer) -> Story:
    building, years, cost = w.draw.choice(NEW_BUILDINGS), w.number(2, 9), w.number(2, 49)
    return Story(
        [
            w.one_of(
                f"With a pair of golden scissors {w.hero} opened the new {building}.",
                f"{w.hero} was the first to enter the new {building}.",
            ),
            w.one_of(f"It had taken {years} years to build.", f"The builders were at work for {years} years."),
            w.one_of(
                f"The bill is {cost} million pounds, more than planned.",
                f"The council paid {cost} million pounds for it.",
            ),
        ],
        f"{w.hero} opened the new {building} of {w.place}, which took {years} years and cost {cost} million pounds.",
    )


def rescue(w: Writer) -> Story:
    animal, hours = w.draw.choice(ANIMALS), w.number(2, 23)
    where = w.draw.choice(HOLES)
    return Story(
        [
            w.one_of(
                f"Children had heard the cries of a {animal}.", f"A {animal} had been missing since the day before."
            ),
            w.one_of(f"It was stuck in {where}.", f"The animal was found in {where}."),
            w.one_of(
                f"After {hours} hours the firefighter {w.hero} held it in her arms.",
                f"It took {hours} hours before the firefighter {w.hero} could reach it.",
            ),
        ],
        f"Firefighter {w.hero} saved a {animal} from {where} in {w.place} after {hours} hours.",
    )


EVENTS: tuple[Callable[[Writer], Story], ...] = (fire, match, election, theft, opening, rescue)


def report(draw: Random) -> Pair:
    """Padding may stand before, between and behind the sentences that count; these keep their order."""
    writer = Writer(draw)
    story = draw.choice(EVENTS)(writer)
    sentences = list(story.needed)
    sentences.insert(draw.choice((0, 0, 1, len(sentences))), writer.where())
    for sentence in writer.padding(draw.randint(2, 4)):
        sentences.insert(draw.randint(0, len(sentences)), sentence)
    return " ".join(sentences), story.summary


def generate(split: str) -> list[Pair]:
    """The pairs of a split, always the same; no two reports of the corpus are equal."""
    seen: set[str] = set()
    for name, size in sorted(SPLIT_SIZES.items(), key=lambda item: item[1]):  # the small ones first: drawn whole
        draw, pairs = Random(f"demo_summaries {name}"), list[Pair]()
        while len(pairs) < size:
            pair = report(draw)
            if pair[0] not in seen:
                seen.add(pair[0])
                pairs.append(pair)
        if name == split:
            return pairs
    raise AssertionError(split)
