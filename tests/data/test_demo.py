"""The demo corpus is correct French, reproducible, and cannot be translated word by word.

The French below (genders, forms of adjectives, whole sentences) is written by hand and not taken from the module.
"""

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from scripts.demo_corpora import en_fr as demo
from scripts.demo_corpora.__main__ import texts, write
from scripts.demo_corpora.en_fr import DemoCorpus, Pair, generate
from tests.support.each import each
from transformer_cli.config.data import DataConfig
from transformer_cli.data.corpus import load_text
from transformer_cli.data.readers.builtin import FOLDER, read_builtin

FAMOUS = {
    "She sat down in the chair, it was very comfortable.": (
        "Elle s'est assise dans la chaise, elle était très confortable."
    ),
    "The cat drank the milk.": "Le chat a bu le lait.",
    "The milk drank the cat.": "Le lait a bu le chat.",
    "The animal didn't cross the street because it was too tired.": (
        "L'animal n'a pas traversé la rue parce qu'il était trop fatigué."
    ),
    "The animal didn't cross the street because it was too wide.": (
        "L'animal n'a pas traversé la rue parce qu'elle était trop large."
    ),
    "The pretty woman came home.": "La femme jolie est rentrée.",
}

LIVING = (
    "homme garçon roi oncle femme fille reine actrice chat chien cheval oiseau souris grenouille tortue abeille animal"
)
MEALS = "gâteau œuf fromage pomme orange soupe lait café vin eau bière limonade"
SEATS = "fauteuil lit bateau chaise voiture balançoire"
OTHERS = "livre miroir banc table lampe armoire"
PLACES = "pont jardin champ rue rivière forêt"
FEMININE = (
    "femme fille reine actrice souris grenouille tortue abeille pomme orange soupe eau bière limonade "
    "chaise voiture balançoire table lampe armoire rue rivière forêt"
)
SINGULAR_OF = {noun + "s": noun for noun in f"{LIVING} {MEALS} {SEATS} {OTHERS} {PLACES}".split() if noun != "souris"}
SINGULAR_OF |= {"chevaux": "cheval", "animaux": "animal", "oiseaux": "oiseau", "gâteaux": "gâteau", "bateaux": "bateau"}
NOUNS = set(f"{LIVING} {MEALS} {SEATS} {OTHERS} {PLACES}".split()) | set(SINGULAR_OF)

ADJECTIVES = [  # masculine and feminine singular, then plural
    row.split()
    for row in """
    affamé affamée affamés affamées
    assoiffé assoiffée assoiffés assoiffées
    fatigué fatiguée fatigués fatiguées
    heureux heureuse heureux heureuses
    furieux furieuse furieux furieuses
    triste triste tristes tristes
    paresseux paresseuse paresseux paresseuses
    âgé âgée âgés âgées
    délicieux délicieuse délicieux délicieuses
    froid froide froids froides
    chaud chaude chauds chaudes
    frais fraîche frais fraîches
    confortable confortable confortables confortables
    lourd lourde lourds lourdes
    cher chère chers chères
    cassé cassée cassés cassées
    rouge rouge rouges rouges
    noir noire noirs noires
    blanc blanche blancs blanches
    énorme énorme énormes énormes
    large large larges larges
    long longue longs longues
    dangereux dangereuse dangereux dangereuses
    sombre sombre sombres sombres
    joli jolie jolis jolies
    étrange étrange étranges étranges
    gentil gentille gentils gentilles
    """.strip().splitlines()
]
ADJECTIVE_FORMS = {form: row for row in ADJECTIVES for form in row}
ONLY_OF = {"confortable": SEATS, "délicieux": MEALS, "affamé": LIVING, "cher": f"{MEALS} {SEATS}"}
ONLY_OF |= dict.fromkeys(["fatigué", "paresseux"], LIVING)
ONLY_OF |= dict.fromkeys(["large", "long", "dangereux", "sombre"], PLACES)

PRONOUN = re.compile(r"(?:,|, mais|parce qu')\s?(ils?|elles?) (?:n')?(?:était|étaient|est|sont|ne) ")
PHRASE = re.compile(r"\b(le |la |l'|les |un |une |des |du |de la |de l'|mon |ma |mes |son |sa |ses )(\w+) (\w+)")


