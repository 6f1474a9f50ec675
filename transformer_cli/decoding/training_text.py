"""Facts about the text that a model was trained on, which limit what it can translate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from transformer_cli.config.checks import AUTO
from transformer_cli.config.decode import DecodeConfig, LongLines
from transformer_cli.config.model import Positions
from transformer_cli.config.tags import language_of, languages_of
from transformer_cli.data.context import MANY
from transformer_cli.decoding.search.request import longest_translation
from transformer_cli.errors import ConfigError
from transformer_cli.models.file import ModelFile

LONGEST = 256  # tokens of a source, where the model file has no limit
FEW_SEVERAL = 0.1  # of the lines with several sentences: a model with fewer was trained on single sentences


class _Described(Protocol):
    """A model file, or an export of one."""

    @property
    def source_lang(self) -> str: ...
    @property
    def target_lang(self) -> str: ...
    @property
    def data(self) -> dict[str, Any]: ...
    @property
    def multi_sentence_share(self) -> float | None: ...
    @property
    def translates_letterless(self) -> bool: ...


@dataclass(frozen=True)
class TrainingText:
    source_lang: str = "en"
    target_lang: str = ""
    max_length: int | None = None  # tokens of a side, its end counted
    multi_sentence_share: float | None = None  # of the source lines, those with several sentences
    max_positions: int | None = None  # tokens of a side that the model has positions for; None: any number
    always_tagged: bool = False  # whether every source line had a tag
    truncates: bool = False  # whether longer sources were truncated, as for summaries
    translates_letterless: bool = False  # whether lines without a letter had translations, as numbers in words
    context_sentences: int = 0  # of the document before a source line, which were read with it

    def language_of(self, tags: Sequence[str]) -> str:
        """The language that a line with these tags is translated into; empty where they name none of several."""
        return language_of(tags, self.target_lang)

    def lacks_tag(self, tags: Sequence[str]) -> bool:
        """Whether a line with these tags is unlike every line of training, or does not say its target language."""
        return not self.language_of(tags) if self.is_multilingual else self.always_tagged and not tags

    @property
    def is_multilingual(self) -> bool:
        """Whether it has several target languages."""
        return len(languages_of(self.target_lang)) > 1

    @property
    def is_monolingual(self) -> bool:
        """Whether a copy of the source is in the right language, as with summaries."""
        return self.target_lang == self.source_lang

    @property
    def is_in_sentences(self) -> bool:
        """Whether (nearly) every line was one sentence; False where it is unknown, and of a summarizer."""
        return not self.truncates and self.multi_sentence_share is not None and self.multi_sentence_share < FEW_SEVERAL

    def copies_letterless(self, config: DecodeConfig) -> bool:
        """Whether lines without a letter are left as they are; decode.copy_letterless=auto is decided here."""
        return not self.translates_letterless if config.copy_letterless == AUTO else bool(config.copy_letterless)

    def long_lines(self, config: DecodeConfig) -> LongLines:
        """What becomes of a longer line: decode.long_lines, of which auto is decided here."""
        if config.long_lines is not LongLines.auto:
            return config.long_lines
        return LongLines.cut if self.truncates else LongLines.split

    def longest_source(self, config: DecodeConfig) -> int:
        """Tokens, without the end, of a source that is translated whole."""
        of_model = LONGEST if self.max_length is None else self.max_length - 1
        longest = of_model if config.max_source_length is None else config.max_source_length
        return longest if self.max_positions is None else max(1, min(longest, self.max_positions - 1))

    def longest_translation(self, config: DecodeConfig, n_source_tokens: int) -> int:
        """The most tokens a translation may have; both sides count their EOS."""
        longest = longest_translation(config, n_source_tokens)
        return longest if self.max_positions is None else min(longest, self.max_positions)

    def named_limit(self, config: DecodeConfig) -> str:
        """The limit, as a message names it."""
        longest = self.longest_source(config)
        return (
            f"decode.max_source_length={longest}" if longest == config.max_source_length else f"the model's {longest}"
        )


def _always_tagged(data: Mapping[str, Any]) -> bool:
    """`data` is the config in a model file, which may hold anything."""
    entries = data.get("tags")
    return isinstance(entries, list) and bool(entries) and all(isinstance(entry, str) and entry for entry in entries)


def _context_sentences(data: Mapping[str, Any]) -> int:
    """`data` is the config in a model file, which may hold anything."""
    n = data.get("context_sentences")
    return n if isinstance(n, int) and 0 <= n <= MANY else 0


UNKNOWN_TEXT = TrainingText()


def training_text(models: Sequence[_Described], *, max_positions: int | None = None) -> TrainingText:
    """The facts about the training text of one model, or those that hold for all of an ensemble."""
    contexts = [_context_sentences(model.data) for model in models]
    if len(set(contexts)) > 1:
        raise ConfigError(
            f"checkpoint: the models of an ensemble were trained with data.context_sentences={contexts}."
            " Choose models that read the same context"
        )
    lengths = [model.data.get("max_length") for model in models]
    shares = [model.multi_sentence_share for model in models]
    known = [share for share in shares if share is not None]
    tables = [
        model.config.max_positions
        for model in models
        if isinstance(model, ModelFile) and model.config.positions is Positions.learned
    ]
    return TrainingText(
        source_lang=models[0].source_lang,
        target_lang=models[0].target_lang,
        max_length=min((n for n in lengths if isinstance(n, int) and n >= 2), default=None),
        multi_sentence_share=max(known) if len(known) == len(shares) else None,
        translates_letterless=all(model.translates_letterless for model in models),
        truncates=any(model.data.get("truncate_source") is True for model in models),
        always_tagged=all(_always_tagged(model.data) for model in models),
        max_positions=min([*tables, *([] if max_positions is None else [max_positions])], default=None),
        context_sentences=contexts[0],
    )
