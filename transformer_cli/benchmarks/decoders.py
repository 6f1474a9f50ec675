"""Decoders as contestants: the same weights and the same sentences, in tfm and in other people's programs.

python -m transformer_cli.benchmarks.decoders '{"config": …, "engine": "tfm", "model": PATH, "threads": 2}'

A request is a line of JSON, as {"do": "decode", "rows": […], "beam_size": 4, "way": "…"}. A row is the ids of a
sentence without its end; greedy search has a beam of one. A way is one of those in which an engine can be used.

Shapes: B sentences, S source, T target, R rows of a step.
"""

import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from transformer_cli.benchmarks.reference import padded
from transformer_cli.benchmarks.timing import finish
from transformer_cli.benchmarks.worker import serve_requests
from transformer_cli.config.bench import BenchConfig
from transformer_cli.config.compose import from_plain
from transformer_cli.config.decode import DecodeConfig, Quantize, SearchKind
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.decoding.translator import Translator
from transformer_cli.extras import imported
from transformer_cli.inference.incremental import IncrementalDecoder
from transformer_cli.interop import ctranslate2 as to_ctranslate2
from transformer_cli.interop import huggingface as to_huggingface
from transformer_cli.models.device import choose_device
from transformer_cli.models.file import ModelFile, read_model

Rows = Sequence[Sequence[int]]  # of each sentence the ids, without BOS and EOS
BATCH = 32  # sentences, where an engine is not asked for its best
DEFAULT, BATCHES_OF_32 = "default batches", "batches of 32"


class Engine(ABC):
    """Something that decodes. A translation has at most `extra` tokens more than its source, both with their end."""

    ways: Sequence[str]
    ways_alone: Sequence[str]  # for one sentence at a time
    version: str

    def __init__(self, model: ModelFile, *, extra: int) -> None:
        self.tokenizers, self.extra = model.tokenizers, extra

    @abstractmethod
    def decode(self, rows: Rows, *, beam_size: int, way: str) -> list[list[int]]:
        """The ids of each translation, without EOS."""

    def translate(self, lines: Sequence[str], *, beam_size: int, way: str) -> list[str]:
        """The same from text to text."""
        found = self.decode(self.tokenizers.source.encode(lines), beam_size=beam_size, way=way)
        return [self.tokenizers.target.decode(ids) for ids in found]


class Numbers(Tokenizer):
    """Writes the ids themselves, so that what is timed is decoding and nothing beside it."""

    def encode(self, lines: Sequence[str], *, n_threads: int | None = None) -> list[list[int]]:
        return [[int(word) for word in line.split()] for line in lines]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))


