"""TMX 1.1 to 1.4b: translation memories, of any pair of their languages, with inline tags removed or numbered."""

from collections import Counter
from collections.abc import Iterator, Sequence

from transformer_cli.config.data import DataConfig
from transformer_cli.data.formats.base import N_SAMPLES, Contents, FileFormat, SourceFile, Table
from transformer_cli.data.formats.inline_codes import (
    BREAK,
    PLACEHOLDER,
    TAG,
    alone,
    closing,
    is_break,
    numbered,
    opening,
    plain,
    with_numbered_tags,
)
from transformer_cli.data.formats.sides import NEITHER, Sides
from transformer_cli.data.formats.xml_events import Attributes, XmlReader, root_of
from transformer_cli.data.registry import FORMATS
from transformer_cli.logs import LOGGER

_CODES = {"bpt": TAG, "ept": TAG, "it": TAG, "ut": TAG, "ph": PLACEHOLDER}  # whose content is native code, not text


class _MemoryReader(XmlReader[Sequence[str]]):
    """The texts of each unit; a subclass decides which languages are read, and what becomes of a unit."""

    root, what = "tmx", "a translation memory (TMX)"

    def __init__(self, file: SourceFile) -> None:
        super().__init__(file)
        self.counts: Counter[str] = Counter()  # texts of each language
        self.spellings: dict[str, str] = {}  # of each language the first
        self.n_units = 0
        self.language = ""
        self.is_text = False  # within a <seg> that is collected
        self.depth = 0  # within an element of native code, of which all is left out
        self.kind = ""  # of that element
        self.code: list[str] = []
        self.tag = ""  # for that element, if tags are kept
        self.n_unnamed: Counter[str] = Counter()  # tags of a text that nothing tells from others of their kind
        self.pairs_open: dict[str, str] = {}  # the key of each <bpt> of a text, by the number that <ept> has, too
        self.ends: list[str] = []  # what the end of each <hi> that is open leaves

    def wants(self, language: str) -> bool:
        raise NotImplementedError

    def add(self, text: str) -> None:
        raise NotImplementedError

    def add_unit(self) -> None:
        raise NotImplementedError

    def start(self, name: str, attributes: Attributes) -> None:
        if self.is_text:
            self._start_inline(name, attributes)
        elif name == "seg":
            self.counts[self.language] += 1
            if self.wants(self.language):
                self.is_text = True
                self.n_unnamed.clear()
                self.pairs_open.clear()
                self.collect()
        elif name == "tuv":
            language = attributes.get("xml:lang") or attributes.get("lang") or ""
            self.language = self.spellings.setdefault(language.lower(), language)

    def end(self, name: str) -> None:
        if self.is_text:
            if self.depth:
                self._end_code(name)
            elif name == "seg":
                self.is_text = False
                self.add(plain(self.collected()))
            else:
                self.parts.append(self.ends.pop())
        elif name == "tu":
            self.n_units += 1
            self.add_unit()

    def _start_inline(self, name: str, attributes: Attributes) -> None:
        if self.depth:
            self.depth += 1
        elif name in _CODES or name == "sub":
            self.depth, self.kind = 1, attributes.get("type", "")
            self.code = []
            self.tag = self._kept(name, attributes) if self.file.keeps_tags and name != "sub" else ""
            self.parser.CharacterDataHandler = self.code.append
        elif name == "hi" and self.file.keeps_tags:
            key = self._key("pair", name, attributes.get("x"))
            self.parts.append(opening(key))
            self.ends.append(closing(key))
        else:
            self.parts.append(TAG)
            self.ends.append(TAG)

    def _kept(self, name: str, attributes: Attributes) -> str:
        """The mark of a tag that is kept, which has a key that the tag for it in the other texts of the unit has."""
        x, i = attributes.get("x"), attributes.get("i", "")
        if name == "bpt":
            self.pairs_open[i] = key = self._key("pair", name, x, i)
            return opening(key)
        if name == "ept":
            return closing(self.pairs_open.get(i, f"pair i {i}"))
        return alone(self._key("single", name, x))

    def _key(self, kind: str, name: str, x: str | None, i: str = "") -> str:
        if x or i:
            return f"{kind} x {x}" if x else f"{kind} i {i}"
        self.n_unnamed[name] += 1
        return f"{kind} {name} {self.n_unnamed[name]}"

    def _end_code(self, name: str) -> None:
        self.depth -= 1
        if not self.depth:
            is_line = is_break(self.kind, "".join(self.code))
            self.parts.append(self.tag or (BREAK if is_line else _CODES.get(name, TAG)))
            self.parser.CharacterDataHandler = self.parts.append