def gender(noun: str) -> str:
    return "f" if SINGULAR_OF.get(noun, noun) in FEMININE.split() else "m"


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


@pytest.fixture(scope="module")
def corpus() -> DemoCorpus:
    return generate()


@pytest.fixture(scope="module")
def pairs(corpus: DemoCorpus) -> list[Pair]:
    return corpus.train + corpus.dev + corpus.test


# ---- The splits.


def test_the_same_seed_gives_the_same_bytes_in_every_process() -> None:
    program = (
        "import hashlib; from scripts.demo_corpora.en_fr import generate; "
        "print(hashlib.sha256(repr(generate(7, n_train=300)).encode()).hexdigest())"
    )
    root = str(Path(demo.__file__).parents[2])
    for hash_seed in ("0", "1"):  # the order of a set of strings changes with it
        env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": root}
        run = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
        assert run.stdout.strip() == hashlib.sha256(repr(generate(7, n_train=300)).encode()).hexdigest()


def test_another_seed_gives_another_corpus() -> None:
    assert generate(1, n_train=50) != generate(2, n_train=50)


def test_the_smaller_grammar_of_our_published_figures_stays_what_it_was() -> None:
    text = repr(generate(1, n_train=300, places=False)).encode()
    assert hashlib.sha256(text).hexdigest() == "7b23224da30db42d9fe4c821717e18117cfb2829380800ce26b00ab7832ae698"


def test_the_corpus_of_our_published_figures_stays_what_it_was(corpus: DemoCorpus) -> None:
    digest = hashlib.sha256(repr(corpus).encode()).hexdigest()
    assert digest == "ad40d097390259b9a6f063aaf188a326257eebb2491b8d71d55414fd96f0df9f"


@pytest.mark.slow
def test_the_package_has_exactly_the_text_that_the_grammars_make(tmp_path: Path) -> None:
    shipped = {path.relative_to(FOLDER).as_posix(): path.read_bytes() for path in FOLDER.rglob("*") if path.is_file()}
    assert {name: gzip.decompress(packed).decode() for name, packed in shipped.items()} == texts()
    assert {packed[4:8] for packed in shipped.values()} == {bytes(4)}  # no time of writing
    assert sum(map(len, shipped.values())) < 1_600_000
    copy = tmp_path / "demo"
    shutil.copytree(FOLDER, copy)
    (copy / "demo_en_fr/dev.source.gz").unlink()
    (copy / "demo_en_fr/dev.target.gz").write_bytes(gzip.compress(b"Autre.\n"))
    written = write(copy)
    assert {path.relative_to(copy).as_posix() for path in written} == {
        "demo_en_fr/dev.source.gz",
        "demo_en_fr/dev.target.gz",
    }
    assert all(gzip.decompress((copy / name).read_bytes()) == gzip.decompress(old) for name, old in shipped.items())


def test_the_text_is_read_as_the_grammar_made_it(corpus: DemoCorpus) -> None:
    assert read_builtin("demo_en_fr", "train") == corpus.train
    assert read_builtin("demo_en_fr", "dev") == corpus.dev
    assert read_builtin("demo_en_fr", "test") == corpus.test


def test_the_other_direction_has_the_same_pairs(corpus: DemoCorpus) -> None:
    text = load_text(DataConfig(source_lang="fr", target_lang="en", builtin="demo_fr_en"), "dev")
    assert text is not None
    assert list(zip(text.targets, text.sources, strict=True)) == corpus.dev


def test_the_default_sizes_are_twenty_thousand_and_twice_five_hundred(corpus: DemoCorpus) -> None:
    assert (len(corpus.train), len(corpus.dev), len(corpus.test)) == (20_000, 500, 500)


@each("n_test", [0, 2, 3, 4])
def test_a_small_test_set_has_the_size_asked_for(n_test: int) -> None:
    corpus = generate(n_train=10, n_dev=0, n_test=n_test)
    assert (len(corpus.train), len(corpus.dev), len(corpus.test)) == (10, 0, n_test)


def test_a_smaller_training_set_keeps_dev_and_test(corpus: DemoCorpus) -> None:
    small = generate(n_train=100)
    assert (small.dev, small.test, small.train) == (corpus.dev, corpus.test, corpus.train[:100])


