"""Inline elements side by side: what the model is shown, and that the document gets no space that it did not have."""

import random
import re
from collections import Counter
from collections.abc import Sequence
from itertools import product

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.addons.documents.test_markup_properties import texts_of, translated
from tests.support.each import each
from tests.support.marked import MARK, in_order, marked, reversed_order, unmarked
from transformer_cli.addons.documents.document import translate_document
from transformer_cli.addons.documents.reading import parse
from transformer_cli.decoding.results import Translated

TAG = re.compile(r"<[^>]*>")
# Each with a first and a second text in it, which meet without white space.
SIDE_BY_SIDE = {
    "span": "<span>{}</span><span>{}</span>",
    "link": "<a href='x'>{}</a><a href='y'>{}</a>",
    "button": "<button>{}</button><button>{}</button>",
    "label": "<label>{}</label><input name=x><label>{}</label>",
    "image": "{}<img src=x>{}",
    "custom element": "<my-tag>{}</my-tag><my-tag>{}</my-tag>",
    "italics": "<i>{}</i><i>{}</i>",
    "nested": "<b><span>{}</span><span>{}</span></b>",
    "nested twice": "<span><a>{}</a></span><span><a>{}</a></span>",
    "comment in between": "<span>{}</span><!-- and --><span>{}</span>",
    "icon": "{}<i class=icon></i>{}",
}
TEXTS = [("The soup is hot.", "The cake is cold."), ("The soup", "The cake"), ("the soup", "the cake"), ("Soup!", "ok")]


@each("markup, texts", list(product(SIDE_BY_SIDE.values(), TEXTS)))
@each("format_name", ["html", "xml"])
def test_texts_side_by_side_are_apart_for_the_model_and_stay_as_they_are_in_the_document(
    format_name: str, markup: str, texts: tuple[str, str]
) -> None:
    for before, after in product(["", "See "], ["", " now"]):
        source = f"<p>{before}{markup.format(*texts)}{after}</p>"
        if format_name == "xml":
            source = re.sub(r"<(img|input) (\w+)=x>", r"<\1 \2='x'/>", source).replace("class=icon", "class='icon'")
        words = f"{before}{' '.join(texts)}{after}".split()
        assert " ".join(texts_of(source, format_name)).split() == words
        found = translate_document(source, format_name, in_order).text
        assert unmarked(found) == source
        assert found.count(MARK) == len(words)
        backwards = translate_document(source, format_name, reversed_order).text
        assert Counter(TAG.findall(backwards)) == Counter(TAG.findall(source))
        # No word is torn by a tag, and none is joined to another one without a tag.
        pieces = [piece for text in TAG.split(backwards) for piece in text.split()]
        assert Counter(pieces) == Counter(map(marked, words))


@each(
    "html, text",
    [
        ("<b>H</b>ello", "Hello"),
        ("un<i>believ</i>able", "unbelievable"),
        ("<b>un</b><i>believable</i>", "unbelievable"),
        ("<span class=cap>H</span><span>ello</span>", "Hello"),
        ("un<!-- x -->believ<wbr>able", "unbelievable"),
        ("H<sub>2</sub>O", "H2O"),
        ("x<sup>2</sup>", "x2"),
        ("the 10<sup>th</sup>", "the 10th"),
        ("<a>dog</a>s", "dogs"),
        ("<b>it</b>'s", "it's"),
        ("<b>well</b>-known", "well-known"),
        ("<b>the cats’</b><i>s</i>", "the cats’s"),
        ('(<b>dog</b>), "<i>cat</i>"!', '(dog), "cat"!'),
        ("<b>dog</b><i>.</i>", "dog."),
        ("3.<b>5</b> and <i>e.</i>g.", "3.5 and e.g."),
        ("www.<b>cats</b>.org {<i>name</i>} a@<i>b</i>.org", "www.cats.org {name} a@b.org"),
        ("你<b>好</b>。<b>蛋糕</b>", "你好。蛋糕"),
        ("हिन्<b>दी</b>", "हिन्दी"),
        ("<ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp>字<rt>ji</rt></ruby>だ", "漢字だ"),
    ],
)
def test_letters_of_one_word_stay_together(html: str, text: str) -> None:
    assert texts_of(html, "html") == [text]
    if text.isascii():  # Chinese has no alignment of words
        assert unmarked(translate_document(html, "html", in_order).text) == html


@each(
    "html, texts",
    [
        ("a dog<sup>[1]</sup><sup>[2]</sup>, you", ["a dog [1] [2], you"]),  # no sentence ends at a note
        ("a dog<sup>1</sup> sat", ["a dog 1 sat"]),
        ("<b>Note</b>This is it", ["Note This is it"]),
        ("hot.<b>Then</b> cold:<i>the cake</i>", ["hot. Then cold: the cake"]),
        ("<a>Home</a>|<a>About us</a>", ["Home | About us"]),
        ("<a>Home</a>/<a>About us</a>", ["Home / About us"]),
        ("<a>首页</a><a>关于</a>", ["首页", "关于"]),
        ("<a>#cats</a><a>#dogs</a><a>@ana</a>", ["#cats #dogs @ana"]),
        ("<a>soup</a><a>- cake</a>", ["soup - cake"]),
        ("<a>See ‘the cats’</a><span>17</span>", ["See ‘the cats’ 17"]),  # a quotation, and no apostrophe
        ("Sum<button>save</button>it", ["Sum save it"]),
        ("<a>http://a.b/c</a><a>http://d.e/f</a>x", ["http://a.b/c http://d.e/f x"]),
        ("5 <code>cats</code><code>dogs</code> sat", ["5 catsdogs sat"]),  # both are kept, as one
    ],
)
def test_what_is_no_word_is_apart(html: str, texts: list[str]) -> None:
    assert texts_of(html, "html") == texts
    assert unmarked(translate_document(html, "html", in_order).text) == html


