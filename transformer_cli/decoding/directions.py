"""The direction that a model is asked for: two languages, as people and programs write them, become tags of its lines.

Of a model with several target languages a tag asks for one. NLLB and M2M-100, whose tokenizers have `languages`, need
the language of the source as well.
"""

from collections.abc import Sequence
from typing import Protocol

from transformer_cli.config.tags import language_of, languages_of, source_tag, tags_in, target_tag
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import ConfigError, quoted
from transformer_cli.languages import codes_meant, language_name, near_codes
from transformer_cli.registry import did_you_mean

_N_NAMED = 10  # languages in a message; the rest are counted


class Directed(Protocol):
    """A model file, an export of one, or a model that is served."""

    @property
    def tokenizers(self) -> Tokenizers: ...
    @property
    def source_lang(self) -> str: ...
    @property
    def target_lang(self) -> str: ...


def asked_tags(model: Directed, tag: str | None, source: str | None, target: str | None) -> tuple[str, ...]:
    """The tags of `--tag`, `--from` and `--to`. Raises ConfigError for a language that the model does not have.

    A model of one direction is asked for that without the user's doing, if it needs to be.
    """
    tags = tags_in(tag or "")
    sides = [languages_of(side) for side in (model.source_lang, model.target_lang)]
    every = list(model.tokenizers.source.languages)
    codes = [
        code and language_among(code, side, every, flag=flag)
        for code, side, flag in ((source, sides[0], "--from"), (target, sides[1], "--to"))
    ]
    if every:  # a tag says what nothing else does
        own = [[tag for tag in tags if tag in map(form, every)] for form in (source_tag, target_tag)]
        codes = [
            code or (side[0] if len(side) == 1 and not named and side[0] in every else None)
            for code, side, named in zip(codes, sides, own, strict=True)
        ]
    return (*direction_tags(model, *codes), *tags)


def known_languages(model: Directed, source: str | None, target: str | None) -> tuple[str, str]:
    """The codes of `--from` and `--to`, else those of a model that has one; empty where neither says it."""
    sides = [languages_of(side) for side in (model.source_lang, model.target_lang)]
    found = (asked or (side[0] if len(side) == 1 else "") for asked, side in zip((source, target), sides, strict=True))
    return next(found), next(found)


def direction_tags(model: Directed, source: str | None, target: str | None) -> tuple[str, ...]:
    """The tags with which lines are translated from one of the model's languages into another; None is left open."""
    tokenizer = model.tokenizers.source
    if tokenizer.languages:
        named = [*([source_tag(source)] if source else []), *([target_tag(target)] if target else [])]
        return tuple(tag for tag in named if tag in tokenizer.tags)
    if target is None or len(languages_of(model.target_lang)) == 1:
        return ()
    found = [tag for tag in tokenizer.tags if language_of([tag], model.target_lang) == target]
    # Of <de> and <2de>, the first may name the language of the source.
    asking = [tag for tag in found if "2" in tag or "to" in tag]
    return tuple((asking or found)[:1])


def language_among(asked: str, declared: Sequence[str], every: Sequence[str], *, flag: str) -> str:
    """The model's code for `asked`: of the languages that it declares, else of all that its vocabulary has."""
    known = list(dict.fromkeys([*declared, *every]))
    found = codes_meant(asked, declared) or codes_meant(asked, known)
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(f"{flag} {quoted(asked)[1:-1]}: the model has {' and '.join(found)}. Name one of them")
    raise ConfigError(
        f"{flag} {quoted(asked)[1:-1]}: not a language of the model{_near(asked, known)}"
        f" (languages: {listed_languages(known)})"
    )


def _near(asked: str, known: Sequence[str]) -> str:
    """The languages that may be meant; the code of another one is no slip of the pen, so none is like it."""
    if near := near_codes(asked, known):
        return f"; did you mean {' or '.join(f'`{code}`' for code in near)}?"
    return "" if language_name(asked) else did_you_mean(asked, known)


def listed_languages(codes: Sequence[str]) -> str:
    """`de, fr`; of very many, the first."""
    more = f" and {len(codes) - _N_NAMED} more" if len(codes) > _N_NAMED else ""
    return f"{', '.join(codes[:_N_NAMED])}{more}"


def direction_of(model: Directed) -> str:
    """`en → de`; of a model between many languages, how many they are."""
    return " → ".join(map(shown_languages, (model.source_lang, model.target_lang)))


def shown_languages(side: str) -> str:
    codes = languages_of(side)
    return f"{codes[0]}+…+{codes[-1]} ({len(codes)} languages)" if len(codes) > _N_NAMED else side
