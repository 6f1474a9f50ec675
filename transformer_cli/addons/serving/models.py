"""The models that are served, by language pair: opened once, and again when a file is replaced.

Weights are read into memory of this process and not mapped: a file that is overwritten in place would change under the
engine, or end the process.
"""

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path

from transformer_cli.addons.documents.symbols import placeholder_symbols
from transformer_cli.addons.serving.errors import RequestError
from transformer_cli.addons.serving.keys import ServeConfig
from transformer_cli.config.decode import DecodeConfig, DecodePrecision, Quantize
from transformer_cli.config.fields import keys_of_part
from transformer_cli.config.shared import TORCH
from transformer_cli.config.tags import languages_of
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.batch_queue import BatchReport
from transformer_cli.decoding.directions import direction_tags, listed_languages
from transformer_cli.decoding.engine import check_supported
from transformer_cli.decoding.opening import Opened, open_models, with_own_length_penalty
from transformer_cli.decoding.results import TranslateOptions
from transformer_cli.decoding.shared_engine import SharedEngine
from transformer_cli.decoding.shared_translator import SharedTranslator
from transformer_cli.decoding.torch_engine import TorchEngine
from transformer_cli.errors import CheckpointError, ConfigError, TfmError
from transformer_cli.languages import matched, near_codes
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device
from transformer_cli.models.exported import Exported
from transformer_cli.models.header import MODEL_FILE
from transformer_cli.plugins import RAISED
from transformer_cli.system import peak_memory

MOST_PAIRS = 100  # that are listed; of more, the languages are
KEPT_TRANSLATORS = 32  # for as many combinations of options
OF_THE_ENGINE = keys_of_part(DecodeConfig, "engine")  # not of a request
_Observe = Callable[["ServedModel", BatchReport], object]


@dataclass(frozen=True)
class FileState:
    """The state by which a replaced file is recognised."""

    path: Path
    files: tuple[tuple[str, int, int, int], ...]  # name, inode, bytes, and nanoseconds of its last change

    @classmethod
    def of(cls, path: Path) -> "FileState":
        """The state of a file; of a folder, of each file in it, as an export is replaced file by file."""
        files = sorted(one for one in path.iterdir() if one.is_file()) if path.is_dir() else [path]
        states = [(one.name, os.stat(one)) for one in files]
        return cls(path, tuple((name, state.st_ino, state.st_size, state.st_mtime_ns) for name, state in states))


