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
        raise ConfigError(
            f"data.columns={config.columns}: two texts are separated by EOS, which the given vocabulary does not have,"
            " or begins sentences with. Choose another model, or train a vocabulary"
        )


def encode_text_pairs(tokenizer: Tokenizer, sources: Sequence[str]) -> list[tuple[list[int], list[int]]]:
    """The ids of both texts of each source, without BOS and EOS; two times none for a blank one."""
    pairs = [texts_of(source) for source in sources]
    ids = tokenizer.encode([first for first, _ in pairs] + [second for _, second in pairs])
    ids = [[tokenizer.unk_id if i == tokenizer.eos_id else i for i in one] for one in ids]
    return [(a, b) if a and b else ([], []) for a, b in zip(ids[: len(pairs)], ids[len(pairs) :], strict=True)]


def delimited_pair(first: Sequence[int], second: Sequence[int], tokenizer: Tokenizer, *, max_length: int) -> list[int]:
    """Both with BOS and EOS; if these are more than `max_length` tokens, the longer text is cut, then both."""
    room = max(max_length - 3, 2)
    n_first = min(len(first), max(room - len(second), room - room // 2))
    n_second = min(len(second), room - n_first)
    eos_id = tokenizer.eos_id
    return [tokenizer.bos_id, *first[:n_first], eos_id, *second[:n_second], eos_id]
