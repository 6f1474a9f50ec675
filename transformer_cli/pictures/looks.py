"""Where a model looked while it translated one sentence.

Shapes: Y layers, H heads, S source, T target.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Looks:
    """Where a model looked while it translated one sentence.

    Rows of the encoder's self-attention are source tokens, and so are its columns. Rows and columns of the decoder's
    are `read`. Rows of cross-attention are `written`, the position that writes a token; its columns are `source`.
    """

    source: list[str]  # S labels of source tokens, as SentencePiece writes them: ▁ begins a word; </s> at the end
    read: list[str]  # T labels of what the decoder reads at each position: <s>, y1, …
    written: list[str]  # T labels of what it writes at each position: y1, …, </s>
    encoder_YHSS: Tensor  # float32 on the CPU; each row sums to 1
    decoder_YHTT: Tensor
    cross_YHTS: Tensor
    source_text: str
    translation: str
    model: str  # what a picture calls the model: name of run or file, and languages
    notes: list[str]  # said on the picture: what was cut, whether the translation was given, words joined, …
