"""html5lib's documents of tree construction: broken HTML of all kinds, which keeps its tags and has each word once."""

import re
from collections import Counter
from html import unescape

import pytest

from tests.conftest import slow
from tests.support.fetched import fetched
from tests.support.marked import MARK, in_order, reversed_order, unmarked
from transformer_cli.addons.documents.document import translate_documents
from transformer_cli.addons.documents.reading import parse

N_DOCUMENTS = 1704  # of html5lib 1.1
TAG = re.compile(r"</?[a-zA-Z][^<>]*>|<!--")


def documents() -> list[str]:
    """What follows `#data` in each file, up to `#errors`."""
    folder = fetched("html5lib") / "html5lib-1.1/html5lib/tests/testdata/tree-construction"
    found: list[str] = []
    for path in sorted(folder.rglob("*.dat")):
        text = path.read_bytes().decode()
        found += (part.split("#errors\n")[0].removesuffix("\n") for part in re.split(r"(?m)^#data\n", text)[1:])
    assert len(found) == N_DOCUMENTS
    return found


def plain(text: str) -> str:
    """The text with entities decoded, and white space as the browser shows it; without what Python's decoder drops."""
    return re.sub(r"\s+", " ", unescape(unmarked(text))).translate(dict.fromkeys((0x10FFFE, 0x10FFFF)))


@pytest.mark.parametrize("stride", [8, slow(1)])
def test_words_in_order_leave_a_document_as_it_was(stride: int) -> None:
    sources = documents()[::stride]
    found = translate_documents(sources, "html", in_order)
    changed = [source for source, one in zip(sources, found, strict=True) if plain(one.text) != plain(source)]
    assert not changed
    for source, one in zip(sources, found, strict=True):
        words = [word for unit in parse(source, "html").units for word in unit.text.split()]
        assert one.text.count(MARK) == sum(re.search(r"\w", word) is not None for word in words), source


@pytest.mark.parametrize("stride", [8, slow(1)])
def test_reversed_words_leave_a_document_its_tags_and_its_letters(stride: int) -> None:
    sources = documents()[::stride]
    found = translate_documents(sources, "html", reversed_order)
    for source, one in zip(sources, found, strict=True):
        assert tags(one.text) == tags(source), source
        assert letters(one.text) == letters(source), source


def tags(text: str) -> Counter[str]:
    # A title shows `<p>` and `&lt;p&gt;` as the same, and `</style> -->` has no comment that could move.
    text = re.sub(r"(?<=test)< /A>|< ?(?=ж)", "", unescape(text))
    return Counter(TAG.findall(unmarked(text)))


def letters(text: str) -> Counter[str]:
    return Counter(plain(text).replace(" ", ""))


def test_what_the_decoder_of_python_drops_and_what_is_in_foreign_elements_is_kept() -> None:
    texts = ["a&#x10FFFE;b &#9999999; c", "<svg><![CDATA[</svg>a]]>", "a</ b>c", "a<!-->b--!>c", "<!--a--!>b"]
    found = [one.text for one in translate_documents(texts, "html", in_order)]
    assert found == [
        "a\U0010fffebж \ufffd cж",
        "<svg><![CDATA[</svg>a]]>",
        "a</ b>cж",
        "a<!-->b--!&gt;cж",
        "<!--a--!>bж",
    ]


def test_a_script_within_the_comment_of_a_script_does_not_end_it() -> None:
    script = "<script><!--<script>a</script>--></script>"
    (found,) = translate_documents([f"a {script} b"], "html", in_order)
    assert found.text == f"aж {script} bж"
