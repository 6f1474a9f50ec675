"""A treebank is training text: pairs of a sentence and its tree, and what the built-in one holds."""

import gzip
from collections import Counter
from pathlib import Path

import pytest

from scripts.demo_corpora import trees as grammar
from tests.support.forked import run
from transformer_cli.addons.parsing.trees import read_linear
from transformer_cli.config.compose import load_config
from transformer_cli.data.readers.builtin import FOLDER, read_builtin

TREES = """
( (S (NP-SBJ (DT The) (NN cat))
     (VP (VBD slept)) (. .)) )

(S (NP (PRP She)) (VP (VBD sang)) (. .))
(S (NP (NNP Tom)) (VP (VBD laughed)
  (PP (IN in) (NP (DT the) (NN garden)))) (. .))
"""
RECIPE = ["recipe=parsing", "data=files", "data.source_lang=en", "data.target_lang=en"]


def test_a_treebank_is_listed_with_its_sentences_and_trees(tmp_path: Path) -> None:
    (tmp_path / "wsj.mrg").write_text(TREES)
    (tmp_path / "trees").write_text(TREES)
    for name in ("wsj.mrg", "trees"):
        shown = run(["prepare", "--list", name], tmp_path)
        assert shown.code == 0, shown.err.decode()
        assert shown.out.decode().startswith(f"{name}: a treebank (trees in brackets), 3 rows\n")
        assert b"The cat slept ." in shown.out
        assert b"(S (NP XX XX )NP (VP XX )VP . )S" in shown.out


def test_a_tree_that_is_none_stops_with_its_line_or_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "bad.mrg").write_text(TREES.replace("(VBD sang)", "sang (NN x)"))
    command = ["prepare", *RECIPE, "data.train=bad.mrg", "data.dev=bad.mrg", "data.test=bad.mrg"]
    ran = run(command, tmp_path)
    assert ran.code == 3
    assert b"bad.mrg: line 5: no tree in brackets ('sang' stands without a tag). Correct the tree, or skip" in ran.err


@pytest.mark.parametrize(
    ("faulty", "line"),
    [
        ("(S (NP (PRP She))\n   (VP (VBD sang)) (. .)\n", 2),
        ("(S (NP (PRP She)) (VP (VBD sang)) (. .)\n", 2),
        ("  (S (NP (PRP She))\n     (VP (VBD sang)) (. .)\n", 2),
        ("( (S (NP (PRP She))\n( (S (NP (PRP He))\n", 2),
    ],
)
def test_a_tree_whose_brackets_do_not_close_takes_no_other_with_it(tmp_path: Path, faulty: str, line: int) -> None:
    trees = "".join(f"(S (NP (NNP Tom))\n  (VP (VBD saw) (NP (CD {n}))))\n" for n in range(3_000))
    (tmp_path / "bad.mrg").write_text(f"(S (NP (NN Yes)))\n{faulty}{trees}")
    shown = run(["prepare", "--list", "bad.mrg"], tmp_path)
    assert shown.out.decode().startswith("bad.mrg: a treebank (trees in brackets), 3,001 rows\n")
    assert f"line {line}: no tree in brackets".encode() in shown.out


def test_what_no_bracket_closes_to_the_end_of_the_file_is_one_fault(tmp_path: Path) -> None:
    (tmp_path / "bad.mrg").write_text("(S (NP (NN Yes)))\n(S (NP (NN No))\n  (VP (VB go)\n")
    shown = run(["prepare", "--list", "bad.mrg"], tmp_path).out.decode()
    assert ", 1 rows\n" in shown
    assert "rows that cannot be read: 1, such as\n  line 2: no tree" in shown


@pytest.mark.slow  # trains
def test_a_parser_is_trained_and_scored_by_the_f1_of_its_brackets(tmp_path: Path) -> None:
    pairs = [pair for split in ("dev", "test") for pair in read_builtin("demo_trees", split)]
    trees = [str(read_linear(tree, sentence.split())[0]) for sentence, tree in pairs]
    for name, part in (("train", trees[:700]), ("dev", trees[700:740]), ("test", trees[740:])):
        (tmp_path / f"{name}.mrg").write_text("".join(f"{tree}\n" for tree in part))
    sizes = ["model=tiny", "train.max_steps=4", "train.tokens_per_update=512", "train.eval_every=4", "device=cpu"]
    texts = ["data.train=train.mrg", "data.dev=dev.mrg", "data.test=test.mrg"]
    trained = run(["train", *RECIPE, *texts, *sizes, "train.eval_lines=10", "decode.beam_size=2"], tmp_path)
    assert trained.code == 0, trained.err.decode()
    assert b"bracket F1" in trained.err
    scored = run(["evaluate", "metrics=[bracket_f1]", "decode.beam_size=2", "decode.max_extra_length=60"], tmp_path)
    assert scored.code == 0, scored.err.decode()
    assert b"exact trees" in scored.out


def test_the_recipe_is_that_of_the_paper() -> None:
    config = load_config("train", RECIPE)
    assert (config.decode.beam_size, config.decode.length_penalty, config.decode.max_extra_length) == (21, 0.3, 300)


# ---- The built-in one


@pytest.mark.parametrize("split", ["dev", "test"])
def test_the_built_in_trees_are_those_of_the_grammar(split: str) -> None:
    written = [
        gzip.decompress((FOLDER / "demo_trees" / f"{split}.{side}.gz").read_bytes()).decode()
        for side in ("source", "target")
    ]
    pairs = grammar.generate(split)
    assert written == ["".join(f"{pair[i]}\n" for pair in pairs) for i in (0, 1)]


def test_no_sentence_of_the_test_set_is_trained_on_and_each_tree_holds_its_words() -> None:
    splits = {split: read_builtin("demo_trees", split) for split in ("train", "dev", "test")}
    sentences = Counter(sentence for pairs in splits.values() for sentence, _ in pairs)
    assert max(sentences.values()) == 1
    assert {split: len(pairs) for split, pairs in splits.items()} == grammar.SPLIT_SIZES
    for sentence, tree in splits["test"]:
        found, is_repaired = read_linear(tree, sentence.split())
        assert not is_repaired
        assert [word.text for word in found.words()] == sentence.split()


def test_what_follows_with_decides_where_it_belongs() -> None:
    """The same tags stand for either attachment, so a parser has to know the words."""
    trees = dict(read_builtin("demo_trees", "train"))
    tool = {tree for sentence, tree in trees.items() if sentence.endswith("with a spoon .")}
    content = {tree for sentence, tree in trees.items() if sentence.endswith("with carrots .")}
    assert min(len(tool), len(content)) > 0
    assert all("(PP XX (NP XX XX )NP )PP )VP" in tree for tree in tool)
    assert all("(PP XX (NP XX )NP )PP )NP )VP" in tree for tree in content)
