"""Firefox's engine as an engine of the Translator: greedy search by fxtranslate, from text to text.

It gives no scores. The tokens of a hypothesis are those that our tokenizer has for its text.
"""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from transformer_cli.addons.interop.firefox_library import FirefoxFiles, FirefoxLibrary, most_pieces
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.data.tokenizer import Tokenizers, as_one_line
from transformer_cli.decoding.engine import Capabilities, DecodeRequest, Engine, SearchedBatch
from transformer_cli.decoding.plan import Segment
from transformer_cli.decoding.search import Hypothesis
from transformer_cli.decoding.torch_engine import batches
from transformer_cli.decoding.training_text import TrainingText
from transformer_cli.errors import DataError
from transformer_cli.inference.batch_size import BatchTokens
from transformer_cli.inference.force_decode import ForcedScores, IdPair
from transformer_cli.inference.worker_pool import WorkerPool

FIREFOX = "firefox"
ENGINE_FIREFOX = f"engine={FIREFOX}"
_NO_NUMBERS = "engine=firefox gives text alone, and no model is there to score it. Use the model file, or leave it out"
FIREFOX_ALONE = Capabilities(
    FIREFOX,
    searches=frozenset({"greedy"}),
    keys=frozenset({"beam_size"}),  # decode=greedy sets it
    lexical_constraints=False,
    prefixes=False,
    scores=False,
    attention=False,
    search_scores=False,
    tags=False,
    context=False,
    traces=False,
    remedies={
        "decode.search": (
            "engine=firefox searches greedily. Add decode=greedy, or use --engine torch with the model file"
        ),
        "decode.quantize": "engine=firefox computes in 8 bits anyway. Leave it out",
        "decode.shortlist": ("engine=firefox has that of its folder. Use `tfm export firefox options.shortlist=FILE`"),
        "decode.precision": "engine=firefox has 8-bit integers alone. Leave it out",
        "output_format": "engine=firefox gives no scores, which n-best lists have. Use another format",
        "on_issue": "engine=firefox has no other search to translate a line again with. Leave it out",
        "--tag": "engine=firefox would cut tags into pieces like any text. Use --engine torch with the model file",
        "--explain": "engine=firefox does not show its steps. Use `--engine torch` with the model file",
        "--alignments": _NO_NUMBERS,
        "--token-scores": _NO_NUMBERS,
    },
)
# Of a model file: torch force-decodes, and the lists of a shortlist are converted with the model.
FIREFOX_WITH_TORCH = replace(FIREFOX_ALONE, scores=True, attention=True, shortlist=True)
_REMEDY = "Write it again with `tfm export firefox --overwrite`"
_TOKENS = 512  # source tokens that a worker gets at a time


class FirefoxEngine:
    """A model in Firefox's format. Raises CheckpointError for a damaged one.

    With `parallel` every CPU core translates lines of its own, in a forked process. `with_torch` opens the same model
    with torch, which force-decodes.
    """

    n_searches = 1  # it lets no other thread of Python run meanwhile

    def __init__(
        self,
        files: FirefoxFiles,
        tokenizers: Tokenizers,
        *,
        text: TrainingText,
        parallel: bool = False,
        with_torch: Callable[[], Engine] | None = None,
    ) -> None:
        of_file = replace(FIREFOX_WITH_TORCH, shortlist=files.lexicon is not None)
        self.capabilities = FIREFOX_ALONE if with_torch is None else of_file
        self.directory, self.tokenizers, self.text = files.model.parent, tokenizers, text
        self.with_torch, self.one_at_a_time = with_torch, threading.Lock()
        self.torch_engine: Engine | None = None
        self.library = FirefoxLibrary(files, needs=ENGINE_FIREFOX, remedy=_REMEDY)
        self.pool: WorkerPool[list[Segment], list[list[Hypothesis]]] | None = None
        if parallel:
            self.pool = WorkerPool(lambda batch: [[self._hypothesis(segment)] for segment in batch])

    def tokens_per_batch(self, config: DecodeConfig) -> int:
        return 1 if self.pool is None else _TOKENS  # sentences are translated one by one

    def search(self, segments: Sequence[Segment], request: DecodeRequest) -> Iterator[SearchedBatch]:
        """Raises DataError for a line with a tag."""
        for segment in segments:
            if segment.n_tags:
                raise DataError(
                    f"line {request.first_line + segment.line}: begins with a tag, which engine=firefox would cut"
                    " into pieces like any text. Remove it, or use --engine torch with the model file"
                )
        if self.pool is not None:
            yield from self.pool(batches(segments, most=lambda n_source: _TOKENS // n_source))
            return
        for segment in segments:
            is_wanted = request.is_cancelled is None or not request.is_cancelled(segment)
            yield [segment], [[self._hypothesis(segment) if is_wanted else Hypothesis([], math.nan, math.nan, False)]]

    def score(
        self, pairs: Sequence[IdPair], *, batch_tokens: BatchTokens, with_attention: bool = False
    ) -> list[ForcedScores]:
        """Scores by torch: fxtranslate gives none."""
        with self.one_at_a_time:
            if self.torch_engine is None:
                assert self.with_torch is not None, "see `capabilities`"
                self.torch_engine = self.with_torch()
            return self.torch_engine.score(pairs, batch_tokens=batch_tokens, with_attention=with_attention)

    def _hypothesis(self, segment: Segment) -> Hypothesis:
        source, target = self.tokenizers.source, self.tokenizers.target
        text = segment.text or source.decode(segment.ids)
        # Of nothing it would make something.
        found = as_one_line(self.library.translate(text)) if text.strip() else ""
        (ids,) = target.encode([found])
        finished = len(ids) < most_pieces(len(segment.ids) + len(source.end_ids))
        return Hypothesis(ids, math.nan, math.nan, finished, text=found)
