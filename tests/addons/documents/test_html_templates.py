"""Code of templates in HTML, texts of elements that are kept, and references in attributes."""

import re
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.each import each
from tests.support.marked import in_order, reversed_order, unmarked
from transformer_cli.addons.documents.document import translate_document
from transformer_cli.addons.documents.reading import parse

CODE = [
    "<%= user.name %>",
    '<% if a > 1 && b["x"] %>',
    "<%# a remark %>",
    "<?php echo 'x' > 1; ?>",
    '<?= $x["a"] ?>',
    '{% trans "Go" %}',
    "{% if a > b and c < d %}",
    '{{ "<b>" | safe }}',
    "{{{ raw && x }}}",
    "{{ name }}",
    "{# <p>no text</p> #}",
]
PLACES = [
    "<p>Good {} day</p>",
    "{}<p>Good day</p>",
    '<a title="Good {} day" href=x>Go</a>',
    "<img alt='{}' title='Good day'>",
    '<p class="{}" title="Good">A <b>day {}</b> here</p>',
    "<option {} selected>A day</option>",
    "<title>Day {}</title>",
]


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(CODE)), min_size=1, max_size=3))
def test_code_of_a_template_stays_as_it_is_written(parts: list[tuple[str, str]]) -> None:
    parts = [(place, code) for place, code in parts if not ("='{}" in place and "'" in code.partition("php")[0])]
    source = "".join(place.format(code, code) for place, code in parts)
    for translate in (in_order, reversed_order):
        found = translate_document(source, "html", translate).text
        for _, code in parts:
            assert found.count(code) == source.count(code)
    assert unmarked(translate_document(source, "html", in_order).text) == source


@each(
    "source, texts",
    [
        ("<p>Hi <%= name %>, welcome</p>", ["Hi <%= name %>, welcome"]),
        ("<% if user.admin? %><p>Good day</p><% end %>", ["Good day"]),
        ("<p>Good <% x %>day</p>", ["Good day"]),
        ('<a title="{% trans "Go" %}">Go</a>', ["Go"]),
        ('<a href="<%= url("x") %>" title="A page">Go</a>', ["A page", "Go"]),
        # No code: what is not closed, or goes on in another line.
        ("<p>5 <% 3 and <b>go</b></p>", ["5 <% 3 and go"]),
        ("<p>Use {{ and <b>go</b></p>", ["Use {{ and go"]),
        ("<p>Use {% and\n<b>go</b> %}</p>", ["Use {% and go %}"]),
    ],
)
def test_text_beside_code_is_translated(source: str, texts: list[str]) -> None:
    assert [unit.text for unit in parse(source, "html").units] == texts


@each(
    "element",
    [
        '<textarea placeholder="{}">a b</textarea>',
        '<svg aria-label="{}"><title>a b</title></svg>',
        '<iframe title="{}"></iframe>',
        '<audio title="{}" src=x>a b</audio>',
        '<pre title="{}">a b</pre>',
        '<code title="{}">a b</code>',
    ],
)
@each("around", ["{}", "<p>See {} here</p>", "<p>{} is it</p>", "<p translate=no>See {} here</p>"])
def test_attributes_of_elements_that_are_kept_are_texts(element: str, around: str) -> None:
    for mark_up, is_text in (("", True), (' translate="no"', False), (' class="x notranslate"', False)):
        source = around.format(element.replace('="{}"', f'="Good day"{mark_up}'))
        is_text = is_text and "translate" not in around
        assert ("Good day" in [unit.text for unit in parse(source, "html").units]) == is_text
        for translate, shown in ((in_order, "Goodж dayж"), (reversed_order, "dayж Goodж")):
            found = translate_document(source, "html", translate).text
            assert (f'="{shown}"' in found) == is_text
            assert Counter(re.findall(r"\w+", unmarked(found))) == Counter(re.findall(r"\w+", source))
            assert found.count("a b") == source.count("a b")


def test_an_empty_element_that_is_not_translated_keeps_its_attributes() -> None:
    assert parse('<p class="notranslate"><img alt="A b"></p><img class="notranslate" alt="A b">', "html").units == ()


@each(
    "written, text",
    [
        # "Named character reference state" of HTML: https://html.spec.whatwg.org/multipage/parsing.html
        ("x&copy=2", "x&copy=2"),
        ("x&copyx", "x&copyx"),
        ("x&copy;=2", "x©=2"),
        ("x&copy 2", "x© 2"),
        ("x&copy", "x©"),
        ("x&notit;", "x&notit;"),
        ("x&lt&gt;", "x<>"),
        ("x&amp;copy;", "x&copy;"),
        ("x&#38;copy;&#x26=2", "x&copy;&=2"),
        ("x&zzz;&b & c", "x&zzz;&b & c"),
    ],
)
def test_references_in_attributes_are_decoded_as_browsers_do(written: str, text: str) -> None:
    (unit,) = parse(f'<img alt="{written}">', "html").units
    assert unit.text == text
    assert unit.escape(text).count("&amp;") == text.count("&")