def test_no_english_sentence_occurs_twice_in_or_across_splits(pairs: list[Pair]) -> None:
    assert len({en for en, _ in pairs}) == len(pairs)


@pytest.mark.slow
def test_one_english_sentence_has_one_french_translation_whatever_the_seed(pairs: list[Pair]) -> None:
    every = set(pairs) | set(generate(2).train)
    assert len(every) > 35_000
    assert len({en for en, _ in every}) == len(every)


def test_every_word_of_dev_and_test_is_common_in_train(corpus: DemoCorpus) -> None:
    for side in (0, 1):
        known = Counter(word for pair in corpus.train for word in set(words(pair[side].lower())))
        needed = {word for pair in corpus.dev + corpus.test for word in words(pair[side].lower())}
        assert {word: known[word] for word in needed if known[word] < 8} == {}


def test_sentences_are_of_moderate_length_and_plainly_written(pairs: list[Pair]) -> None:
    for en, fr in pairs:
        assert 4 <= len(en.split()) <= 16
        assert re.fullmatch(r"[A-Z][A-Za-z]*(,? [a-zI]+(n't)?)*\.", en), en
        assert re.fullmatch(r"[A-ZŒ][a-zâçéèêîœ]*((, | |')[a-zâçéèêîœ]+)*\.", fr), fr


# ---- The French.


@each("en, fr", FAMOUS.items())
def test_the_sentences_people_try_first_are_right_and_held_out(corpus: DemoCorpus, en: str, fr: str) -> None:
    assert dict(corpus.test)[en] == fr
    assert en not in dict(corpus.train + corpus.dev)


def test_a_model_sees_the_words_of_the_held_out_sentences_with_others(corpus: DemoCorpus) -> None:
    sources = [en for en, _ in corpus.train]
    pieces = "comfortable,chair,sat down in,She sat down,pretty,woman,came home,kind,The cat ,the milk,drank the"
    for piece in pieces.split(","):
        assert sum(piece in en for en in sources) >= 50, piece


def phrase(determiner: str, noun: str, adjective: str = "", *, plural: bool = False, negated: bool = False) -> Pair:
    """A noun phrase of the grammar by its English words, elided as in a sentence."""
    (found,) = (word for word in demo.NOUNS if word.en == noun)
    kind = next((word for word in (*demo.ADJECTIVES, demo.KIND) if word.en == adjective), None)
    mention = demo.noun_phrase(determiner, found, adjective=kind, plural=plural, negated=negated)
    return mention.en, demo.elide(mention.fr)


@each(
    "built, expected",
    [
        (phrase("a", "woman", "pretty"), ("a pretty woman", "une femme jolie")),
        (phrase("a", "girl", "kind"), ("a kind girl", "une fille gentille")),
        (phrase("the", "man", "elderly", plural=True), ("the elderly men", "les hommes âgés")),
        (phrase("a", "chair", "comfortable"), ("a comfortable chair", "une chaise confortable")),
        (phrase("a", "egg"), ("an egg", "un œuf")),
        (phrase("a", "bed", "enormous"), ("an enormous bed", "un lit énorme")),
        (phrase("the", "man"), ("the man", "l'homme")),
        (phrase("the", "water", "cold"), ("the cold water", "l'eau froide")),
        (phrase("a", "water"), ("some water", "de l'eau")),
        (phrase("a", "wine"), ("some wine", "du vin")),
        (phrase("a", "soup", "hot"), ("some hot soup", "de la soupe chaude")),
        (phrase("a", "apple", plural=True), ("some apples", "des pommes")),
        (phrase("a", "apple", plural=True, negated=True), ("any apples", "de pommes")),
        (phrase("a", "orange", negated=True), ("an orange", "d'orange")),
        (phrase("a", "milk", negated=True), ("any milk", "de lait")),
        (phrase("my", "wardrobe"), ("my wardrobe", "mon armoire")),
        (phrase("her", "swing"), ("her swing", "sa balançoire")),
        (phrase("his", "horse", "white", plural=True), ("his white horses", "ses chevaux blancs")),
        (phrase("the", "mouse", "happy", plural=True), ("the happy mice", "les souris heureuses")),
    ],
)
def test_a_noun_phrase_reads_as_a_french_teacher_writes_it(built: Pair, expected: Pair) -> None:
    assert built == expected