class ServedModel:
    """A model in memory, with an engine that all requests share, and torch for what that engine lacks."""

    def __init__(self, name: str | None, config: ServeConfig, observe: _Observe | None = None) -> None:
        self.config, self.observe = config, observe
        began, before = time.monotonic(), peak_memory()
        opened = open_models(name, runs=config.runs, engine=config.engine, decode=config.decode)
        (self.path,), (model,) = opened.paths, opened.models
        self.state, (self.sha256,) = FileState.of(self.path), opened.sha256()
        self.name = _name(Path(os.path.abspath(self.path)))
        self.source_lang, self.target_lang, self.engine = model.source_lang, model.target_lang, opened.engine
        self.tags, self.symbols = model.tokenizers.source.tags, placeholder_symbols(model.tokenizers)
        self.is_export, self.length_penalty = isinstance(model, Exported), opened.length_penalties[0]
        self.device = choose_device(config.device)
        self.shared = self._share(opened)
        self.torch: SharedEngine | None = None  # built when a request first needs it
        self.opened = None if opened.engine == TORCH else opened  # from what was read: the file may be another
        self.lock, self.opening = threading.Lock(), threading.Lock()
        self.translators: dict[str, SharedTranslator] = {}
        self.load_seconds, self.first_seconds = time.monotonic() - began, 0.0
        self.memory = peak_memory() - before  # bytes; of the first model, with the libraries of its engine

    def _share(self, opened: Opened) -> SharedEngine:
        engine = opened.translator(self.config.decode, self.device, seed=self.config.seed).engine
        return SharedEngine(engine, n_cached=self.config.cache, observe=self._observer())

    def _observer(self) -> Callable[[BatchReport], None]:
        """The engine's threads hold it, and must not keep a model that was replaced in memory."""
        weakly = weakref.ref(self)

        def observe(report: BatchReport) -> None:
            model = weakly()
            if model is not None and model.observe is not None:
                model.observe(model, report)

        return observe

    @property
    def target_langs(self) -> list[str]:
        return languages_of(self.target_lang)

    @property
    def source_langs(self) -> list[str]:
        return languages_of(self.source_lang)

    @property
    def n_waiting(self) -> int:
        return self.shared.n_waiting + (0 if self.torch is None else self.torch.n_waiting)

    @property
    def can_align(self) -> bool:
        """Exports hold no model that could be force-decoded."""
        return self.shared.capabilities.attention or not self.is_export

    @property
    def tokenizers(self) -> Tokenizers:
        return self.shared.tokenizers

    @property
    def pairs(self) -> Iterator[tuple[str, str]]:
        """Each source language with each target language."""
        return ((s, t) for s in self.source_langs for t in self.target_langs if s != t)

    @property
    def is_of_many(self) -> bool:
        """Whether its pairs are too many to be listed one by one."""
        return len(self.source_langs) * len(self.target_langs) > MOST_PAIRS

    def translates(self, source: str, target: str) -> bool:
        return source != target and source in self.source_langs and target in self.target_langs

    def tags_for(self, source: str, target: str) -> tuple[str, ...]:
        """The tags that ask for the direction; none where the model has one target language, and needs none."""
        return direction_tags(self, source, target)

    def translator(self, decode: DecodeConfig, options: TranslateOptions) -> SharedTranslator:
        """A translator that uses the engine if it supports the options, else torch.

        Raises ConfigError where neither can.

        A length penalty that neither the server nor the request sets is the model's own.
        """
        decode = with_own_length_penalty(decode, [self.length_penalty])
        key = f"{decode} {replace(options, terminology=None)}" if options.terminology is None else ""
        with self.lock:
            if key and key in self.translators:
                return self.translators[key]
        engine = self.shared
        try:
            check_supported(engine.capabilities, decode, options)
        except ConfigError:
            if self.engine == TORCH or self.is_export:
                raise
            decode = replace(decode, quantize=Quantize.none, precision=DecodePrecision.auto, shortlist=None)
            engine = self._torch_engine()
        translator = SharedTranslator(engine, decode, seed=self.config.seed, options=options)
        if key:
            with self.lock:
                while len(self.translators) >= KEPT_TRANSLATORS:
                    del self.translators[next(iter(self.translators))]
                self.translators[key] = translator
        return translator

    def _torch_engine(self) -> SharedEngine:
        with self.opening:  # not `lock`, which no one holds for long
            if self.torch is None:
                assert self.opened is not None
                engine = replace(self.opened, engine=TORCH).translator(DecodeConfig(), self.device).engine
                assert isinstance(engine, TorchEngine)
                self.torch = SharedEngine(engine, n_cached=self.config.cache, observe=self._observer())
            return self.torch

    def warm_up(self) -> str:
        """Translate two sentences, so that the first request is not the slow one."""
        pieces = self.shared.tokenizers.source.pieces(range(len(self.shared.tokenizers.source)))
        words = [piece[1:] for piece in pieces if piece.startswith("\u2581") and piece[1:].isalpha()][:8]
        tags = self.tags_for(*next(self.pairs, (self.source_langs[0], self.target_langs[0])))
        translator = self.translator(self.config.decode, TranslateOptions(tags=tags))
        began = time.monotonic()
        text = translator.translate([f"{' '.join(words)}. {' '.join(words).capitalize()}."])[0].text
        self.first_seconds = time.monotonic() - began
        return text

    def is_replaced(self) -> bool:
        try:
            return FileState.of(self.path) != self.state
        except OSError:
            return False  # between two files, or removed: what is in memory goes on


def _name(path: Path) -> str:
    """The name of the run or folder; of another file, its name without the ending."""
    if path.name == MODEL_FILE:
        return path.parent.name
    return path.name if path.is_dir() else path.stem


