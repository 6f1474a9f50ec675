"""Translation engines as benchmark workers: the same weights and sentences in tfm and in other programs.

python -m transformer_cli.addons.benchmarks.decoders '{"config": …, "engine": "tfm", "model": PATH, "threads": 2}'

A request is a line of JSON, such as {"do": "decode", "rows": […], "beam_size": 4, "preset": "…"}. A row holds the
token ids of a sentence without EOS; a beam size of 1 is greedy search. A preset names batch size and threads.

Shapes: B sentences, S source, T target, R rows of a step.
"""

import json
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

from transformer_cli.addons.benchmarks.reference import pad_rows
from transformer_cli.addons.benchmarks.timing import finish
from transformer_cli.addons.benchmarks.worker import config_and_parameters, serve_requests
from transformer_cli.addons.interop import ctranslate2 as to_ctranslate2
from transformer_cli.addons.interop import huggingface as to_huggingface
from transformer_cli.config.decode import DecodeConfig, DecodePrecision
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.decoding.results import Translated
from transformer_cli.decoding.torch_engine import TorchEngine, torch_translator
from transformer_cli.decoding.translator import Translator
from transformer_cli.extras import imported
from transformer_cli.inference.incremental import IncrementalDecoder
from transformer_cli.inference.precision import converted
from transformer_cli.models.device import choose_device
from transformer_cli.models.file import ModelFile, read_model

Rows = Sequence[Sequence[int]]  # token ids of each sentence, without BOS and EOS
BATCH = 32  # sentences in the batches of the preset BATCHES_OF_32
DEFAULT, BATCHES_OF_32 = "default batches", "batches of 32"


class BenchmarkEngine(ABC):
    """A translation engine. A translation has at most `extra` tokens more than its source, EOS counted in both."""

    presets: Sequence[str]
    presets_single: Sequence[str]  # for one sentence at a time
    version: str

    def __init__(self, model: ModelFile, *, extra: int) -> None:
        self.tokenizers, self.extra = model.tokenizers, extra

    @abstractmethod
    def decode(self, rows: Rows, *, beam_size: int, preset: str) -> list[list[int]]:
        """The token ids of each translation, without EOS."""

    def translate(self, lines: Sequence[str], *, beam_size: int, preset: str) -> list[str]:
        """Translate text to text."""
        found = self.decode(self.tokenizers.source.encode(lines), beam_size=beam_size, preset=preset)
        return [self.tokenizers.target.decode(ids) for ids in found]


class IdTokenizer(Tokenizer):
    """A tokenizer whose text is the token ids themselves, so that no tokenization is timed."""

    alphabet = frozenset("0123456789 ")

    def encode(
        self, lines: Sequence[str], *, n_threads: int | None = None, as_written: bool = False
    ) -> list[list[int]]:
        return [[int(word) for word in line.split()] for line in lines]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))


