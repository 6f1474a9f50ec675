"""The engine protocol: a model, ready to search and to force-decode, behind capabilities that name what it can do."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Protocol

from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.fields import keys_of_part
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.plan import Segment
from transformer_cli.decoding.results import DEFAULT_OPTIONS, TranslateOptions
from transformer_cli.decoding.search import SEARCHES, Hypothesis, check_search
from transformer_cli.decoding.training_text import TrainingText
from transformer_cli.errors import ConfigError
from transformer_cli.inference.batch_size import BatchTokens
from transformer_cli.inference.force_decode import ForcedScores, IdPair

# Keys of `decode` that the Translator follows itself, whatever the engine.
PLANNING_KEYS = frozenset(keys_of_part(DecodeConfig, "translator"))


@dataclass(frozen=True)
class Capabilities:
    """What an engine can do. `keys` are the keys of `decode` that it follows; None: all."""

    engine: str
    searches: frozenset[str] | None = None  # None: every registered one
    keys: frozenset[str] | None = None
    lexical_constraints: bool = True
    prefixes: bool = True
    scores: bool = True  # force-decoding
    attention: bool = True  # with force-decoding
    search_scores: bool = True  # of the hypotheses that it finds
    tags: bool = True  # before lines
    context: bool = True  # sentences of the document before a line
    traces: bool = True  # DecodeRequest.n_likeliest
    batch_invariant: bool = False  # decode.batch_invariant
    shortlist: bool = False  # decode.shortlist
    quantizations: frozenset[str] = frozenset({"none"})  # values of decode.quantize
    remedies: dict[str, str] = field(default_factory=dict)  # by setting: why it is refused, and what to do instead


@dataclass(frozen=True)
class DecodeRequest:
    """How segments are searched. Lines are numbered from `first_line`, which random choices depend on."""

    config: DecodeConfig
    seed: int = 1
    first_line: int = 1
    n_likeliest: int = 0  # > 0: record the search, with so many of the likeliest tokens of every step
    # Whether no one waits for a segment any more, asked while it is searched: its hypotheses are then of no use.
    is_cancelled: Callable[[Segment], bool] | None = field(default=None, compare=False)


SearchedBatch = tuple[Sequence[Segment], list[list[Hypothesis]]]  # segments, and the hypotheses of each, best first


class Engine(Protocol):
    """One opened model, or an ensemble. `text` describes what it was trained on."""

    @property
    def tokenizers(self) -> Tokenizers: ...

    @property
    def text(self) -> TrainingText: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def n_searches(self) -> int:
        """How many threads may search at once; more than one only where that is faster."""

    def tokens_per_batch(self, config: DecodeConfig) -> int:
        """Padded source tokens that one batch may have, EOS counted."""

    def search(self, segments: Sequence[Segment], request: DecodeRequest) -> Iterator[SearchedBatch]:
        """Yield batches as they are finished; together they hold each segment once."""

    def score(
        self, pairs: Sequence[IdPair], *, batch_tokens: BatchTokens, with_attention: bool = False
    ) -> list[ForcedScores]:
        """Force-decode pairs of source and target ids, both without EOS."""


def check_supported(
    capabilities: Capabilities,
    config: DecodeConfig,
    options: TranslateOptions = DEFAULT_OPTIONS,
    *,
    n_context: int = 0,
) -> None:
    """Raise ConfigError for what the engine, or the search, does not have: the only place that refuses it.

    `n_context` is the number of sentences before a line that the model reads with it.
    """
    if n_context and not capabilities.context:
        raise ConfigError(
            f"data.context_sentences={n_context}: the model reads the sentences before a line, which"
            f" engine={capabilities.engine} cannot. Use --engine torch with the model file"
        )
    check_search(config)
    for setting, is_supported in _settings(capabilities, config, options):
        if not is_supported:
            name = setting.partition("=")[0].partition(" ")[0]
            remedy = capabilities.remedies.get(setting, capabilities.remedies.get(name))
            raise ConfigError(
                f"{setting}: {remedy or f'engine={capabilities.engine} does not have it. Leave one of them out'}"
            )
    _check_constraints(config, options)


def _settings(
    capabilities: Capabilities, config: DecodeConfig, options: TranslateOptions
) -> Iterator[tuple[str, bool]]:
    """Each setting in use, as the user wrote it, and whether the engine has it."""
    yield f"decode.search={config.search}", capabilities.searches is None or config.search in capabilities.searches
    yield f"decode.quantize={config.quantize.name}", config.quantize.name in capabilities.quantizations
    if config.batch_invariant:
        yield "decode.batch_invariant=true", capabilities.batch_invariant
    if config.shortlist is not None:
        yield f"decode.shortlist={config.shortlist}", capabilities.shortlist
    defaults = DecodeConfig()
    for key in (one.name for one in fields(config)):
        value = getattr(config, key)
        if value != getattr(defaults, key) and key not in ("search", "quantize", "batch_invariant", "shortlist"):
            supported = capabilities.keys is None or key in capabilities.keys | PLANNING_KEYS
            yield f"decode.{key}={value.name if isinstance(value, Enum) else value}", supported
    if options.prefixes:
        yield "--prefix", capabilities.prefixes
    if options.tags:
        yield f"--tag {' '.join(options.tags)}", capabilities.tags
    if options.lists_scores:
        yield "output_format=moses", capabilities.search_scores
    if options.retry:
        yield "on_issue=retry", capabilities.searches is None or "beam" in capabilities.searches
    if options.terminology is not None:
        has_terms = capabilities.lexical_constraints and capabilities.scores and capabilities.attention
        yield "--terms", has_terms and config.shortlist is None
    if options.alignments:
        yield "--alignments", capabilities.scores and capabilities.attention
    if options.n_likeliest:
        yield "--explain", capabilities.traces and config.shortlist is None
    if options.token_scores:
        yield "--token-scores", capabilities.scores and capabilities.attention


def _check_constraints(config: DecodeConfig, options: TranslateOptions) -> None:
    method = SEARCHES[config.search]
    if options.terminology is not None:
        for key, value, instead, is_supported in (
            ("search", config.search, "beam", method.has_lexical_constraints),
            ("diversity_groups", config.diversity_groups, 1, config.diversity_groups == 1),
        ):
            if not is_supported:
                raise ConfigError(
                    f"decode.{key}={value}: has no lexical constraints, which --terms needs."
                    f" Choose decode.{key}={instead}, or leave out --terms"
                )
    if options.n_likeliest and not method.has_trace:
        raise ConfigError(
            f"decode.search={config.search}: records no steps, which --explain needs."
            " Choose decode.search=beam, greedy or sample, or leave out --explain"
        )
    if config.shortlist is not None and method.compares_texts:
        raise ConfigError(
            f"decode.shortlist={config.shortlist}: not with decode.search={config.search}, which compares texts."
            " Choose decode.search=beam, or leave it out"
        )
    if options.retry and not method.scores_are_likelihoods:
        raise ConfigError(
            f"on_issue=retry: repeats the search with a beam, whose scores cannot be compared with those of"
            f" decode.search={config.search}. Choose decode.search=beam, or leave out --on-issue"
        )
