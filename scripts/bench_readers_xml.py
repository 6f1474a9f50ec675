"""Compares the readers of TMX, XLIFF and PO with translate-toolkit, and measures a large TMX; benchmarks/data.md.

python scripts/bench_readers_xml.py odd                 30 odd files of each format: the same pairs, or a refusal
python scripts/bench_readers_xml.py large 2             a TMX of 2 GB, which it writes: time and memory
python scripts/bench_readers_xml.py large 0.2 toolkit   the same with translate-toolkit
Needs a Python with tfm and translate-toolkit, which is no dependency of tfm.
"""

import io
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformer_cli.config.data import DataConfig
from transformer_cli.data.formats.base import SourceFile
from transformer_cli.data.registry import FORMATS
from transformer_cli.errors import DataError

Pairs = list[tuple[str, str]]
CONFIG = DataConfig(source_lang="en", target_lang="de")


def ours(name: str, data: bytes) -> Pairs | str:
    """The pairs of a file, or the line that refuses it."""

    @contextmanager
    def opened() -> Iterator[io.BytesIO]:
        yield io.BytesIO(data)

    try:
        rows = FORMATS[name].table(SourceFile("file", Path("file"), None, opened), CONFIG).rows
        return [(source, target) for source, target in rows]
    except DataError as error:
        return str(error)


# ---- translate-toolkit


def toolkit_tmx(data: bytes) -> Pairs:
    from translate.storage import tmx

    found = []
    for unit in tmx.tmxfile.parsestring(data).units:
        texts: dict[str, str] = {}
        for node in unit.getlanguageNodes():
            language = node.get("{http://www.w3.org/XML/1998/namespace}lang") or node.get("lang") or ""
            texts.setdefault(language.lower().partition("-")[0], unit.getNodeText(node, "default") or "")
        if "en" in texts and "de" in texts:
            found.append((texts["en"], texts["de"]))
    return found


def toolkit_xliff(data: bytes) -> Pairs:
    from translate.storage import xliff, xliff2

    store = (xliff2.Xliff2File if b'version="2' in data else xliff.xlifffile).parsestring(data)
    found = []
    for unit in store.units:
        is_second = isinstance(unit, xliff2.Xliff2Unit)
        # Its own isfuzzy() is true of every unit of 1.2 that is not approved, as few are.
        state = "needs-" * unit.isfuzzy() if is_second else unit.target_dom is not None and unit.target_dom.get("state")
        if (
            unit.target
            and unit.istranslatable()
            and (unit.isapproved() or not str(state or "").startswith(("needs-", "new")))
        ):
            found.append((str(unit.source), str(unit.target)))
    return found


def toolkit_po(data: bytes) -> Pairs:
    from translate.storage import pypo

    found = []
    for unit in pypo.pofile(io.BytesIO(data)).units:
        if unit.isheader() or unit.isobsolete() or unit.isfuzzy() or not unit.istranslated():
            continue
        if unit.hasplural():
            found += list(zip(unit.source.strings, unit.target.strings, strict=True))
        else:
            found.append((str(unit.source), str(unit.target)))
    return found


TOOLKIT: dict[str, Callable[[bytes], Pairs]] = {"tmx": toolkit_tmx, "xliff": toolkit_xliff, "po": toolkit_po}


# ---- Odd files


def memory(*units: str, head: str = '<?xml version="1.0" encoding="utf-8"?>\n') -> str:
    header = '<header creationtool="x" creationtoolversion="1" segtype="sentence" o-tmf="x" adminlang="en"'
    units_of = "".join(units)
    return f'{head}<tmx version="1.4">{header} srclang="en" datatype="plaintext"/><body>{units_of}</body></tmx>'


def pair(source: str = "one", target: str = "eins", en: str = "en", de: str = "de", key: str = "xml:lang") -> str:
    return f'<tu><tuv {key}="{en}"><seg>{source}</seg></tuv><tuv {key}="{de}"><seg>{target}</seg></tuv></tu>\n'


