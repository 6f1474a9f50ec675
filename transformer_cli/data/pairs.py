"""Pairs of texts that are classified together: `first<TAB>second` as a source, and their ids joined by EOS.

Ids are BOS, the first text, EOS, the second text, EOS. No vocabulary needs a further symbol for that, so the encoder of
any translator can read pairs. Text never holds EOS: where a tokenizer of another program finds one because it is
written out, it becomes <unk>.
"""

from collections.abc import Sequence

from transformer_cli.config.data import DataConfig
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.errors import ConfigError

_SEPARATOR = "\t"


def joined(texts: Sequence[str]) -> str:
    """A text, or two as one source; blank, as no pair is, where one of them is blank."""
    return _SEPARATOR.join(texts) if len(texts) == 1 or all(text.strip() for text in texts) else ""


def texts_of(source: str) -> tuple[str, str]:
    """The two texts of a source that is not blank."""
    first, _, second = source.partition(_SEPARATOR)
    return first, second


def check_separates(config: DataConfig, tokenizer: Tokenizer) -> None:
    """Raise ConfigError if `config` holds pairs, and a tokenizer that is given has no EOS that could separate them."""
    if config.n_texts == 2 and (not tokenizer.end_ids or tokenizer.bos_id == tokenizer.eos_id):
        key = f"data.columns={config.columns}" if config.columns else f"data.task={config.task}"
        raise ConfigError(
            f"{key}: two texts are separated by EOS, which the given vocabulary does not have,"
            " or begins sentences with. Choose another model, or train a vocabulary"
        )
