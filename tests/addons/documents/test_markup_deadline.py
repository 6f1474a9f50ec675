"""The check of a deadline while a document is read: within a long text, too, and not only between two."""

from tests.support.each import each
from tests.support.marked import in_order
from transformer_cli.addons.documents.document import translate_documents

N = 2000  # parts of a text
LONG = {
    "html": f"<p>{'<b>a</b> ' * N}</p>",
    "xml": f"<a>b {'<b>c</b> ' * N}</a>",
    "po": f'msgid "{"A." + chr(92) + "n"}{"a" + chr(92) + "n"}{("a" + chr(92) + "n") * N}"\nmsgstr ""\n',
    "xliff": f"<xliff><trans-unit><source>a {'<g>b</g> ' * N}</source></trans-unit></xliff>",
    "ts": "<TS><message><source>A a" + "\na" * N + "</source><translation type='unfinished'/></message></TS>",
    "tmx": f"<tmx><header srclang='en'/><tu><tuv xml:lang='en'><seg>a {'<hi>b</hi> ' * N}</seg></tuv></tu></tmx>",
    "json": f'["A{chr(92)}na{(chr(92) + "na") * N}"]',
    "properties": f"a = A{chr(92)}na{(chr(92) + 'na') * N}",
    "strings": f'"a" = "A{(chr(10) + "a") * N}";',
    "stringsdict": f"<plist><dict><key>a</key><string>A{(chr(10) + 'a') * N}</string></dict></plist>",
    "xcstrings": f'{{"sourceLanguage": "en", "strings": {{"A{(chr(92) + "na") * N}": {{}}}}}}',
    "yaml": "a: >\n" + "  word\n" * N,
    "ass": "[Events]\nDialogue: ,,,,,,,,," + "word\\N" * N,
    "wrapped": "word\n" * N,
    "srt": "1\n00:00:01,000 --> 00:00:02,000\n" + "word word\n" * N,
}


@each("format_name", LONG)
def test_a_deadline_is_checked_while_one_text_is_read(format_name: str) -> None:
    calls: list[int] = []
    translate_documents([LONG[format_name]], format_name, in_order, on_unit=calls.append, languages=("en", "de"))
    # A document of a single text has six checks without those within the text.
    assert len(calls) >= N // 200
    assert max(calls) <= 2, "it is the number of texts, and not of their parts"