def odd_memories() -> dict[str, bytes]:
    entity = '<!DOCTYPE tmx [<!ENTITY a "haha"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]>\n'
    outside = '<!DOCTYPE tmx [<!ENTITY b SYSTEM "file:///etc/hostname">]>\n'
    three = "<tu><tuv xml:lang='fr'><seg>un</seg></tuv>{}<tuv xml:lang='en'><seg>one</seg></tuv></tu>"
    texts = {
        "plain": memory(pair(), pair("two", "zwei")),
        "no declaration": memory(pair("é", "ß"), head=""),
        "document type": memory(pair(), head='<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'),
        "byte order mark": "\ufeff" + memory(pair("é", "ß")),
        "regions": memory(pair(en="en-US", de="de-AT")),
        "capitals": memory(pair(en="EN-GB", de="DE")),
        "attribute lang": memory(pair(key="lang")),
        "two variants": memory(pair().replace("<tuv", "<tuv xml:lang='en-GB'><seg>first</seg></tuv><tuv", 1)),
        "three languages": memory(three.format("<tuv xml:lang='de'><seg>eins</seg></tuv>"), three.format("")),
        "other order": memory(pair("eins", "one", en="de", de="en")),
        "empty segments": memory(pair("", ""), pair("two", ""), "<tu/>"),
        "character data": memory(pair("<![CDATA[a < b & c]]>", "x")),
        "references": memory(pair("&lt;b&gt; &amp;amp; &#233;&#x1F600;", "&quot;ja&quot;")),
        "comments": memory(pair("a<!-- no -->b", "x"), "<!-- <tu/> -->"),
        "instructions": memory("<?x y?>", pair("a<?x y?>b", "x")),
        "notes and properties": memory(pair().replace("<tu>", "<tu><note>n</note><prop type='x'>p</prop>")),
        "highlighted": memory(pair("<hi>very <hi>good</hi></hi> text", "x")),
        "tags without code": memory(pair("Press <bpt i='1'/>Save<ept i='1'/> now", "x")),
        "tags with code": memory(pair("Press <bpt i='1'>&lt;b></bpt>Save<ept i='1'>&lt;/b></ept>", "x")),
        "line break": memory(pair("one<ph type='lb'>&lt;br/></ph>two", "x")),
        "indented": memory(pair("\n    over\n    lines\n  ", "x")),
        "returns": memory(pair("one", "eins\nzwei")).replace("\n", "\r\n"),
        "no-break space": memory(pair("a\u00a0b\u2028c", "\u202bx\u202c")),
        "long": memory(pair("long " * 100_000 + "end", "x")),
        "control character": memory(pair("a\x0bb", "x")),
        "control reference": memory(pair("a&#x1F;b", "x")),
        "bomb": memory(pair("&b;", "x"), head=entity),
        "outside": memory(pair("&b;", "x"), head=outside),
        "cut short": memory(pair(), pair())[:-60],
        "unknown entity": memory(pair("a&nbsp;b", "x")),
    }
    found = {name: text.encode() for name, text in texts.items()}
    for encoding in ("utf-16", "iso-8859-1", "windows-1252", "shift_jis"):
        text = "日本" if encoding == "shift_jis" else "é"
        found[encoding] = memory(pair(text, "x"), head=f'<?xml version="1.0" encoding="{encoding}"?>\n').encode(
            encoding
        )
    return found


def document(*units: str, languages: str = 'source-language="en" target-language="de"') -> str:
    names = 'xmlns="urn:oasis:names:tc:xliff:document:1.2"'
    body = "".join(units)
    file = f'<file original="a" datatype="x" {languages}><body>{body}</body></file>'
    return f'<?xml version="1.0"?>\n<xliff version="1.2" {names}>{file}</xliff>'


def unit(source: str = "one", target: str = "eins", state: str = "", of_unit: str = "", after: str = "") -> str:
    return (
        f'<trans-unit id="1" {of_unit}><source>{source}</source><target {state}>{target}</target>{after}</trans-unit>\n'
    )


def second(*segments: str, of_unit: str = "") -> str:
    names = 'xmlns="urn:oasis:names:tc:xliff:document:2.0"'
    units = "".join(f'<unit id="{number}" {of_unit}>{one}</unit>' for number, one in enumerate(segments))
    return f'<xliff version="2.0" {names} srcLang="en" trgLang="de"><file id="f">{units}</file></xliff>'


def segment(source: str = "one", target: str = "eins", state: str = "") -> str:
    return f"<segment {state}><source>{source}</source><target>{target}</target></segment>"


