"""`tfm align`: links of the words of two texts, by an aligner of the text itself or by a model's attention."""

import gzip
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.addons.interop.test_export import tagged_model
from tests.addons.interop.toy_languages import m2m100, nllb
from tests.support.contract import refused, run
from tests.support.each import each
from tests.toy.run import model_file, packed
from transformer_cli.addons.alignment import word_corpus
from transformer_cli.addons.alignment.word_corpus import tokens_of
from transformer_cli.models.file import write_model

WORDS = {"the": "le", "dog": "chien", "cat": "chat", "sees": "voit", "old": "vieux", "house": "logis", "Paul": "Paul"}


def written(path: Path, lines: Sequence[str]) -> str:
    text = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path.name


def corpus(n: int, *, seed: int = 1) -> tuple[list[str], list[str]]:
    """Sentences, and their words in another language in any order."""
    draw = random.Random(seed)
    sources = [draw.sample([*WORDS], k=draw.randint(2, 6)) for _ in range(n)]
    targets = [[WORDS[word] for word in draw.sample(words, k=len(words))] for words in sources]
    return [" ".join(words) for words in sources], [" ".join(words) for words in targets]


def aligned(folder: Path, sources: Sequence[str], targets: Sequence[str], *more: str, ending: str = "") -> list[str]:
    ran = run(
        ["align", written(folder / f"a.en{ending}", sources), written(folder / f"a.fr{ending}", targets), *more], folder
    )
    assert ran.code == 0, ran.err
    return ran.out.decode().split("\n")[:-1]


def test_words_are_linked_with_their_translations_also_where_the_order_changes(tmp_path: Path) -> None:
    sources, targets = corpus(300)
    lines = aligned(
        tmp_path, [*sources, "the old cat sees Paul", "", "the dog"], [*targets, "le chat vieux voit Paul", "", ""]
    )
    assert lines[-3:] == ["0-0 1-2 2-1 3-3 4-4", "", ""]


def test_punctuation_and_capitals_are_no_part_of_a_word_and_links_are_between_white_space(tmp_path: Path) -> None:
    sources, targets = corpus(300)
    lines = aligned(tmp_path, [*sources, "The DOG, the cat!"], [*targets, "«Le chien, le  chat !"])
    assert lines[-1] == "0-0 1-1 2-2 3-3 3-4"


def test_a_comma_beside_a_word_links_it_with_no_other_word() -> None:
    assert tokens_of("dog,") == [("dog", 0), (",", 1)]
    assert tokens_of("(L'Été)...") == [("(", 1), ("l", 0), ("été", 0), (")", 1), (".", 1)]
    assert tokens_of("?!") == [("?", 2), ("!", 2)]
    assert tokens_of("--") == [("-", 2)]


def test_the_output_is_a_file_and_the_inputs_may_be_compressed(tmp_path: Path) -> None:
    plain = aligned(tmp_path, *corpus(50))
    assert aligned(tmp_path, *corpus(50), "--output", "links", ending=".gz") == []
    assert (tmp_path / "links").read_text().split("\n")[:-1] == plain
    refused(["align", "a.en", "a.fr", "--output", "links"], tmp_path, code=2, says=["links: exists already"])
    assert aligned(tmp_path, *corpus(50, seed=2), "--output", "links", "--overwrite") == []
    assert (tmp_path / "links").read_text().split("\n")[:-1] != plain


def test_many_pairs_and_many_words_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = aligned(tmp_path, *corpus(60))
    monkeypatch.setattr(word_corpus, "_PAIRS_AT_A_TIME", 7)
    assert aligned(tmp_path, *corpus(60)) == plain
    monkeypatch.setattr(word_corpus, "_MOST_WORDS", 4)  # the others share numbers
    assert len(aligned(tmp_path, *corpus(60))) == 60


@each(
    "sources, targets, code, says",
    [
        (["a", "b"], ["a"], 3, "a.fr: has 1 lines, a.en 2. Make line n of one the translation of line n of the other"),
        (["a"], ["a", "b", "c"], 3, "a.fr: has 3 lines, a.en 1"),
        ([], ["a"], 3, "a.en: is empty"),
        (["a"], [], 3, "a.fr: is empty"),
    ],
)
@each("more", [[], ["--checkpoint", "m"]])
def test_texts_that_are_no_pairs_are_refused(
    tmp_path: Path, sources: list[str], targets: list[str], code: int, says: str, more: list[str]
) -> None:
    (tmp_path / "m").write_bytes(packed(model_file(seed=2)))
    names = written(tmp_path / "a.en", sources), written(tmp_path / "a.fr", targets)
    refused(["align", *names, *more, "--output", "links"], tmp_path, code=code, says=[says])
    assert not (tmp_path / "links").exists()


