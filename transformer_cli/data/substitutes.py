"""What a sign is read as where a vocabulary lacks it: a plainer one of the same meaning, or nothing."""

import unicodedata
from functools import cache

# Signs of the same meaning; what stands for one of them is the first that a vocabulary has.
_ALIKE = (
    ("'", "’", "‘", "ʼ", "‛", "‚", "′", "`", "´", "ʻ", "‹", "›"),
    ('"', "”", "“", "„", "‟", "″", "«", "»"),
    ("-", "‐", "–", "—", "‑", "‒", "―", "−"),
    ("...", "…"),
    ("·", "•", "‧", "∙"),
    ("/", "⁄", "∕"),
)
QUOTES = frozenset(_ALIKE[1])  # which a sentence is read without, if a vocabulary has none of them
MARKS = {sign: group for group in _ALIKE for sign in group}
_SELECTORS = frozenset(map(chr, (0x034F, *range(0xFE00, 0xFE10))))  # of a glyph's variant, or of its place
# Kinds of compatibility decompositions that change how a sign looks, and not what it says, as <super> does in 10².
_SAME_MEANING = (
    *("<compat>", "<wide>", "<narrow>", "<small>", "<vertical>", "<font>", "<noBreak>"),
    *("<initial>", "<medial>", "<final>", "<isolated>"),
)


@cache
def substitutes(sign: str) -> tuple[str, ...]:
    """What a sign may be read as, the nearest first; none for most."""
    if unicodedata.category(sign) == "Cf" or sign in _SELECTORS:
        return ("",)
    alike = MARKS.get(sign, ())
    nothing = ("",) if sign in QUOTES else ()
    return tuple(one for one in (*alike, *_compatible(sign), *nothing) if one != sign)


def _compatible(sign: str) -> list[str]:
    """The compatibility form of a sign: a ligature's letters, the plain form of a wide letter."""
    if not unicodedata.decomposition(sign).startswith(_SAME_MEANING):
        return []
    plain = unicodedata.normalize("NFKC", sign)
    return [] if " " in plain else [plain]