class Ours(Engine):
    """The Translator that `tfm translate` has."""

    ways, ways_alone, version = (DEFAULT, BATCHES_OF_32), (DEFAULT,), ""

    def __init__(
        self, model: ModelFile, config: DecodeConfig, *, device: torch.device, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__(model, extra=config.max_extra_length)
        self.config, self.device = config, device
        self.model = model.build(device).to(dtype)
        self.translators: dict[tuple[bool, int, int], Translator] = {}
        source, target = model.tokenizers.source, model.tokenizers.target
        self.numbers = Tokenizers(Numbers(source.model_bytes), Numbers(target.model_bytes))

    def decode(self, rows: Rows, *, beam_size: int, way: str) -> list[list[int]]:
        lines = [" ".join(map(str, row)) for row in rows]
        batch_tokens = self.config.batch_tokens
        if way == BATCHES_OF_32:  # on average: batches are as large as their cells
            batch_tokens = round(BATCH * beam_size * (sum(map(len, rows)) / len(rows) + 1))
        translator = self._translator(self.numbers, beam_size, batch_tokens)
        return [[int(word) for word in found.text.split()] for found in translator.translate(lines)]

    def translate(self, lines: Sequence[str], *, beam_size: int, way: str) -> list[str]:
        translator = self._translator(self.tokenizers, beam_size, self.config.batch_tokens)
        return [found.text for found in translator.translate(lines)]

    @torch.inference_mode()
    def plainly(self, rows: Rows) -> dict[str, list[list[int]]]:
        """Greedy search as anyone would write it: the whole of every sentence again for each token."""
        source, target = self.tokenizers.source, self.tokenizers.target
        source_BS = padded([[*row, source.eos_id] for row in rows], source.pad_id, self.device)
        ids_BT = torch.full((len(rows), 1), target.bos_id, device=self.device)
        limits = [len(row) + 1 + self.extra for row in rows]
        for _ in range(max(limits)):
            logits_BV = self.model(source_BS, ids_BT)[:, -1]
            logits_BV[:, [target.pad_id, target.bos_id, target.unk_id]] = -torch.inf
            ids_BT = torch.cat([ids_BT, logits_BV.argmax(dim=-1, keepdim=True)], dim=1)
        found = [row[1 : 1 + limit] for row, limit in zip(ids_BT.tolist(), limits, strict=True)]
        return {"found": [row[: row.index(target.eos_id)] if target.eos_id in row else row for row in found]}

    @torch.inference_mode()
    def likelihood(self, rows: Rows, translations: Rows) -> dict[str, list[float]]:
        """The natural logarithm of the probability of each translation, its end counted."""
        source, target = self.tokenizers.source, self.tokenizers.target
        found: list[float] = []
        for row, ids in zip(rows, translations, strict=True):
            source_BS = torch.tensor([[*row, source.eos_id]], device=self.device)
            ids_BT = torch.tensor([[target.bos_id, *ids, target.eos_id]], device=self.device)
            log_p_BTV = self.model(source_BS, ids_BT[:, :-1]).log_softmax(dim=-1)
            found.append(float(log_p_BTV.gather(2, ids_BT[:, 1:, None]).double().sum()))
        return {"found": found}

    def parts(self, rows: Rows, *, beam_size: int) -> dict[str, Any]:
        """Seconds of each part of decoding `rows` in one process; and how much the products worked on."""
        config = searching(self.config, beam_size)
        translator = Translator(self.model, self.numbers, config, device=self.device)
        watch = Watch(translator.decoder, self.device)
        start = time.perf_counter()
        with watch.watching():
            translator.translate([" ".join(map(str, row)) for row in rows])
        return {
            "seconds": time.perf_counter() - start,
            "parts": watch.seconds,
            "encoded": watch.encoded,
            "stepped": watch.stepped,
        }

    def _translator(self, tokenizers: Tokenizers, beam_size: int, batch_tokens: int) -> Translator:
        """One for each purpose: its weights are arranged, and its processes begun, before it is timed."""
        purpose = (tokenizers is self.numbers, beam_size, batch_tokens)
        if purpose not in self.translators:
            config = replace(searching(self.config, beam_size), batch_tokens=batch_tokens)
            self.translators[purpose] = Translator(
                self.model, tokenizers, config, device=self.device, whole_machine=True
            )
        return self.translators[purpose]


def searching(config: DecodeConfig, beam_size: int) -> DecodeConfig:
    """For the likeliest translation, as every engine is asked for it."""
    kind = SearchKind.beam if beam_size > 1 else SearchKind.greedy
    return replace(config, search=kind, beam_size=beam_size, length_penalty=0.0, n_best=1)


def quantized(config: DecodeConfig) -> DecodeConfig:
    return replace(config, quantize=Quantize.int8)


class Watch:
    """Seconds that a decoder and its caches take, with the padded tokens and the rows of each call."""

    def __init__(self, decoder: IncrementalDecoder, device: torch.device) -> None:
        self.decoder, self.device = decoder, device
        self.seconds = {"encoder": 0.0, "steps": 0.0, "reordering": 0.0}
        self.encoded: list[int] = []  # padded tokens
        self.stepped: list[int] = []  # rows

    @contextmanager
    def watching(self) -> Iterator[None]:
        vars(self.decoder).update(start=self._start(self.decoder.start), step=self._step(self.decoder.step))
        try:
            yield
        finally:
            del vars(self.decoder)["start"], vars(self.decoder)["step"]

    def _start(self, start: Callable[..., Any]) -> Callable[..., Any]:
        def started(source_BS: Tensor, **options: Any) -> Any:
            self.encoded.append(source_BS.numel())
            cache = self._timed("encoder", start)(source_BS, **options)
            cache.reorder = self._timed("reordering", cache.reorder)
            return cache

        return started

    def _step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(ids_R: Tensor, cache: Any) -> Any:
            self.stepped.append(len(ids_R))
            return self._timed("steps", step)(ids_R, cache)

        return stepped

    def _timed(self, part: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **options: Any) -> Any:
            start = time.perf_counter()
            found = work(*args, **options)
            finish(self.device)
            self.seconds[part] += time.perf_counter() - start
            return found

        return timed


class HuggingFace(Engine):
    """`generate` of transformers, with its fast attention, on sentences that are padded to the longest of a batch."""

    ways = ("32 sentences a batch", "32 a batch, sorted by length", "128 a batch, sorted by length")
    ways_alone = ways[:1]

    def __init__(
        self, model: ModelFile, *, extra: int, device: torch.device, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__(model, extra=extra)
        self.version = f"transformers {imported('transformers', needs='rivals=true').__version__}"
        self.device = device
        self.model = to_huggingface.convert(model).to(device, dtype)
        self.model.set_attn_implementation("sdpa")

    def decode(self, rows: Rows, *, beam_size: int, way: str) -> list[list[int]]:
        order = by_length(rows) if "sorted" in way else list(range(len(rows)))
        options = {"early_stopping": True, "length_penalty": 0.0} if beam_size > 1 else {}
        found: dict[int, list[int]] = {}
        for batch in chunks(order, int(way.split()[0])):
            generated = self._generate([rows[i] for i in batch], num_beams=beam_size, **options)
            found |= zip(batch, generated, strict=True)
        return [found[i] for i in range(len(rows))]

    @torch.inference_mode()
    def _generate(self, rows: Rows, **options: Any) -> list[list[int]]:
        source, target = self.tokenizers.source, self.tokenizers.target
        source_BS = padded([[*row, source.eos_id] for row in rows], source.pad_id, self.device)
        found_BT = self.model.generate(
            input_ids=source_BS,
            attention_mask=(source_BS != source.pad_id).long(),
            do_sample=False,
            max_length=None,
            max_new_tokens=source_BS.size(1) + self.extra,
            **options,
        )
        control = {target.pad_id, target.bos_id, target.eos_id}
        return [[i for i in row if i not in control] for row in found_BT.tolist()]


class CTranslate2(Engine):
    """Batches of sentences of like length, for one worker or for one on each thread."""

    def __init__(self, model: ModelFile, *, extra: int, compute_type: str, device: torch.device, threads: int) -> None:
        super().__init__(model, extra=extra)
        self.library = imported("ctranslate2", needs="rivals=true")
        self.version = f"CTranslate2 {self.library.__version__}"
        self.compute_type = compute_type
        splits = [f"{n} × {threads // n} threads" for n in sorted({1, threads})]
        self.ways = [f"{split}, {size}" for split in splits for size in ("32 sentences", "1024 tokens", "2048 tokens")]
        self.ways_alone = [f"{split}, 32 sentences" for split in splits]
        self.device = device.type
        with TemporaryDirectory() as folder:
            to_ctranslate2.convert(model, Path(folder))
            self._files = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
        self._loaded: tuple[str, Any] = ("", None)
        target = self.tokenizers.target
        self._id_of = {piece: i for i, piece in enumerate(target.pieces(range(len(target))))}

    def decode(self, rows: Rows, *, beam_size: int, way: str) -> list[list[int]]:
        split, _, size = way.partition(", ")
        limit, unit = size.split()
        order = by_length(rows)
        batches = chunks(order, int(limit)) if unit == "sentences" else filled(order, rows, int(limit))
        translator, given = self._translator(split), []
        for batch in batches:
            longest = len(rows[batch[0]]) + 1
            given += translator.translate_batch(
                [self.tokenizers.source.pieces(rows[i]) for i in batch],
                beam_size=beam_size,
                length_penalty=0,
                max_input_length=0,
                min_decoding_length=0,
                max_decoding_length=longest + self.extra,
                disable_unk=True,  # as ours
                asynchronous=True,
            )
        pieces = {i: one.result().hypotheses[0] for i, one in zip(order, given, strict=True)}
        return [[self._id_of[piece] for piece in pieces[i]] for i in range(len(rows))]

    def _translator(self, split: str) -> Any:
        """One that works as `split` says; the one before goes first, and its threads with it."""
        if self._loaded[0] != split:
            n_workers, _, n_threads, _ = split.split()
            self._loaded = ("", None)
            self._loaded = (
                split,
                self.library.Translator(
                    "model",  # no folder: its files follow
                    self.device,
                    files=self._files,
                    compute_type=self.compute_type,
                    inter_threads=int(n_workers),
                    intra_threads=int(n_threads),
                ),
            )
        return self._loaded[1]


def by_length(rows: Rows) -> list[int]:
    """Numbers of the rows, the longest first."""
    return sorted(range(len(rows)), key=lambda i: -len(rows[i]))


def chunks(order: Sequence[int], size: int) -> list[Sequence[int]]:
    return [order[start : start + size] for start in range(0, len(order), size)]


def filled(order: Sequence[int], rows: Rows, n_cells: int) -> list[Sequence[int]]:
    """Batches of sentences that come longest first, none of more cells than that but one of a single sentence."""
    found: list[Sequence[int]] = []
    while order:
        n = max(1, n_cells // (len(rows[order[0]]) + 1))
        found.append(order[:n])
        order = order[n:]
    return found


# ---- The contestant's end

OURS, OURS_INT8, HUGGING_FACE = "tfm", "tfm int8", "Hugging Face"
CT2, CT2_INT8 = "CTranslate2", "CTranslate2 int8"
RIVALS = (HUGGING_FACE, CT2, CT2_INT8)


def engine(name: str, model: ModelFile, config: DecodeConfig, *, device: torch.device, threads: int) -> Engine:
    extra = config.max_extra_length
    if name == HUGGING_FACE:
        return HuggingFace(model, extra=extra, device=device)
    if name in (CT2, CT2_INT8):
        compute_type = "int8" if name == CT2_INT8 else "float32"
        return CTranslate2(model, extra=extra, compute_type=compute_type, device=device, threads=threads)
    return Ours(model, quantized(config) if name == OURS_INT8 else config, device=device)


class Answers:
    """What an engine does on request: what it found, and how many seconds it took."""

    def __init__(self, engine: Engine, device: torch.device) -> None:
        self.engine, self.device = engine, device

    def __call__(self, request: str) -> Mapping[str, Any]:
        asked: dict[str, Any] = json.loads(request)
        able: dict[str, Callable[..., Mapping[str, Any]]] = {
            "know": self.know,
            "decode": self.decode,
            "translate": self.translate,
            "alone": self.alone,
        }
        if isinstance(self.engine, Ours):
            able |= {"plainly": self.engine.plainly, "likelihood": self.engine.likelihood, "parts": self.engine.parts}
        return able[asked.pop("do")](**asked)

    def know(self) -> Mapping[str, Any]:
        one = self.engine
        return {"ways": list(one.ways), "ways alone": list(one.ways_alone), "version": one.version}

    def decode(self, rows: Rows, beam_size: int, way: str) -> Mapping[str, Any]:
        return self._timed(lambda: self.engine.decode(rows, beam_size=beam_size, way=way))

    def translate(self, lines: Sequence[str], beam_size: int, way: str) -> Mapping[str, Any]:
        return self._timed(lambda: self.engine.translate(lines, beam_size=beam_size, way=way))

    def alone(self, rows: Rows, beam_size: int, way: str) -> Mapping[str, Any]:
        """Each sentence by itself."""
        return {"seconds": [self.decode([row], beam_size, way)["seconds"] for row in rows]}

    def _timed(self, work: Callable[[], Any]) -> Mapping[str, Any]:
        start = time.perf_counter()
        found = work()
        finish(self.device)
        return {"seconds": time.perf_counter() - start, "found": found}


def make_ready() -> Callable[[str], Mapping[str, Any]]:
    parameters = json.loads(sys.argv[1])
    config: BenchConfig = from_plain(BenchConfig, parameters["config"])
    device = choose_device(config.device)
    model = read_model(Path(parameters["model"]))
    return Answers(
        engine(parameters["engine"], model, config.decode, device=device, threads=parameters["threads"]), device
    )


if __name__ == "__main__":
    serve_requests(make_ready)