class _Pairs(_MemoryReader):
    """Rows of the two languages of a corpus: of several texts of a side the best fit, and of these the first."""

    def __init__(self, file: SourceFile, config: DataConfig) -> None:
        super().__init__(file)
        self.sides = Sides(config, file.name)
        self.texts: list[str | None] = [None, None]
        self.fits = [0, 0]
        self.side = self.fit = 0

    def wants(self, language: str) -> bool:
        self.side, self.fit = self.sides[language]
        return self.side != NEITHER and self.fit > self.fits[self.side]

    def add(self, text: str) -> None:
        self.texts[self.side], self.fits[self.side] = text, self.fit

    def add_unit(self) -> None:
        source, target = self.texts
        if source is not None and target is not None:
            self.rows.append((source, target))
        self.texts, self.fits = [None, None], [0, 0]

    def pairs(self) -> Iterator[Sequence[str]]:
        n_pairs = 0
        for row in self.each():
            n_pairs += 1
            yield row
        if not n_pairs:
            raise self.sides.missing(self.counts, units="unit")
        if n_pairs < self.n_units:
            LOGGER.info("%s: %s of %s units have both languages", self.file.name, f"{n_pairs:,}", f"{self.n_units:,}")
        if self.n_forbidden:
            LOGGER.info("%s: %s control characters were read as spaces", self.file.name, f"{self.n_forbidden:,}")


class _Overview(_MemoryReader):
    """All languages, and the first units."""

    def __init__(self, file: SourceFile) -> None:
        super().__init__(file)
        self.samples: list[dict[str, str]] = []
        self.unit: dict[str, str] = {}
        self.n_written: Counter[str] = Counter()  # texts that are not blank
        self.n_single = self.n_repeated = 0

    def wants(self, language: str) -> bool:
        return True

    def add(self, text: str) -> None:
        self.n_written[self.language] += bool(text)
        self.n_repeated += self.language in self.unit
        self.unit.setdefault(self.language, text)

    def add_unit(self) -> None:
        if len(self.samples) < N_SAMPLES and any(self.unit.values()):
            self.samples.append(dict(zip(self.unit, numbered(*self.unit.values()), strict=True)))
        self.n_single += len(self.unit) < 2
        self.unit = {}

    def contents(self) -> Contents:
        for _ in self.each():
            pass
        languages = {language: self.n_written[language] for language in self.counts}
        samples = [[unit.get(language, "") for language in languages] for unit in self.samples]
        notes = []
        for what, n in (
            ("Units with one language only", self.n_single),
            ("Texts that follow another of their unit and language, and are not used", self.n_repeated),
            ("Control characters that XML forbids, read as spaces", self.n_forbidden),
        ):
            if n:
                notes.append(f"{what}: {n:,}.")
        return Contents(languages, self.n_units, list(samples), notes, is_bilingual=True)


class Tmx(FileFormat):
    what, endings = "a translation memory (TMX)", (".tmx",)
    has_inline_tags = True

    def recognises(self, head: bytes) -> bool:
        return root_of(head) == "tmx"

    def table(self, file: SourceFile, config: DataConfig) -> Table:
        pairs = _Pairs(file, config).pairs()
        rows = with_numbered_tags(pairs, file.name) if file.keeps_tags else pairs
        return Table((config.source_lang, config.target_lang), rows)

    def contents(self, file: SourceFile) -> Contents:
        return _Overview(file).contents()


FORMATS.register("tmx")(Tmx())
