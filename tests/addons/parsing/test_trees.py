"""Trees in brackets, their linear form, and what a model writes instead of one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.each import each
from transformer_cli.addons.parsing.trees import (
    MOST_NESTED,
    PUNCTUATION,
    Constituent,
    TaggedWord,
    linearize,
    read_linear,
    read_tree,
)

JOHN = "(S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .))"  # Vinyals et al. 2015, figure 2
LABELS = st.sampled_from(["S", "NP", "VP", "PP", "SBAR", "X"])
WORDS = st.builds(
    TaggedWord, st.sampled_from(["NN", "VBD", "DT", *PUNCTUATION]), st.sampled_from(["a", "dog", "(", "1/2"])
)


def trees() -> st.SearchStrategy[Constituent]:
    leaf = st.builds(lambda label, word: Constituent(label, (word,)), LABELS, WORDS)
    return st.recursive(
        leaf,
        lambda inner: st.builds(
            lambda label, parts: Constituent(label, tuple(parts)),
            LABELS,
            st.lists(st.one_of(inner, WORDS), min_size=1, max_size=3),
        ),
        max_leaves=12,
    )


def test_the_linear_form_is_that_of_the_paper() -> None:
    assert linearize(read_tree(JOHN)) == "(S (NP XX )NP (VP XX (NP XX XX )NP )VP . )S"


@given(trees())
def test_trees_come_back_from_brackets(tree: Constituent) -> None:
    assert read_tree(str(tree)) == tree


@given(trees())
def test_trees_come_back_from_their_linear_form_and_their_words(tree: Constituent) -> None:
    def plain(part: Constituent) -> Constituent:
        """Tags of words are no part of the linear form."""
        parts = [
            plain(one)
            if isinstance(one, Constituent)
            else TaggedWord(one.tag if one.tag in PUNCTUATION else "XX", one.text)
            for one in part.parts
        ]
        return Constituent(part.label, tuple(parts))

    assert read_linear(linearize(tree), [word.text for word in tree.words()]) == (plain(tree), False)


def test_a_tree_of_the_penn_treebank_is_read_as_parsers_are_scored() -> None:
    written = """( (S
        (NP-SBJ-1 (NNP Mr.) (NNP Vinken) )
        (VP (VBZ is)
          (NP-PRD (NP (NN chairman) ) (-LRB- -LRB-) (ADJP (JJ and\\/or) ) (-RRB- -RRB-) )
          (S (NP-SBJ (-NONE- *-1) ) (VP=2 (VB go) )))
        (. .) ))"""
    tree = read_tree(written)
    assert [word.text for word in tree.words()] == ["Mr.", "Vinken", "is", "chairman", "(", "and/or", ")", "go", "."]
    assert str(tree) == (
        "(S (NP (NNP Mr.) (NNP Vinken)) (VP (VBZ is) (NP (NP (NN chairman)) (-LRB- -LRB-) (ADJP (JJ and/or))"
        " (-RRB- -RRB-)) (S (VP (VB go)))) (. .))"
    )


@each(
    "text, says",
    [
        ("", "no tree"),
        ("dog", "does not begin with a bracket"),
        ("(S (NP (NN dog))", "not closed"),
        ("(S (NP (NN dog", "3 brackets are not closed"),
        ("(S (NN dog)) (S (NN cat))", "goes on behind its last bracket"),
        ("(S (NN dog cat))", "'cat' stands without a tag"),
        ("(S dog (NN cat))", "'dog' stands without a tag"),
        ("(S ((dog)))", "has no words"),
        ("(S (NP (-NONE- *)))", "has no words"),
        ("(X " * (MOST_NESTED + 1), "constituents one within another"),
    ],
)
def test_what_is_no_tree_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("(", r"\(")):
        read_tree(text)


@each(
    "written, tree",
    [
        ("(S (NP XX XX )NP (VP XX", "(S (NP (XX the) (XX cat)) (VP (XX slept)))"),  # not finished
        ("(S (NP XX XX (VP XX )VP )S", "(S (NP (XX the) (XX cat) (VP (XX slept))))"),  # )NP is missing
        ("(S (NP XX XX )NP )VP XX )S", "(S (NP (XX the) (XX cat)) (XX slept))"),  # )VP closes nothing
        ("(S (NP XX XX )NP )S", "(S (NP (XX the) (XX cat)) (XX slept))"),  # a word is missing
        ("(S (NP XX XX )NP (VP XX (NP XX )NP )VP )S", "(S (NP (XX the) (XX cat)) (VP (XX slept)))"),  # one too many
        ("(NP XX XX )NP (VP XX )VP", "(S (NP (XX the) (XX cat)) (VP (XX slept)))"),  # two trees
        ("", "(S (XX the) (XX cat) (XX slept))"),
        ("(NP " * 2000, "(S (XX the) (XX cat) (XX slept))"),
    ],
)
def test_what_a_model_writes_becomes_a_tree_of_the_words(written: str, tree: str) -> None:
    found, is_repaired = read_linear(written, ["the", "cat", "slept"])
    assert (str(found), is_repaired) == (tree, True)


@given(st.lists(st.sampled_from(["(S", "(NP", ")S", ")NP", "XX", ".", "(", ")", "dog"])), st.integers(1, 6))
def test_whatever_is_written_the_tree_has_exactly_the_words(symbols: list[str], n_words: int) -> None:
    words = [f"w{n}" for n in range(n_words)]
    tree, _ = read_linear(" ".join(symbols), words)
    assert [word.text for word in tree.words()] == words
