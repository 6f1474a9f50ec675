"""The languages of a bilingual file, and which of them are source and target of a corpus."""

from collections.abc import Mapping

from transformer_cli.config.data import DataConfig
from transformer_cli.config.tags import languages_of
from transformer_cli.errors import DataError, quoted
from transformer_cli.languages import Code

SOURCE, TARGET, NEITHER = 0, 1, -1
_SHOWN = 12  # languages of an error


class Sides(dict[str, tuple[int, int]]):
    """The side of each language as a file writes it, and how well it fits: 2 as it is asked for, 1 as a variant.

    `en` stands for en and all its variants, such as en-US; `en-GB` for itself alone.
    Chinese without a script or region is that in simplified characters, so that zh does not take zh-TW.
    """

    def __init__(self, config: DataConfig, name: str) -> None:
        super().__init__()
        self.name = name
        self.asked = config.source_lang, config.target_lang
        self._codes = [[Code.of(one) for one in languages_of(side)] for side in self.asked]
        self._named: list[dict[Code, str]] = [{}, {}]
        if not config.trained.translates:
            raise DataError(
                f"{name}: holds texts beside their translations, which data.task={config.task} does not train on. Name"
                f" {config.trained.files}"
            )
        if {*self._codes[SOURCE]} & {*self._codes[TARGET]}:
            raise DataError(
                f"{name}: data.source_lang={self.asked[0]} data.target_lang={self.asked[1]} name one language, of which"
                " it has no pairs. Name the two languages of the corpus"
            )

    def __missing__(self, language: str) -> tuple[int, int]:
        code = Code.of(language)
        found = [
            (fit, side, asked) for side in (SOURCE, TARGET) for asked in self._codes[side] if (fit := _fit(asked, code))
        ]
        if not found:
            self[language] = NEITHER, 0
            return NEITHER, 0
        fit, side, asked = max(found, key=lambda one: one[0])
        self._named[side][asked] = language
        if len(self._named[side]) > 1:
            names, key = " and ".join(self._named[side].values()), ("source_lang", "target_lang")[side]
            raise DataError(
                f"{self.name}: has {names}, both of data.{key}={self.asked[side]}. Export one file for each language"
            )
        self[language] = side, fit
        return side, fit

    def missing(self, counts: Mapping[str, int], *, units: str) -> DataError:
        """The error for a file without pairs of the two languages, by the texts that it has of each."""
        if not counts:
            return DataError(f"{self.name}: has no texts. Is it the right file?")
        sides = [self[language][0] for language in counts]
        has = _listed(counts)
        for side, key in ((SOURCE, "source_lang"), (TARGET, "target_lang")):
            if side not in sides:
                what = f"has no texts in data.{key}={self.asked[side]}, but {has}"
                return DataError(f"{self.name}: {what}. Set data.{key} to one of its languages")
        return DataError(f"{self.name}: no {units} has texts in both languages, of {has}. Is it the right file?")


def _fit(asked: Code, code: Code) -> int:
    if asked == code:
        return 2
    if asked.language != code.language or asked.region is not None:
        return 0
    scripts = {asked.usual_script, code.usual_script} - {None}
    return int(len(scripts) < 2 and (asked.script is None or asked.script == code.usual_script))


def _listed(counts: Mapping[str, int]) -> str:
    most = sorted(counts.items(), key=lambda item: -item[1])
    shown = [f"{quoted(language, 40)[1:-1] or 'no language'} ({n:,})" for language, n in most[:_SHOWN]]
    return ", ".join([*shown, *(["…"] if len(most) > _SHOWN else [])])