def test_short_words_are_elided_before_a_vowel_and_only_there(pairs: list[Pair]) -> None:
    for _, fr in pairs:
        assert not re.search(r"\b(le|la|de|ne|je|se|que|ma|sa) [aeiouhâéêœ]", fr, re.IGNORECASE), fr
        assert not re.search(r"'[^aeiouhâéêœ]", fr), fr
        assert not re.search(r"\bde (le|les)\b", fr), fr


def test_determiner_noun_and_adjective_agree(pairs: list[Pair]) -> None:
    checked = 0
    for _, fr in pairs:
        for determiner, noun, follower in PHRASE.findall(fr[0].lower() + fr[1:]):
            plural = determiner in {"les ", "des ", "mes ", "ses "}
            assert noun in NOUNS, fr
            assert noun == "souris" or (noun in SINGULAR_OF) == plural, fr
            if determiner in {"la ", "une ", "de la ", "ma ", "sa "}:
                assert gender(noun) == "f", fr
            elif determiner in {"le ", "un ", "du "} or (determiner in {"mon ", "son "} and noun[0] not in "aeioœ"):
                assert gender(noun) == "m", fr
            if follower in ADJECTIVE_FORMS:
                assert follower == ADJECTIVE_FORMS[follower][2 * plural + (gender(noun) == "f")], fr
                checked += 1
    assert checked > 5_000


def test_not_is_ne_pas_around_one_verb(pairs: list[Pair]) -> None:
    for en, fr in pairs:
        assert len(re.findall(r"\bnot\b|n't\b", en)) == len(re.findall(r"\b(?:ne |n')(?:s'|se )?\w+ pas\b", fr)), (
            en,
            fr,
        )
        assert len(re.findall(r"\bpas\b", fr)) == len(re.findall(r"\b(?:ne |n')", fr)), fr
        if " any " in en:
            assert re.search(r"\bpas (\w+ )?(de |d')", fr), fr


def test_the_participle_agrees_after_être_and_never_after_avoir(pairs: list[Pair]) -> None:
    endings = {"Il": "", "Elle": "e"}
    seen: Counter[str] = Counter()
    for _, fr in pairs:
        if found := re.match(r"(Il|Elle) (?:ne )?(?:n'|s')?est (?:pas )?(assis|tombé|resté|rentré)(e?)\b", fr):
            assert found[3] == endings[found[1]], fr
            seen[found[1]] += 1
        if found := re.search(r"\b(?:\w'ai|a|avons|ont) (?:pas )?(\w+)", fr):
            assert re.fullmatch(r"\w+[éui]", found[1]), fr
    assert min(seen["Il"], seen["Elle"]) > 100


@pytest.mark.parametrize(
    ("subjects", "expected"),
    [
        (["queen"], ("The queen sat down on the bed.", "La reine s'est assise sur le lit.")),
        (["king", "queen"], ("The king and the queen sat down on the bed.",
                             "Le roi et la reine se sont assis sur le lit.")),
        (["girl", "queen"], ("The girl and the queen sat down on the bed.",
                             "La fille et la reine se sont assises sur le lit.")),
    ],
)  # fmt: skip
def test_several_subjects_are_feminine_only_if_all_are(subjects: list[str], expected: Pair) -> None:
    nouns = {noun.en: noun for noun in demo.NOUNS}
    first, *others = (demo.noun_phrase("the", nouns[en]) for en in subjects)
    subject = demo.coordinate(first, *others) if others else first
    bed = demo.noun_phrase("the", nouns["bed"])
    assert demo.sentence(demo.posture(subject, demo.POSTURES[0], ("on", "sur"), bed)) == expected


# ---- What only attention can solve.


def nouns_before_pronoun(fr: str) -> tuple[list[str], str, str] | None:
    """The nouns of the main clause, the pronoun that follows it, and the adjective said of it."""
    found = PRONOUN.search(fr)
    if not found:
        return None
    adjective = words(fr)[-1]
    return [word for word in words(fr[: found.start()]) if word in NOUNS], found[1], adjective