class TfmEngine(BenchmarkEngine):
    """The Translator of `tfm translate`."""

    presets, presets_single, version = (DEFAULT, BATCHES_OF_32), (DEFAULT,), ""

    def __init__(
        self,
        model: ModelFile,
        config: DecodeConfig,
        *,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        parallel: bool = True,  # False on a GPU: no CUDA graphs
    ) -> None:
        super().__init__(model, extra=config.max_extra_length)
        self.config, self.device, self.model = config, device, model.build(device)
        self.parallel = parallel
        if dtype is torch.float32:
            self.config = replace(config, precision=DecodePrecision.fp32)  # not what auto is on a GPU
        else:
            self.model = converted(self.model, dtype)
        self.translators: dict[tuple[bool, int, int], Translator] = {}
        source, target = model.tokenizers.source, model.tokenizers.target
        self.id_tokenizers = Tokenizers(IdTokenizer(source.model_bytes), IdTokenizer(target.model_bytes))

    def decode(self, rows: Rows, *, beam_size: int, preset: str) -> list[list[int]]:
        return [[int(word) for word in found.text.split()] for found in self.search(rows, beam_size, preset)]

    def search(self, rows: Rows, beam_size: int, preset: str = DEFAULT) -> list[Translated]:
        """The translations, spelt as token ids, with their scores."""
        lines = [" ".join(map(str, row)) for row in rows]
        batch_tokens = self.config.batch_tokens
        if preset == BATCHES_OF_32:  # 32 on average: tfm limits batches by tokens
            batch_tokens = round(BATCH * beam_size * (sum(map(len, rows)) / len(rows) + 1))
        return self._translator(self.id_tokenizers, beam_size, batch_tokens).translate(lines)

    def translate(self, lines: Sequence[str], *, beam_size: int, preset: str) -> list[str]:
        translator = self._translator(self.tokenizers, beam_size, self.config.batch_tokens)
        return [found.text for found in translator.translate(lines)]

    @torch.inference_mode()
    def greedy_reference(self, rows: Rows) -> dict[str, list[list[int]]]:
        """Reference greedy search without a KV cache: each step runs the decoder over the whole prefix."""
        source, target = self.tokenizers.source, self.tokenizers.target
        source_BS = pad_rows([[*row, source.eos_id] for row in rows], source.pad_id, self.device)
        ids_BT = torch.full((len(rows), 1), target.bos_id, device=self.device)
        limits = [len(row) + 1 + self.extra for row in rows]
        for _ in range(max(limits)):
            logits_BV = self.model(source_BS, ids_BT)[:, -1]
            logits_BV[:, [target.pad_id, target.bos_id, target.unk_id]] = -torch.inf
            ids_BT = torch.cat([ids_BT, logits_BV.argmax(dim=-1, keepdim=True)], dim=1)
        found = [row[1 : 1 + limit] for row, limit in zip(ids_BT.tolist(), limits, strict=True)]
        return {"found": [row[: row.index(target.eos_id)] if target.eos_id in row else row for row in found]}

    @torch.inference_mode()
    def log_probabilities(self, rows: Rows, translations: Rows) -> dict[str, list[float]]:
        """The log-probability of each translation, EOS included."""
        source, target = self.tokenizers.source, self.tokenizers.target
        found: list[float] = []
        for row, ids in zip(rows, translations, strict=True):
            source_BS = torch.tensor([[*row, source.eos_id]], device=self.device)
            ids_BT = torch.tensor([[target.bos_id, *ids, target.eos_id]], device=self.device)
            log_p_BTV = self.model(source_BS, ids_BT[:, :-1]).log_softmax(dim=-1)
            found.append(float(log_p_BTV.gather(2, ids_BT[:, 1:, None]).double().sum()))
        return {"found": found}

    def parts(self, rows: Rows, *, beam_size: int) -> dict[str, Any]:
        """Seconds of each part of decoding `rows` in one process, and the number of tokens of each call."""
        config = for_search(self.config, beam_size)
        translator = torch_translator(self.model, self.id_tokenizers, config, device=self.device)
        assert isinstance(translator.engine, TorchEngine)
        timer = CallTimer(translator.engine.decoder, self.device)
        start = time.perf_counter()
        with timer.timing_calls():
            translator.translate([" ".join(map(str, row)) for row in rows])
        return {
            "seconds": time.perf_counter() - start,
            "parts": timer.seconds,
            "encoded": timer.encoded,
            "stepped": timer.stepped,
        }

    def _translator(self, tokenizers: Tokenizers, beam_size: int, batch_tokens: int) -> Translator:
        """A translator for each configuration, cached so that weights are prepacked and processes started only once."""
        key = (tokenizers is self.id_tokenizers, beam_size, batch_tokens)
        if key not in self.translators:
            config = replace(for_search(self.config, beam_size), batch_tokens=batch_tokens)
            self.translators[key] = torch_translator(
                self.model, tokenizers, config, device=self.device, parallel=self.parallel
            )
        return self.translators[key]


def for_search(config: DecodeConfig, beam_size: int) -> DecodeConfig:
    """The settings shared by all engines: no length penalty, one hypothesis."""
    kind = "beam" if beam_size > 1 else "greedy"
    return replace(config, search=kind, beam_size=beam_size, length_penalty=0.0, n_best=1)