def odd_documents() -> dict[str, bytes]:
    states = ("final", "signed-off", "translated", "needs-translation", "needs-review-translation", "new")
    aside = "<alt-trans><source>a</source><target>b</target></alt-trans><note>n</note>"
    texts = {
        "plain": document(unit(), unit("two", "zwei")),
        **{f"state {state}": document(unit("a", "b"), unit(state=f'state="{state}"')) for state in states},
        "approved": document(unit(of_unit='approved="yes"'), unit("two", "zwei", of_unit='approved="no"')),
        "no target": document(unit(), "<trans-unit id='2'><source>two</source></trans-unit>"),
        "empty target": document(unit(), unit("two", "")),
        "not translated": document(unit(), unit("two", "two", of_unit='translate="no"')),
        "suggestions": document(unit(after=aside)),
        "groups": document(f"<group id='g'>{unit()}<group id='h'>{unit('two', 'zwei')}</group></group>"),
        "g": document(unit('Press <g id="1">Save</g>.')),
        "x": document(unit('one <x id="1"/> two')),
        "bx and ex": document(unit('a <bx id="1"/>b<ex id="1"/>')),
        "ph with code": document(unit('a <ph id="1">{0}</ph> b')),
        "mrk": document(unit('a <mrk mtype="term">term</mrk>')),
        "character data": document(unit("<![CDATA[a < b]]>")),
        "references": document(unit("&lt;b&gt; &#233;")),
        "indented": document(unit("\n   over\n   lines\n")),
        "several files": document(unit()).replace(
            "</xliff>", document(unit("two")).partition(">\n")[2].partition(">")[2]
        ),
        "no target language": document(unit(), languages='source-language="en"'),
        "second": second(segment(), segment("two", "zwei")),
        "second initial": second(segment(), segment("two", "zwei", 'state="initial"')),
        "second final": second(segment(), segment("two", "zwei", 'state="final"')),
        "second pc": second(segment('Press <pc id="1">Save</pc>.')),
        "second segments": second(segment("One.", "Eins.") + segment("Two.", "Zwei.")),
        "cut short": document(unit())[:-30],
        "bomb": document(unit("&a;")).replace("<xliff", '<!DOCTYPE xliff [<!ENTITY a "b">]><xliff', 1),
    }
    found = {name: text.encode() for name, text in texts.items()}
    found["utf-16"] = document(unit("é")).replace('"1.0"', '"1.0" encoding="utf-16"', 1).encode("utf-16")
    return found


PO_HEAD = (
    'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text/plain; charset={}\\n"\n'
    '"Plural-Forms: nplurals=2; plural=n != 1;\\n"\n\n'
)


def odd_catalogues() -> dict[str, bytes]:
    one = 'msgid "one"\nmsgstr "eins"\n\n'
    bodies = {
        "plain": one,
        "fuzzy": one + '#, fuzzy\nmsgid "two"\nmsgstr "zwei"\n',
        "fuzzy and format": one + '#, c-format, fuzzy\nmsgid "two"\nmsgstr "zwei"\n',
        "untranslated": one + 'msgid "two"\nmsgstr ""\n',
        "obsolete": one + '#~ msgid "old"\n#~ msgstr "alt"\n',
        "previous": '#| msgid "won"\n' + one,
        "context": 'msgctxt "menu"\n' + one + 'msgctxt "file"\nmsgid "one"\nmsgstr "ein"\n',
        "comments": "# a\n#. b\n#: c.c:1\n#, c-format\n" + one,
        "plural": 'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] "%d Datei"\nmsgstr[1] "%d Dateien"\n',
        "untranslated plural": one + 'msgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\nmsgstr[1] ""\n',
        "several strings": 'msgid ""\n"a long "\n"text"\nmsgstr ""\n"ein langer "\n"Text"\n',
        "quotes": 'msgid "say \\"yes\\""\nmsgstr "sag „ja“"\n',
        "backslashes": 'msgid "C:\\\\new"\nmsgstr "C:\\\\neu"\n',
        "tabs": 'msgid "a\\tb"\nmsgstr "c\\td"\n',
        "lines": 'msgid "a\\n"\nmsgstr "b\\n"\n',
        "lines within": 'msgid "a\\nb"\nmsgstr "c\\nd"\n',
        "accelerators": 'msgid "_Save &all"\nmsgstr "_Alle &speichern"\n',
        "returns": one.replace("\n", "\r\n"),
        "no blank lines": one.strip() + "\n" + one.replace("one", "two"),
        "spaces": '  msgid   "one"\n  msgstr  "eins"\n',
        "emoji": 'msgid "ok 😀"\nmsgstr "gut 😀"\n',
        "equal": 'msgid "OK"\nmsgstr "OK"\n',
        "keyword within": 'msgid "msgid \\"x\\""\nmsgstr "# y"\n',
        "no end": one.strip(),
        "duplicates": one + one.replace("eins", "eine"),
        "no msgstr": one + 'msgid "two"\n',
        "no quote": one + 'msgid "two\nmsgstr "zwei"\n',
        "other text": one + "plain text\n",
    }
    found = {name: (PO_HEAD.format("UTF-8") + body).encode() for name, body in bodies.items()}
    found["byte order mark"] = b"\xef\xbb\xbf" + found["plain"]
    found["no header"] = one.encode()
    for charset in ("iso-8859-1", "euc-jp", "koi8-r"):
        text = {"euc-jp": "日本", "koi8-r": "да"}.get(charset, "é")
        found[charset] = (PO_HEAD.format(charset) + one.replace("eins", text)).encode(charset)
    return found