def test_it_and_they_take_the_gender_of_what_can_be_so(pairs: list[Pair]) -> None:
    checked = 0
    for en, fr in pairs:
        case = nouns_before_pronoun(fr)
        if not case or not re.search(r"(,|because|but) (it|they) ", en):
            continue
        nouns, pronoun, adjective = case
        feminine, plural = pronoun.startswith("elle"), pronoun.endswith("s")
        row = ADJECTIVE_FORMS[adjective]
        assert adjective == row[2 * plural + feminine], fr
        suitable = [noun for noun in nouns if SINGULAR_OF.get(noun, noun) in ONLY_OF.get(row[0], "").split()]
        if len(suitable) == 1:
            assert gender(suitable[0]) == ("f" if feminine else "m"), fr
            checked += 1
    assert checked > 1_000


@pytest.mark.parametrize("position", [0, -1])
def test_the_antecedent_of_it_is_not_always_the_first_or_the_last_noun(pairs: list[Pair], position: int) -> None:
    agreeing = []
    for en, fr in pairs:
        case = nouns_before_pronoun(fr)
        if case and len(case[0]) == 2 and re.search(r"(,|because|but) it ", en):
            nouns, pronoun, _ = case
            agreeing.append(gender(nouns[position]) == ("f" if pronoun == "elle" else "m"))
    assert len(agreeing) > 1_000
    assert sum(agreeing) / len(agreeing) < 0.8


@pytest.mark.parametrize(("english", "masculine", "feminine"), [("it", "il", "elle"), ("they", "ils", "elles")])
def test_both_genders_of_a_pronoun_are_about_as_common(
    pairs: list[Pair], english: str, masculine: str, feminine: str
) -> None:
    seen: Counter[str] = Counter()
    for en, fr in pairs:
        if (found := PRONOUN.search(fr)) and re.search(rf"(,|because|but) {english} ", en):
            seen[found[1]] += 1
    assert set(seen) == {masculine, feminine}
    assert seen.total() > 2_000
    assert 0.4 < seen[feminine] / seen.total() < 0.6


def test_who_does_not_cross_and_what_is_not_crossed_have_both_genders_and_both_are_the_cause(pairs: list[Pair]) -> None:
    crossing = re.compile(r"n't (?:cross|leave|visit) .* because it (?:is|was) too ")
    causes: Counter[tuple[str, str, str]] = Counter()
    for en, fr in pairs:
        case = nouns_before_pronoun(fr) if crossing.search(en) else None
        if case and len(case[0]) == 2 and (row := ADJECTIVE_FORMS[case[2]])[0] in ONLY_OF:
            subject, place = case[0]
            is_place = ONLY_OF[row[0]] == PLACES
            assert case[1] == ("elle" if gender(place if is_place else subject) == "f" else "il"), fr
            causes[gender(subject), gender(place), "place" if is_place else "subject"] += 1
    assert len(causes) == 8  # with the gender of either side as it may be, each side is at times the cause
    assert min(causes.values()) > 30, causes


def test_did_not_is_contracted_with_verbs_of_going_alone(pairs: list[Pair]) -> None:
    """One French sentence has one form in English, and a model knows both forms."""
    verbs = {form: set(re.findall(rf"\b(?:did|does|do){form} (\w+)", " ".join(en for en, _ in pairs)))
             for form in ("n't", " not")}  # fmt: skip
    assert verbs["n't"] == {"cross", "leave", "visit"}
    assert verbs[" not"] > {"drink", "sit", "stay"}
    assert not verbs["n't"] & verbs[" not"]


def test_exchanging_subject_and_object_exchanges_them_in_french(pairs: list[Pair]) -> None:
    french = dict(pairs)
    exchanged = 0
    for en, fr in pairs:
        found = re.fullmatch(r"The (\w+) (\w+) the (\w+)\.", en)
        other = french.get(f"The {found[3]} {found[2]} the {found[1]}.") if found else None
        ours = re.fullmatch(r"L(?:e |a |')(\w+) (.+) l(?:e |a |')(\w+)\.", fr)
        if other and ours:
            theirs = re.fullmatch(r"L(?:e |a |')(\w+) (.+) l(?:e |a |')(\w+)\.", other)
            assert theirs, (fr, other)
            assert theirs.groups() == (ours[3], ours[2], ours[1]), (fr, other)
            exchanged += 1
    assert exchanged > 30