@dataclass(frozen=True)
class Step:
    """A model, and the languages that it translates from and into on the way."""

    model: ServedModel
    source: str
    target: str

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags that ask for this direction."""
        return self.model.tags_for(self.source, self.target)


class ModelTable:
    """Routes from language to language. A replaced file is read again; if it cannot be used, the old model stays."""

    def __init__(self, config: ServeConfig, observe: _Observe | None = None) -> None:
        self.config, self.observe = config, observe
        names: Sequence[str | None] = config.checkpoint if isinstance(config.checkpoint, list) else [config.checkpoint]
        self.models = [ServedModel(name, config, observe) for name in names]
        self.failed: dict[Path, FileState] = {}  # replaced by something that cannot be used
        self.n_reloads = self.n_reload_failures = 0
        self._check_pairs()

    def _check_pairs(self) -> None:
        owner: dict[tuple[str, str], ServedModel] = {}
        for model in self.models:
            for pair in model.pairs:
                if pair in owner:
                    raise ConfigError(
                        f"--checkpoint {model.path}: translates {' → '.join(pair)}, as {owner[pair].path} does."
                        " Leave one of them out"
                    )
                owner[pair] = model
        if self.config.pivot is not None and not any(pivot for _, _, pivot in self.pairs()):
            raise ConfigError(
                f"--pivot {self.config.pivot}: joins no two of these models"
                f" ({self.shown_pairs()}). Leave it out, or choose another language"
            )

    def pairs(self) -> list[tuple[str, str, str | None]]:
        """Source, target, and the language between; each pair once, those of a model first.

        They stay: a model that is read again has to have the same languages.
        """
        return self._pairs

    def shown_pairs(self) -> str:
        """The pairs; of many, the languages."""
        if len(self._pairs) <= MOST_PAIRS:
            return ", ".join(f"{source} → {target}" for source, target, _ in self._pairs)
        sides = dict.fromkeys(s for s, _, _ in self._pairs), dict.fromkeys(t for _, t, _ in self._pairs)
        return " → ".join(listed_languages(list(side)) for side in sides)

    @cached_property
    def _pivots(self) -> dict[tuple[str, str], str | None]:
        return {(source, target): pivot for source, target, pivot in self._pairs}

    @cached_property
    def _pairs(self) -> list[tuple[str, str, str | None]]:
        direct = list(dict.fromkeys(pair for model in self.models for pair in model.pairs))
        pivot, known = self.config.pivot, set(direct)
        into, out = [s for s, t in direct if t == pivot], [t for s, t in direct if s == pivot]
        through = [(s, t) for s in into for t in out if s != t and (s, t) not in known]
        return [*((s, t, None) for s, t in direct), *((s, t, pivot) for s, t in dict.fromkeys(through))]

    def source_code(self, code: str | None) -> str | None:
        """The models' code for the language that a client names, or its own where no model reads it."""
        return code and (matched(code, dict.fromkeys(source for source, _, _ in self.pairs())) or code[:40])

    def target_code(self, code: str | None) -> str | None:
        return code and (matched(code, dict.fromkeys(target for _, target, _ in self.pairs())) or code[:40])

    def route(self, source: str | None, target: str | None) -> list[Step]:
        """The models from `source` to `target`; None is any, if there is one only. Raises RequestError 400."""
        if source is not None and target is not None:
            pair = (source, target)
            found = [(*pair, self._pivots[pair])] if pair in self._pivots else []
        else:
            found = [(s, t, pivot) for s, t, pivot in self._pairs if source in (None, s) and target in (None, t)]
        if len(found) > 1:  # a model of its own is better than two
            found = [one for one in found if one[2] is None] or found
        if len(found) != 1:
            asked = f"{source or 'any language'} → {target or 'any language'}"
            what = "several models" if found else f"no model{self._meant(source, target)}"
            raise RequestError(400, f"{asked}: {what}. Choose one of {self.shown_pairs()}")
        source, target, pivot = found[0]
        legs = [(source, target)] if pivot is None else [(source, pivot), (pivot, target)]
        return [Step(self.model_of(*leg), *leg) for leg in legs]

    def _meant(self, *asked: str | None) -> str:
        """The languages of the models that a code may mean which is none of theirs; empty where there are none."""
        sides = [list(dict.fromkeys(side)) for side in ((s for s, _, _ in self._pairs), (t for _, t, _ in self._pairs))]
        near = [(code, near_codes(code, side)) for code, side in zip(asked, sides, strict=True) if code]
        near = [(code, codes) for code, codes in near if codes and code not in codes]
        return "".join(f"; for {code} there is {' and '.join(codes)}" for code, codes in near)

    def model_of(self, source: str, target: str) -> ServedModel:
        return next(model for model in self.models if model.translates(source, target))

    def reload_replaced(self) -> list[ServedModel]:
        """Open what was replaced; what cannot be used is named once, and the model in memory goes on."""
        reloaded = []
        for n, model in enumerate(self.models):
            try:
                if not model.is_replaced() or (state := FileState.of(model.path)) == self.failed.get(model.path):
                    continue
            except OSError:
                continue
            try:
                new = ServedModel(str(model.path), self.config, self.observe)
                if (new.source_lang, new.target_lang) != (model.source_lang, model.target_lang):
                    raise CheckpointError(
                        f"{model.path}: translates {new.source_lang} → {new.target_lang} now, and"
                        f" {model.source_lang} → {model.target_lang} before. Start the server anew"
                    )
                new.warm_up()
                if FileState.of(new.path) != state:
                    continue  # replaced once more while it was read; the next check reads all of it
            except RAISED as error:  # whatever it is, what is in memory serves on
                self.failed[model.path] = state
                self.n_reload_failures += 1
                what = error if isinstance(error, TfmError | OSError) else f"{model.path}: {error!r}"
                LOGGER.error("%s. The model that was read before is served on", what)
                continue
            self.failed.pop(model.path, None)
            self.models = [*self.models[:n], new, *self.models[n + 1 :]]
            LOGGER.info("%s: replaced, and read again (%s)", model.path, new.sha256[:12])
            self.n_reloads += 1
            reloaded.append(new)
        return reloaded


def decode_keys() -> Iterator[str]:
    """The keys of the group `decode` that a request may set."""
    return (field.name for field in fields(DecodeConfig) if field.name not in OF_THE_ENGINE)