class CallTimer:
    """Measures the seconds in encoder, decoder steps and cache reordering, and the size of each call."""

    def __init__(self, decoder: IncrementalDecoder, device: torch.device) -> None:
        self.decoder, self.device = decoder, device
        self.seconds = {"encoder": 0.0, "steps": 0.0, "reordering": 0.0}
        self.encoded: list[int] = []  # padded tokens
        self.stepped: list[int] = []  # rows

    @contextmanager
    def timing_calls(self) -> Iterator[None]:
        decoder = self.decoder
        vars(decoder).update(start=self._start(decoder.start), step=self._step(decoder.step))
        try:
            yield
        finally:
            del vars(decoder)["start"], vars(decoder)["step"]

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


class HuggingFace(BenchmarkEngine):
    """`generate` of transformers with scaled_dot_product_attention, on padded batches."""

    presets = ("32 sentences a batch", "32 a batch, sorted by length", "128 a batch, sorted by length")
    presets_single = presets[:1]

    def __init__(
        self, model: ModelFile, *, extra: int, device: torch.device, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__(model, extra=extra)
        self.version = f"transformers {imported('transformers', needs='rivals=true').__version__}"
        self.device = device
        self.model = to_huggingface.convert(model).to(device, dtype)
        self.model.set_attn_implementation("sdpa")

    def decode(self, rows: Rows, *, beam_size: int, preset: str) -> list[list[int]]:
        order = longest_first(rows) if "sorted" in preset else list(range(len(rows)))
        options = {"early_stopping": True, "length_penalty": 0.0} if beam_size > 1 else {}
        found: dict[int, list[int]] = {}
        for batch in _chunks(order, int(preset.split()[0])):
            generated = self._generate([rows[i] for i in batch], num_beams=beam_size, **options)
            found |= zip(batch, generated, strict=True)
        return [found[i] for i in range(len(rows))]

    @torch.inference_mode()
    def _generate(self, rows: Rows, **options: Any) -> list[list[int]]:
        source, target = self.tokenizers.source, self.tokenizers.target
        source_BS = pad_rows([[*row, source.eos_id] for row in rows], source.pad_id, self.device)
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


class CTranslate2(BenchmarkEngine):
    """CTranslate2 on batches sorted by length, with one worker of several threads or several workers of one."""

    def __init__(self, model: ModelFile, *, extra: int, compute_type: str, device: torch.device, threads: int) -> None:
        super().__init__(model, extra=extra)
        self.library = imported("ctranslate2", needs="rivals=true")
        self.version = f"CTranslate2 {self.library.__version__}"
        self.compute_type = compute_type
        splits = [f"{n} × {threads // n} threads" for n in sorted({1, threads})]
        self.presets = [
            f"{split}, {size}" for split in splits for size in ("32 sentences", "1024 tokens", "2048 tokens")
        ]
        self.presets_single = [f"{split}, 32 sentences" for split in splits]
        self.device = device.type
        with TemporaryDirectory() as folder:
            to_ctranslate2.write(model, Path(folder))
            self._files = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
        self._loaded: tuple[str, Any] = ("", None)
        target = self.tokenizers.target
        self._id_of = {piece: i for i, piece in enumerate(target.pieces(range(len(target))))}

    def decode(self, rows: Rows, *, beam_size: int, preset: str) -> list[list[int]]:
        split, _, size = preset.partition(", ")
        limit, unit = size.split()
        order = longest_first(rows)
        batches = _chunks(order, int(limit)) if unit == "sentences" else batches_by_tokens(order, rows, int(limit))
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
                disable_unk=True,  # as tfm
                asynchronous=True,
            )
        pieces = {i: one.result().hypotheses[0] for i, one in zip(order, given, strict=True)}
        return [[self._id_of[piece] for piece in pieces[i]] for i in range(len(rows))]

    def _translator(self, split: str) -> Any:
        """The translator for this number of workers and threads. The previous one is freed first, with its threads."""
        if self._loaded[0] != split:
            n_workers, _, n_threads, _ = split.split()
            self._loaded = ("", None)
            self._loaded = (
                split,
                self.library.Translator(
                    "model",  # not a folder: the files are passed in memory
                    self.device,
                    files=self._files,
                    compute_type=self.compute_type,
                    inter_threads=int(n_workers),
                    intra_threads=int(n_threads),
                ),
            )
        return self._loaded[1]