def test_what_is_not_given_or_not_there_is_said(tmp_path: Path) -> None:
    written(tmp_path / "a.fr", ["a"])
    written(tmp_path / "blank", [""])
    refused(["align", "blank", "a.fr"], tmp_path, code=3, says=["blank: no pair has text on both sides"])
    refused(
        ["align", "a.fr"],
        tmp_path,
        code=2,
        says=["tfm align: takes a text and its translation", "tfm align train.en"],
    )
    refused(["align", "a.en", "a.fr"], tmp_path, code=3, says=["a.en: no such file. Check --source"])
    refused(["align", "a.fr", "a.fr", "--output", "a.fr", "--overwrite"], tmp_path, code=2, says=["both --source"])
    refused(["align", "a.fr", "a.fr", "device=cpu"], tmp_path, code=2, says=["device: of a model", "--checkpoint"])
    (tmp_path / "latin1").write_bytes("é\n".encode("latin-1"))
    refused(["align", "a.fr", "latin1"], tmp_path, code=3, says=["latin1:1: byte 0xe9"])


# ---- By a model


def test_a_model_gives_the_links_that_it_gives_of_its_own_translations(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(packed(model_file(seed=2)))
    written(tmp_path / "a.en", ["a b c", "", "d e", "f"])
    options = ["--checkpoint", "m", "device=cpu", "engine=torch", "decode.max_extra_length=3"]
    ran = run(["translate", *options, "--input", "a.en", "--output", "a.fr", "--alignments", "links"], tmp_path)
    assert ran.code == 0, ran.err
    ran = run(["align", "a.en", "a.fr", *options[:3]], tmp_path)
    rows, wanted = (text.split("\n") for text in (ran.out.decode(), (tmp_path / "links").read_text()))
    assert [set(row.split()) for row in rows] == [set(row.split()) for row in wanted]
    assert any(rows)


def test_a_model_links_every_word_of_a_translation_once(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(packed(model_file(seed=2)))
    sources = ["a b c", "", "d", "\u200b e \u200b f"]
    lines = aligned(tmp_path, sources, ["c b", "a", "", "e é"], "--checkpoint", "m", "device=cpu")
    assert [sorted(link.split("-")[1] for link in line.split()) for line in lines] == [["0", "1"], [], [], ["0", "1"]]
    assert {link.split("-")[0] for link in lines[3].split()} <= {"1", "3"}  # the words that are not format characters


def test_tags_are_no_words(tmp_path: Path) -> None:
    write_model(tmp_path / "m", tagged_model())
    model = ["--checkpoint", "m", "device=cpu"]
    by_flag = aligned(tmp_path, ["a b c", "d"], ["c b", "d"], *model, "--tag", "<2de>")
    assert aligned(tmp_path, ["<2de> a b c", "<2de> d"], ["c b", "d"], *model) == by_flag
    assert by_flag[1] == "0-0"


@pytest.mark.slow  # the tags of lines are read by the test before
@each("kind", ["nllb", "nllb, tag behind the text", "m2m100"])
def test_tokens_of_languages_are_no_words(tmp_path: Path, kind: str) -> None:
    if kind == "m2m100":
        m2m100(tmp_path / kind)
    else:
        nllb(tmp_path / kind, legacy=kind != "nllb")
    model = f"{kind}.safetensors"
    imported = run(["import", "hf", kind, "--output", model, "compare=false"], tmp_path)
    assert imported.code == 0, imported.err
    lines = ["cat sat", "dog"]
    rows = aligned(tmp_path, lines, lines, "--checkpoint", model, "device=cpu", "--from", "de", "--to", "fr")
    assert [sorted(link.split("-")[1] for link in row.split()) for row in rows] == [["0", "1"], ["0"]]
    assert {link.split("-")[0] for link in rows[0].split()} <= {"0", "1"}


# ---- What it is for


@pytest.mark.slow
def test_the_links_are_those_that_guided_alignment_takes(tmp_path: Path) -> None:
    sources, targets = corpus(60)
    assert aligned(tmp_path, sources, targets, "--output", "links") == []
    small = [
        "model.n_encoder_layers=1",
        "model.n_decoder_layers=1",
        "model.d_model=16",
        "model.n_heads=2",
        "model.d_ff=16",
    ]
    ran = run(
        [
            *(
                "train",
                "data=files",
                "data.train=[a.en,a.fr]",
                "data.source_lang=en",
                "data.target_lang=fr",
                "data.holdout=4",
            ),
            *("data.tokenizer.vocab_size=auto", "train.max_steps=2", "device=cpu", "train.robustness_lines=0", *small),
            *("train.guided_alignment=0.5", "data.alignments=links", "data.drop_duplicates=false", "name=a"),
        ],
        tmp_path,
    )
    assert ran.code == 0, ran.err
    assert b"word alignment: " in ran.err
