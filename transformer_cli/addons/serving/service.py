"""What every API asks for: texts in, translations out, within the limits.

A text is translated line by line, as `tfm translate` does it, and put together again with its line ends, indentation
and blank lines.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar

from transformer_cli.addons.documents.document import TranslatedDocument, translate_documents, translate_parsed
from transformer_cli.addons.documents.formats import Format, OpenFile, text_formats
from transformer_cli.addons.documents.plain import LINE_END
from transformer_cli.addons.documents.reading import read_file
from transformer_cli.addons.documents.units import ON_UNIT
from transformer_cli.addons.serving.detection import Detected, detect
from transformer_cli.addons.serving.errors import RequestError
from transformer_cli.addons.serving.glossaries import Dictionary
from transformer_cli.addons.serving.keys import ServeConfig
from transformer_cli.addons.serving.models import ModelTable, ServedModel, Step, decode_keys
from transformer_cli.config.compose import from_plain, to_plain
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.tags import language_of
from transformer_cli.data.context import Context, contexts_of
from transformer_cli.data.normalization import canonical, normalize
from transformer_cli.data.tags import split_tags
from transformer_cli.decoding.batch_queue import Call, GoneError
from transformer_cli.decoding.postprocess import written_ids
from transformer_cli.decoding.records import quality_flags
from transformer_cli.decoding.results import Candidate, Translated, TranslateOptions
from transformer_cli.decoding.terminology import Term, Terminology, words_of
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import CheckpointError, ConfigError, DataError, EnvironmentFault, quoted
from transformer_cli.logs import LOGGER

# How sure it must be that a text is in the target language already, for it to be left as it is.
SURELY_TARGET = 0.8
MOST_DETECTED = 20_000  # characters of a file by which its language is detected
PORTION = 200  # texts of a document that waits for room
ROOM_SECONDS = 0.05  # after which there may be some
_T = TypeVar("_T")


_Observe = Callable[[ServedModel, Sequence[Translated]], object]


@dataclass(frozen=True)
class RequestOptions:
    """The options of a request; those that it does not set are the settings of `tfm serve`."""

    decode: Mapping[str, Any] = field(default_factory=dict)  # keys of the group
    terms: tuple[tuple[str, ...], ...] = ()  # source phrase, and the phrases that its translation may have
    glossaries: tuple[Dictionary, ...] = ()  # whose entries are terms, too; an entry of the first counts first
    prefix: str = ""  # that the translation begins with
    tags: tuple[str, ...] = ()
    alignments: bool = False
    token_scores: bool = False
    retry: bool = False
    format: str = "text"  # of documents
    placeholders: bool = False  # of a plain text: keep {name}, %s, URLs and the like; there are no alternatives then

    @property
    def is_plain(self) -> bool:
        return self.format == "text" and not self.placeholders

    @property
    def is_simple(self) -> bool:
        """Whether one search of each line with the settings of `tfm serve` is enough."""
        has_more = (self.decode, self.terms, self.glossaries, self.prefix)
        asks_more = self.alignments or self.token_scores or self.retry
        return self.is_plain and not asks_more and not any(has_more)


@dataclass(frozen=True)
class TextResult:
    """The translation of one text; of several lines, the numbers are sums and the flags those of any."""

    text: str
    alternatives: list[Candidate]  # other than the best, best first
    score: float
    flags: list[str]
    n_sentences: int
    lines: list[Translated]  # of those that are not blank
    alignment: list[tuple[int, int]] | None = None  # words of the whole source and of the whole translation, from 0
    tokens: list[tuple[str, float]] | None = None


@dataclass(frozen=True)
class TranslationResponse:
    """What a request is answered with; of each text its result, its language, and the models that translated it."""

    results: list[TextResult]
    origins: list[Detected]  # with the codes of the models; confidence 1 where there was nothing to detect
    routes: list[list[Step]]  # empty where a text was in the target language, and was left as it is


@dataclass(eq=False)
class RequestCall(Call):
    """A request's claim on the engines, and what the log says of it."""

    n_characters: int = 0
    n_sentences: int = 0
    models: dict[str, None] = field(default_factory=dict)  # names, in order
    limit: str = "seconds"  # key of `limits` that its deadline is from
    waits: bool = False  # for room in the queue, in which others have theirs beside it
    n_units: int = 0  # texts of documents
    n_done: int = 0  # of these


