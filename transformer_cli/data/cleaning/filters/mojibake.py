"""Mojibake: UTF-8 that was decoded as Latin-1 or Windows-1252 on its way, and characters that were lost."""

import re

import numpy as np
from ftfy import fix_encoding
from ftfy.fixes import fix_c1_controls

from transformer_cli.data.cleaning.base import FILTERS, Filter, PairTexts, Verdict

_LOST = "\ufffd"
_SUSPECT = re.compile(
    "[\ufffd\x80-\x9f]|[\u00c2-\u00f4][\u0080-\u00bf\u0152-\u017e\u0192\u02c6\u02dc\u2013-\u203a\u20ac\u2122]"
)


@FILTERS.register("mojibake")
class Mojibake(Filter):
    """Repairs what ftfy can decode again without doubt, and drops lines in which characters are lost."""

    what = "with characters that were lost in a wrong encoding"
    repair = "with a wrong encoding undone"
    blemish = "in a wrong encoding"
    is_auto = True

    def apply(self, text: PairTexts) -> Verdict:
        verdict = Verdict(np.zeros(len(text), np.bool_))
        for index, (source, target) in enumerate(text.each()):
            if (source.isascii() or not _SUSPECT.search(source)) and (target.isascii() or not _SUSPECT.search(target)):
                continue
            fixed = _decoded(source), _decoded(target)
            if any(map(_is_damaged, fixed)):
                verdict.dropped[index] = True
            elif fixed != (source, target):
                verdict.repaired[index] = fixed
        return verdict


def _decoded(line: str) -> str:
    return line if line.isascii() else fix_c1_controls(fix_encoding(line))


def _is_damaged(line: str) -> bool:
    return _LOST in line or any("\x80" <= character <= "\x9f" and character != "\x85" for character in line)