def longest_first(rows: Rows) -> list[int]:
    """Indices of the rows, longest first."""
    return sorted(range(len(rows)), key=lambda i: -len(rows[i]))


def _chunks(order: Sequence[int], size: int) -> list[Sequence[int]]:
    return [order[start : start + size] for start in range(0, len(order), size)]


def batches_by_tokens(order: Sequence[int], rows: Rows, max_tokens: int) -> list[Sequence[int]]:
    """Split sentences that are sorted longest first into batches of at most `max_tokens` padded tokens.

    A sentence that is longer than that is a batch of its own.
    """
    found: list[Sequence[int]] = []
    while order:
        n = max(1, max_tokens // (len(rows[order[0]]) + 1))
        found.append(order[:n])
        order = order[n:]
    return found


# ---- The worker process

TFM, HUGGING_FACE = "tfm", "Hugging Face"
CT2, CT2_INT8 = "CTranslate2", "CTranslate2 int8"
BASELINES = (HUGGING_FACE, CT2, CT2_INT8)


def engine(name: str, model: ModelFile, config: DecodeConfig, *, device: torch.device, threads: int) -> BenchmarkEngine:
    extra = config.max_extra_length
    if name == HUGGING_FACE:
        return HuggingFace(model, extra=extra, device=device)
    if name in (CT2, CT2_INT8):
        compute_type = "int8" if name == CT2_INT8 else "float32"
        return CTranslate2(model, extra=extra, compute_type=compute_type, device=device, threads=threads)
    return TfmEngine(model, config, device=device)


class RequestHandler:
    """Runs the requests of the parent process on an engine; a response has the translations and the seconds."""

    def __init__(self, engine: BenchmarkEngine, device: torch.device) -> None:
        self.engine, self.device = engine, device

    def __call__(self, request: str) -> Mapping[str, Any]:
        arguments: dict[str, Any] = json.loads(request)
        handlers: dict[str, Callable[..., Mapping[str, Any]]] = {
            "info": self.info,
            "decode": self.decode,
            "translate": self.translate,
            "alone": self.alone,
        }
        if isinstance(self.engine, TfmEngine):
            handlers |= {
                "greedy_reference": self.engine.greedy_reference,
                "log_probabilities": self.engine.log_probabilities,
                "parts": self.engine.parts,
            }
        return handlers[arguments.pop("do")](**arguments)

    def info(self) -> Mapping[str, Any]:
        one = self.engine
        return {"presets": list(one.presets), "presets_single": list(one.presets_single), "version": one.version}

    def decode(self, rows: Rows, beam_size: int, preset: str) -> Mapping[str, Any]:
        return self._timed(lambda: self.engine.decode(rows, beam_size=beam_size, preset=preset))

    def translate(self, lines: Sequence[str], beam_size: int, preset: str) -> Mapping[str, Any]:
        return self._timed(lambda: self.engine.translate(lines, beam_size=beam_size, preset=preset))

    def alone(self, rows: Rows, beam_size: int, preset: str) -> Mapping[str, Any]:
        """Seconds of each sentence, translated on its own."""
        return {"seconds": [self.decode([row], beam_size, preset)["seconds"] for row in rows]}

    def _timed(self, work: Callable[[], Any]) -> Mapping[str, Any]:
        start = time.perf_counter()
        found = work()
        finish(self.device)
        return {"seconds": time.perf_counter() - start, "found": found}


def _set_up() -> Callable[[str], Mapping[str, Any]]:
    config, parameters = config_and_parameters()
    device = choose_device(config.device)
    model = read_model(Path(parameters["model"]))
    return RequestHandler(
        engine(parameters["engine"], model, config.decode, device=device, threads=parameters["threads"]), device
    )


if __name__ == "__main__":
    serve_requests(_set_up)