@dataclass(frozen=True)
class TranslatedFile:
    """A file in another language, with the languages; the file as it was where they are the same."""

    content: bytes
    source: str
    target: str
    flags: tuple[str, ...] = ()  # of any text in it


@dataclass(frozen=True)
class _UnitTools:
    """What documents are translated with."""

    translate: Callable[[Sequence[str]], list[Translated]]
    symbols: list[str]
    on_unit: Callable[[int], None]


class Service:
    """Translates for any number of threads at once. `observe` gets the results of each model."""

    def __init__(self, config: ServeConfig, table: ModelTable, observe: _Observe | None = None) -> None:
        self.config, self.table, self.observe = config, table, observe
        self.lock = threading.Lock()
        self.n_lines = 0  # that requests are waiting for
        self.finished: deque[tuple[float, int]] = deque(maxlen=256)  # when, and how many lines

    def call(self, *, is_awaited: bool = False) -> RequestCall:
        """A claim that ends with the deadline of a request that arrives now."""
        return RequestCall(deadline=time.monotonic() + self.config.limits.seconds, is_awaited=is_awaited)

    def document_call(self) -> RequestCall:
        """A claim of a document that no one waits for in a request."""
        seconds = self.config.limits.document_seconds
        return RequestCall(deadline=time.monotonic() + seconds, limit="document_seconds", waits=True)

    def translate(
        self, texts: Sequence[str], source: str | None, target: str | None, options: RequestOptions, call: RequestCall
    ) -> TranslationResponse:
        """`translate_async` in a thread, which waits."""
        return _finished(self.translate_async(texts, source, target, options, call))

    async def translate_async(
        self, texts: Sequence[str], source: str | None, target: str | None, options: RequestOptions, call: RequestCall
    ) -> TranslationResponse:
        """Raises RequestError: 400 for what cannot be done, 413 for too much, 503 when it is not the time.

        It is never suspended unless `call.is_awaited`, with which the options must be simple.
        """
        self.check_size(texts)
        if options.format not in (known := text_formats()):
            raise RequestError(400, f"format: {quoted(options.format, 40)} is none. Choose one of {', '.join(known)}")
        return await self.any_size_async(texts, source, target, options, call)

    def translate_file(
        self,
        form: Format,
        content: bytes,
        source: str | None,
        target: str,
        call: RequestCall,
        *,
        options: RequestOptions | None = None,
    ) -> TranslatedFile:
        """Translates a file of any size, which the limit on the request's body bounds. Raises RequestError."""
        with self.within_deadline(call):
            known_source, known_target = self.table.source_code(source), self.table.target_code(target)
            opened = self._opened(form, content, (known_source or "", known_target or ""), call)
            texts = [unit.text for document in opened.documents for unit in document.units]
            call.n_characters += sum(map(len, texts))
            if known_source is None:
                (found,) = self.detect(["\n".join(islice(texts, MOST_DETECTED))[:MOST_DETECTED]], known_target)
                known_source = found.language
                if known_source == known_target:
                    return TranslatedFile(content, known_source, known_source)
            route = self.table.route(known_source, known_target)
            tools = self._unit_tools(route, options or RequestOptions(), call)
            documents = translate_parsed(
                opened.documents, tools.translate, symbols=tools.symbols, on_unit=tools.on_unit
            )
            written = opened.write([one.text for one in documents])
            flags = dict.fromkeys(flag for one in documents for flag in _of_document(one, RequestOptions()).flags)
            return TranslatedFile(written, route[0].source, route[-1].target, tuple(flags))

    def _opened(self, form: Format, content: bytes, languages: tuple[str, str], call: RequestCall) -> OpenFile:
        was = ON_UNIT.set(self._counted_units(call))
        try:
            return read_file(form, content, "file", languages)
        except DataError as error:
            raise RequestError(400, str(error)) from error
        finally:
            ON_UNIT.reset(was)

    async def any_size_async(
        self, texts: Sequence[str], source: str | None, target: str | None, options: RequestOptions, call: RequestCall
    ) -> TranslationResponse:
        with self.within_deadline(call):
            return await self._any_size(texts, source, target, options, call)

    async def _any_size(
        self, texts: Sequence[str], source: str | None, target: str | None, options: RequestOptions, call: RequestCall
    ) -> TranslationResponse:
        call.n_characters += sum(map(len, texts))
        table = self.table
        source, target = table.source_code(source), table.target_code(target)
        origins = [Detected(source, 1.0)] * len(texts) if source is not None else self.detect(texts, target)
        routes = {
            origin: [] if source is None and origin == target else table.route(origin, target)
            for origin in dict.fromkeys(one.language for one in origins)
        }
        found: dict[int, TextResult] = {}
        for origin, route in routes.items():
            chosen = [n for n, one in enumerate(origins) if one.language == origin]
            translated = await self._texts([texts[n] for n in chosen], route, options, call)
            found.update(zip(chosen, translated, strict=True))
        results = [found[n] for n in range(len(texts))]
        return TranslationResponse(results, origins, [routes[one.language] for one in origins])

    async def _texts(
        self, texts: Sequence[str], route: Sequence[Step], options: RequestOptions, call: RequestCall
    ) -> list[TextResult]:
        """Texts of one language."""
        if not route:
            return [_unchanged(text) for text in texts]
        if not options.is_plain:
            return self._documents(texts, route, options, call)
        split = [list(_lines(text)) for text in texts]
        of_texts = [[line.text for line in one if line.text] for one in split]
        lines = [line for one in of_texts for line in one]
        self.check_units(len(lines))
        begins = [n == 0 for one in of_texts for n in range(len(one))]
        with self.admitted(len(lines)):
            sizes = _document_sizes(split)
            found = iter(await self.translate_lines(lines, route, options, call, begins=begins, sizes=sizes))
        tags = route[0].model.tags
        return [_joined(one, [next(found) for line in one if line.text], options, tags) for one in split]

    def _documents(
        self, texts: Sequence[str], route: Sequence[Step], options: RequestOptions, call: RequestCall
    ) -> list[TextResult]:
        """Texts with mark-up or placeholders. Tags are placed by alignment, where a model can say it."""
        if options.prefix:
            raise RequestError(400, "prefix: not with mark-up or placeholders. Leave one of them out")
        tools = self._unit_tools(route, options, call)
        try:
            documents = translate_documents(
                texts,
                options.format,
                tools.translate,
                symbols=tools.symbols,
                on_unit=tools.on_unit,
                languages=(route[0].source, route[-1].target),
            )
        except DataError as error:
            raise RequestError(400, str(error)) from error
        return [_of_document(document, options) for document in documents]

    def _unit_tools(self, route: Sequence[Step], options: RequestOptions, call: RequestCall) -> _UnitTools:
        can_align = all(step.model.can_align for step in route)
        symbols = [one for one in route[0].model.symbols if all(one in step.model.symbols for step in route)]
        of_units = replace(options, alignments=can_align, decode={**options.decode, "n_best": 1})

        def translate(units: Sequence[str]) -> list[Translated]:
            call.n_units += len(units)
            found: list[Translated] = []
            for part in self._portions(units, call):
                with self.admitted(len(part), call if call.waits else None):
                    found += _finished(self.translate_lines(part, route, of_units, call))
                call.n_done += len(part)
            return found

        return _UnitTools(translate, symbols, self._counted_units(call))

    def _portions(self, units: Sequence[str], call: RequestCall) -> Iterator[Sequence[str]]:
        """All at once; of one that waits for room, so few that the others have most of it."""
        size = max(1, min(PORTION, self.config.limits.queue // 8)) if call.waits else max(1, len(units))
        return (units[start : start + size] for start in range(0, len(units), size))

    def _counted_units(self, call: RequestCall) -> Callable[[int], None]:
        def on_unit(n_units: int) -> None:
            self.check_units(n_units)
            call.check()

        return on_unit

    def must_detect(self, source: str | None) -> bool:
        return source is None and len({s for s, _, _ in self.table.pairs()}) > 1

    def detect(self, texts: Sequence[str], target: str | None) -> list[Detected]:
        """The language of each text, of those that can be translated into `target`; or that, if it is rather sure."""
        sources = list(dict.fromkeys(s for s, t, _ in self.table.pairs() if target in (None, t)))
        if len(sources) < 2:
            self.table.route(None, target)  # says so if there is none
            return [Detected(source, 1.0) for source in sources] * len(texts)
        return [self._detect(text, sources, target) for text in texts]

    def warm_up(self) -> None:
        """Translate something with each model, and read what detects languages, if there are several to tell apart."""
        for model in self.table.models:
            model.warm_up()
        if len({source for source, _, _ in self.table.pairs()}) > 1:
            self.languages_in("")

    def languages_in(self, text: str) -> list[Detected]:
        """The loaded languages that `text` may be in, likeliest first."""
        return self._detected(text, dict.fromkeys(one for s, t, _ in self.table.pairs() for one in (s, t)))

    def _detect(self, text: str, sources: Sequence[str], target: str | None) -> Detected:
        found = self._detected(text, [*sources, *([] if target is None else [target])])
        others = [one for one in found if one.language != target]
        if not others:
            raise RequestError(400, f"source: none of {', '.join(sources)} can be detected. Name the language")
        return found[0] if found[0].confidence >= SURELY_TARGET else others[0]

    def _detected(self, text: str, languages: Iterable[str]) -> list[Detected]:
        languages = list(languages)
        try:
            found = detect(text, languages)
        except EnvironmentFault as error:
            raise RequestError(400, f"source: {error}, or name the language") from error
        if not found:
            raise RequestError(400, f"source: none of {', '.join(languages)} can be detected. Name the language")
        return found

    async def translate_lines(
        self,
        lines: Sequence[str],
        route: Sequence[Step],
        options: RequestOptions,
        call: RequestCall,
        *,
        begins: Sequence[bool] = (),
        sizes: Sequence[int] | None = None,
    ) -> list[Translated]:
        """One result for each line; through a pivot, the flags and scores are those of the last model.

        `begins` says of each line whether a text begins with it, and its translation with the prefix. `sizes` are the
        numbers of lines of the documents that document-level models read; None: the lines are one.
        """
        if len(route) > 1 and (options.prefix or options.terms or options.glossaries):
            raise RequestError(400, "a prefix, terms or a glossary: not where two models translate one after the other")
        links: list[list[tuple[int, int]] | None] = [None] * len(lines)
        results: list[Translated] = []
        try:
            for n, step in enumerate(route):
                is_last = n == len(route) - 1
                results = await self._one_step(lines, step, options, call, begins=begins, is_last=is_last, sizes=sizes)
                links = [_composed(before, one.alignment) for before, one in zip(links, results, strict=True)]
                lines = [result.text for result in results]
        except (ConfigError, DataError) as error:
            raise RequestError(400, str(error)) from error
        except (CheckpointError, EnvironmentFault) as error:
            LOGGER.error("%s", error)  # it may name files, which are not for clients
            raise RequestError(500, "the model cannot translate this; the server's log says why") from error
        return [replace(result, alignment=link) for result, link in zip(results, links, strict=True)]

    @contextmanager
    def within_deadline(self, call: RequestCall) -> Iterator[None]:
        """Raises RequestError 503 where the deadline of `call` has passed, and GoneError where its client has gone."""
        try:
            yield
        except GoneError:
            if call.is_cancelled and not self._is_late(call):
                raise
            raise RequestError(
                503,
                f"not done within limits.{call.limit}={getattr(self.config.limits, call.limit):g}."
                " Try again later, with less text",
                retry_after=self.retry_after(),
            ) from None

    def _is_late(self, call: Call) -> bool:
        return call.deadline is not None and time.monotonic() >= call.deadline

    async def _one_step(
        self,
        lines: Sequence[str],
        step: Step,
        options: RequestOptions,
        call: RequestCall,
        *,
        begins: Sequence[bool],
        is_last: bool,
        sizes: Sequence[int] | None,
    ) -> list[Translated]:
        decode = self.decode_config(options.decode if is_last else {})
        translate_options = TranslateOptions(
            terminology=self._terminology(options.terms, options.glossaries, lines),
            prefixes=bool(options.prefix),
            retry=options.retry,
            alignments=options.alignments,
            token_scores=options.token_scores and is_last,
            tags=_tags(lines, step, options.tags if is_last else ()),
            warns=False,  # the client reads the flags
        )
        shared = step.model.translator(decode, translate_options)
        contexts: list[Context] | None = None
        if n_context := shared.text.context_sentences:
            contexts = list(contexts_of(lines, n_context, step.model.tags, sizes))
        if call.is_awaited:
            results = await shared.translate_async(lines, call, contexts)
        else:
            translator = shared.for_call(call)
            prefixes = _prefixes(options.prefix, lines, begins, translator)
            results = translator.translate(lines, prefixes=prefixes, contexts=contexts)
        call.models[step.model.name] = None
        call.n_sentences += sum(result.n_parts for result in results) if is_last else 0
        if self.observe is not None:
            self.observe(step.model, results)
        return results

    def decode_config(self, asked: Mapping[str, Any]) -> DecodeConfig:
        """`decode` of the server with the keys of a request. Raises RequestError 400 for what it may not have."""
        if not asked:
            return self.config.decode
        known = list(decode_keys())
        for name in asked:
            if name not in known:
                raise RequestError(
                    400, f"{quoted(str(name))}: no key that a request may have. Choose from {', '.join(known)}"
                )
        values = {**to_plain(self.config.decode), **asked}
        if "beam_size" not in asked:
            if values["search"] != self.config.decode.search:
                values["beam_size"] = DecodeConfig().beam_size if values["search"] == "beam" else 1
                values["n_best"] = asked.get("n_best", 1)
            if values["search"] == "beam" and isinstance(values["n_best"], int):
                values["beam_size"] = max(values["beam_size"], values["n_best"])
        try:
            config: DecodeConfig = from_plain(DecodeConfig, values)
        except ConfigError as error:
            raise RequestError(400, str(error)) from error
        most = self.config.limits.beam_size
        for name in ("beam_size", "n_best", "n_samples"):
            if getattr(config, name) > max(most, getattr(self.config.decode, name)):
                raise RequestError(400, f"{name}={getattr(config, name)}: more than the {most} that this server allows")
        longest = self.config.limits.tokens
        for name in ("max_source_length", "max_extra_length", "min_length"):  # a search cannot be ended by a deadline
            if (getattr(config, name) or 0) > max(longest, getattr(self.config.decode, name) or 0):
                raise RequestError(
                    400, f"{name}={getattr(config, name)}: more than the {longest} tokens that this server allows"
                )
        return config

    def _terminology(
        self, terms: Sequence[Sequence[str]], glossaries: Sequence[Dictionary], lines: Sequence[str]
    ) -> Terminology | None:
        """The terms of the request, and the entries of its glossaries that `lines` have; None without any."""
        found = self._asked_terms(terms)
        for one in glossaries:  # of which only those in the lines are encoded for the search
            for term in one.terminology.within(lines).terms:
                found.setdefault(words_of(canonical(term.source)), term)
        return Terminology(found.values(), name="terms" if terms else "glossary") if found else None

    def _asked_terms(self, terms: Sequence[Sequence[str]]) -> dict[tuple[str, ...], Term]:
        """Terms by their words. Raises RequestError 400 for what is no term, and 413 for too many or too long ones."""
        limits = self.config.limits
        if (n_phrases := sum(map(len, terms))) > limits.terms:
            raise RequestError(
                413, f"terms: {n_phrases:,} phrases, and a request may have {limits.terms:,}. Send those of its texts"
            )
        found: dict[tuple[str, ...], Term] = {}
        for n, phrases in enumerate(terms, start=1):
            if (longest := max(map(len, phrases))) > limits.term_characters:
                raise RequestError(
                    413,
                    f"terms: number {n} has {longest:,} characters, and a phrase may have {limits.term_characters:,}",
                )
            source, *targets = (normalize(phrase) for phrase in phrases)
            if not source or not targets or not all(targets):
                raise RequestError(400, f"terms: number {n} has no source or no target phrase. Give both")
            key = words_of(canonical(source))
            term = found.get(key, Term(source, (), n))
            found[key] = replace(term, targets=(*term.targets, *targets))
        return {key: replace(one, targets=tuple(dict.fromkeys(one.targets))) for key, one in found.items()}

    # ---- Limits

    def check_size(self, texts: Sequence[str]) -> None:
        limits = self.config.limits
        if len(texts) > limits.texts:
            raise RequestError(413, f"{len(texts)} texts, and a request may have {limits.texts}. Send several requests")
        for text in texts:
            if len(text) > limits.characters:
                raise RequestError(
                    413, f"a text of {len(text):,} characters, and it may have {limits.characters:,}. Send it in parts"
                )

    def check_units(self, n_units: int) -> None:
        """Raises RequestError 413 for more lines, or texts within documents, than a request may have."""
        if n_units > (most := self.config.limits.units):
            raise RequestError(413, f"more than {most:,} lines, or texts within mark-up. Send it in parts")

    @contextmanager
    def admitted(self, n_lines: int, waiting: RequestCall | None = None) -> Iterator[None]:
        """Raises RequestError 503 where too much is waiting; a single request may have more than the limit.

        `waiting` waits for room, until it is over.
        """
        while not self._take_room(n_lines):
            if waiting is None:
                raise RequestError(503, "too much is waiting. Try again later", retry_after=self.retry_after())
            waiting.check()
            time.sleep(ROOM_SECONDS)
        try:
            yield
        finally:
            with self.lock:
                self.n_lines -= n_lines
                self.finished.append((time.monotonic(), n_lines))

    def _take_room(self, n_lines: int) -> bool:
        with self.lock:
            if self.n_lines > 0 and self.n_lines + n_lines > self.config.limits.queue:
                return False
            self.n_lines += n_lines
            return True

    def retry_after(self) -> float:
        """Seconds in which what is waiting now will be done, at the rate of the last requests; between 1 and 60."""
        with self.lock:
            n_done, began = sum(n for _, n in self.finished), self.finished[0][0] if self.finished else 0.0
            if not n_done:
                return 1.0
            return min(60.0, max(1.0, self.n_lines * (time.monotonic() - began) / n_done))


def _finished(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of a coroutine that is never suspended."""
    try:
        work.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    raise AssertionError("it is suspended")


def _tags(lines: Sequence[str], step: Step, asked: Sequence[str]) -> tuple[str, ...]:
    """The tags before each line. Raises RequestError 400 for any that ask for another language than the target.

    A line that begins with tags of its own keeps these alone.
    """
    model, of_target = step.model, step.tags
    if not of_target:
        return tuple(asked)
    own = {tuple(tags) for tags in (split_tags(line, model.tags)[0] for line in lines) if tags}
    for tags in (*own, *([asked] if language_of(asked, model.target_lang) else ())):
        if language_of(tags, model.target_lang) != step.target:
            raise RequestError(
                400,
                f"{quoted(' '.join(tags), 80)}: is not the tag for target={step.target}, {' '.join(of_target)}."
                " Leave it out, or name another target",
            )
    return tuple(asked) if language_of(asked, model.target_lang) else (*of_target, *asked)


def _prefixes(
    text: str, lines: Sequence[str], begins: Sequence[bool], translator: Translator
) -> list[tuple[int, ...]] | None:
    """The prefix of each line, empty except for the first line of a text.

    Raises RequestError 400 for a prefix that the model cannot write, or that leaves no room.
    """
    if not text:
        return None
    ids = written_ids(text, translator.tokenizers.target)
    first = [line for line, is_first in zip(lines, begins, strict=True) if is_first]
    rooms = [room for room in translator.room(first) if room is not None]
    if ids is None:
        raise RequestError(400, f"prefix: {quoted(text)} cannot be written with the model's pieces")
    if len(ids) > min(rooms, default=len(ids)):
        raise RequestError(400, f"prefix: {len(ids)} tokens, and the translation may have {min(rooms)}")
    return [ids if is_first else () for is_first in begins]


# ---- Texts and their lines


def _unchanged(text: str) -> TextResult:
    return TextResult(text, alternatives=[], score=0.0, flags=["copied"], n_sentences=0, lines=[])


def _of_document(document: TranslatedDocument, options: RequestOptions) -> TextResult:
    """The result of a document, without an alignment: its words are those between the tags."""
    lines = [unit.result for unit in document.units if unit.result.candidates]
    return TextResult(
        text=document.text,
        alternatives=[],
        score=sum(one.candidates[0].score for one in lines),
        flags=[*_flags(lines), *document.flags],
        n_sentences=sum(one.n_parts for one in lines),
        lines=lines,
        tokens=[token for one in lines for token in one.tokens or []] if options.token_scores else None,
    )


def _flags(lines: Sequence[Translated]) -> list[str]:
    return list(dict.fromkeys(flag for one in lines for flag, is_set in quality_flags(one).items() if is_set))


@dataclass(frozen=True)
class _Line:
    before: str  # white space, which the translation gets as well
    text: str
    after: str  # with the line's end


def _lines(text: str) -> Iterator[_Line]:
    """Splits a text into lines, whose concatenation is the text."""
    start = 0
    for end in [*LINE_END.finditer(text), None]:
        line = text[start : len(text) if end is None else end.start()]
        stripped = line.strip()
        before = line[: len(line) - len(line.lstrip())] if stripped else line
        after = line[len(before) + len(stripped) :]
        start = len(text) if end is None else end.end()
        if line or end is not None:
            yield _Line(before, stripped, after + ("" if end is None else end[0]))


def _document_sizes(texts: Sequence[Sequence[_Line]]) -> list[int]:
    """How many lines with text the documents of a request have, which blank lines and texts without a line divide."""
    sizes = [0]
    for text in texts:
        for has_text in [bool(line.text) for line in text] or [False]:
            if has_text:
                sizes[-1] += 1
            else:
                sizes.append(0)
    return sizes


def _joined(
    lines: Sequence[_Line], found: Sequence[Translated], options: RequestOptions, tags: Sequence[str] = ()
) -> TextResult:
    n_candidates = max((len(one.candidates) for one in found), default=1)
    texts = [_text(lines, [_candidate(one, n).text for one in found]) for n in range(n_candidates)]
    sums = [
        (sum(_candidate(one, n).score for one in found), sum(_candidate(one, n).log_prob for one in found))
        for n in range(n_candidates)
    ]
    return TextResult(
        text=texts[0],
        alternatives=[Candidate(text, *sums[n]) for n, text in enumerate(texts) if n > 0],
        score=sums[0][0],
        flags=_flags(found),
        n_sentences=sum(one.n_parts for one in found),
        lines=list(found),
        alignment=_alignment(lines, found, tags) if options.alignments else None,
        tokens=[token for one in found for token in one.tokens or []] if options.token_scores else None,
    )


def _candidate(result: Translated, n: int) -> Candidate:
    return result.candidates[min(n, len(result.candidates) - 1)]


def _text(lines: Sequence[_Line], translations: Sequence[str]) -> str:
    rest = iter(translations)
    return "".join(f"{line.before}{next(rest) if line.text else ''}{line.after}" for line in lines)


def _alignment(lines: Sequence[_Line], found: Sequence[Translated], tags: Sequence[str]) -> list[tuple[int, int]]:
    """The alignment of the whole text: word indices count the lines before, without the `tags` of each line."""
    links: list[tuple[int, int]] = []
    n_source = n_target = 0
    for line, result in zip([line for line in lines if line.text], found, strict=True):
        n_words = len(normalize(line.text).split())
        n_tags = n_words - len(normalize(split_tags(line.text, tags)[1]).split())
        links += [(n_source + n_tags + i, n_target + j) for i, j in result.alignment or []]
        n_source += n_words
        n_target += len(result.text.split())
    return links


def _composed(
    first: list[tuple[int, int]] | None, second: list[tuple[int, int]] | None
) -> list[tuple[int, int]] | None:
    """Links through a pivot: source to pivot, and pivot to target."""
    if first is None or second is None:
        return second
    sources: dict[int, list[int]] = {}
    for source, middle in first:
        sources.setdefault(middle, []).append(source)
    return [(source, target) for middle, target in second for source in sources.get(middle, [])]