@each(
    "format_name, document, texts",
    [
        ("xml", "<p><my-em>H</my-em>ello<!-- x --> and<x:y/>more</p>", ["Hello and more"]),
        ("markdown", "[The soup](x)[The cake](y)\n", ["The soup", "The cake"]),
        ("markdown", "a [soup](x)[cake](y) **b**i\n", ["a soup cake bi"]),
        ("markdown", "*The soup.*![x](y)*The cake.*\n", ["The soup.", "The cake."]),
        ("srt", "1\n00:00:01,000 --> 00:00:02,000\n<i>The soup.</i><i>The cake.</i>\n", ["The soup.", "The cake."]),
        (
            "srt",
            "1\n00:00:01,000 --> 00:00:02,000\n<i>The soup</i><b>Is hot</b>\nand I know.\n",
            ["The soup Is hot and I know."],
        ),
        ("po", 'msgid "<b>The soup.</b><b>The cake.</b>"\nmsgstr ""\n', ["The soup.", "The cake."]),
    ],
)
def test_joints_in_every_format(format_name: str, document: str, texts: list[str]) -> None:
    found = [text for text in texts_of(document, format_name) if text != "x"]  # of the image
    assert found == texts
    once = translate_document(document, format_name, in_order).text
    if format_name != "po":
        assert unmarked(once) == document
    else:
        assert f'msgstr "<b>The{MARK} soup{MARK}.</b><b>The{MARK} cake{MARK}.</b>"' in once


@st.composite
def inline(draw: st.DrawFn, *, depth: int = 3) -> str:
    """Words and elements with white space between some of them."""
    parts: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.integers(0, 5))
        if kind < 3 or depth == 0:
            parts.append(draw(st.sampled_from(["cat", "Dog", "Sat.", "(milk)", "5", "it", "x-y", "“ok”"])))
        elif kind < 5:
            name = draw(st.sampled_from(["a", "b", "i", "span", "button", "my-x"]))
            parts.append(f"<{name}>{draw(inline(depth=depth - 1))}</{name}>")
        else:
            parts.append(draw(st.sampled_from(["<img>", "<wbr>", "<!-- x -->"])))
        parts.append(draw(st.sampled_from(["", "", " "])))
    return "".join(parts)


@given(inline())
@settings(max_examples=100, deadline=None)
def test_a_document_whose_words_stay_in_order_has_its_tags_and_spaces_where_they_were(content: str) -> None:
    source = f"<p>{content}</p>"
    found = translate_document(source, "html", in_order).text
    assert re.sub(r"\s+", "", unmarked(found)) == re.sub(r"\s+", "", source)
    assert len(TAG.sub("", found).split()) == len(TAG.sub("", source).split())
    for unit in parse(source, "html").units:
        assert all(unit.text[offset] == " " for offset in unit.joints)


@given(inline())
@example("cat<a><a>Dogcatcat</a><img></a>Dog")
@example("See cat<a><b>Bird</b><img></a>Dog now")
@example("See cat<a><img><b>Bird</b></a>Dog now")
@settings(max_examples=100, deadline=None)
def test_reversed_words_keep_all_tags_and_are_not_joined(content: str) -> None:
    source = f"<p>{content}</p>"
    found = translate_document(source, "html", reversed_order).text
    assert Counter(TAG.findall(found)) == Counter(TAG.findall(source))
    assert Counter(re.sub(r"\s", "", TAG.sub("", unmarked(found)))) == Counter(re.sub(r"\s", "", TAG.sub("", source)))
    # Two words that stand without white space have a tag between them.
    assert not re.search(rf"{MARK}[^\w\s<>]*\w", found)


class Foreign:
    """A translator whose words share no letters with the source, in an order of its own."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.sources: dict[str, tuple[str, int]] = {}  # text and number of the word that each word translates

    def __call__(self, texts: Sequence[str]) -> list[Translated]:
        return [self.one(text) for text in texts]

    def one(self, text: str) -> Translated:
        order = list(range(len(text.split())))
        if self.random.random() < 0.5:
            self.random.shuffle(order)
        words = []
        for i in order:
            letters = "".join(self.random.choices("жщюяфц", k=self.random.randint(1, 9)))
            words.append(f"{letters}{len(self.sources)}")
            self.sources[words[-1]] = text, i
        return translated(" ".join(words), [(i, j) for j, i in enumerate(order)])


@given(inline(), st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_no_tag_is_within_a_word_unless_its_source_has_one_within_it(content: str, seed: int) -> None:
    source = f"<p>{content}</p>"
    translator = Foreign(seed)
    found = translate_document(source, "html", translator)
    units = {unit.text.strip(): unit for unit in parse(source, "html").units}
    for word, (text, i) in translator.sources.items():
        is_whole = re.search(rf"(?<![ж-я]){word}(?!\d)", found.text)
        start, end = [match.span() for match in re.finditer(r"\S+", text)][i]
        has_tag = any(start < tag.offset < end for tag in units[text].tags)
        assert is_whole or has_tag, (word, text.split()[i])