def flat(pairs: Pairs) -> Pairs:
    return [(" ".join(source.split()), " ".join(target.split())) for source, target in pairs]


def odd() -> None:
    for name, files in (("tmx", odd_memories()), ("xliff", odd_documents()), ("po", odd_catalogues())):
        counts = {"same pairs": 0, "both refuse": 0, "tfm alone reads": 0, "tfm alone refuses": 0, "other pairs": 0}
        for title, data in files.items():
            mine: Any = ours(name, data)
            try:
                other: Any = TOOLKIT[name](data)
            except Exception as error:  # whatever the other program raises is a refusal
                other = f"{type(error).__name__}: {error}"
            if isinstance(mine, str):
                verdict = "both refuse" if isinstance(other, str) else "tfm alone refuses"
            elif isinstance(other, str):
                verdict = "tfm alone reads"
            else:
                verdict = "same pairs" if flat(mine) == flat(other) else "other pairs"
            counts[verdict] += 1
            if verdict not in ("same pairs", "both refuse"):
                print(f"{name} {title}: {verdict}\n    tfm     {mine!r:.150}\n    toolkit {other!r:.150}")
        print(f"{name}: {len(files)} files: " + ", ".join(f"{n} {what}" for what, n in counts.items() if n))


# ---- A large memory


def write_memory(path: Path, n_bytes: int) -> int:
    """Write a TMX of random words, a tenth of its units with tags. Returns the number of units."""
    generator = random.Random(1)
    words = ["".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=generator.randint(2, 9))) for _ in range(5000)]
    head, tail = memory().split("<body>")
    n_units = size = 0
    with path.open("w", encoding="utf-8") as file:
        file.write(f"{head}<body>\n")
        while size < n_bytes:
            source, target = (" ".join(generator.choices(words, k=generator.randint(5, 25))) for _ in range(2))
            if n_units % 10 == 0:
                source = source.replace(" ", ' <bpt i="1">&lt;b&gt;</bpt>', 1) + '<ept i="1">&lt;/b&gt;</ept>'
            text = pair(source, target, en="en-US", de="de-DE").replace("<tuv", "\n<tuv")
            size += file.write(text.replace("<tu>", f'<tu tuid="{n_units}"><prop type="x">y</prop>'))
            n_units += 1
        file.write(tail)
    return n_units


def large(gigabytes: float, *, toolkit: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "large.tmx")
        n_units = write_memory(path, int(gigabytes * 1e9))
        size = path.stat().st_size
        began, cpu_before = time.perf_counter(), time.process_time()
        if toolkit:
            n_pairs = len(toolkit_tmx(path.read_bytes()))
        else:
            file = SourceFile(str(path), path, None, lambda: path.open("rb"))
            n_pairs = sum(1 for _ in FORMATS["tmx"].table(file, CONFIG).rows)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_before
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        assert n_pairs == n_units
        speed = f"{seconds:.0f} s, of these {cpu:.0f} s of CPU, {size / cpu / 1e6:.0f} MB for each"
        print(f"{size / 1e9:.2f} GB, {n_pairs:,} pairs: {speed}; {peak:.0f} MiB")


if __name__ == "__main__":
    if sys.argv[1] == "odd":
        odd()
    else:
        large(float(sys.argv[2]), toolkit="toolkit" in sys.argv[3:])
