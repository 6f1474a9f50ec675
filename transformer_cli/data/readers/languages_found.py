"""The languages of a corpus for which none are given: those of the columns of its first file, or of its file names."""

from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from transformer_cli.config.data import DataConfig
from transformer_cli.config.tasks import TASKS
from transformer_cli.data.column_names import columns_setting, language_columns, looks_like_header, shown_names
from transformer_cli.data.corpus_files import CorpusFile
from transformer_cli.data.formats.base import HEAD_BYTES
from transformer_cli.data.readers.containers import corpora_in, names_archive, shards_of
from transformer_cli.data.readers.parallel import file_language
from transformer_cli.data.readers.table_files import table_files
from transformer_cli.data.registry import FORMATS
from transformer_cli.errors import ConfigError
from transformer_cli.languages import NAMES, iso_639_1, matched
from transformer_cli.logs import LOGGER

_SIDES = ("source_lang", "target_lang")


def languages_found(config: DictConfig) -> Mapping[str, str]:
    """Values of data.source_lang and data.target_lang where a composed config has none, from the files of data.train.

    Nothing is found where these do not name languages. Raises ConfigError where they have more than two, or columns
    without any, and DataError for a file that cannot be read.
    """
    data = config.get("data")
    if not isinstance(data, DictConfig):
        return {}
    unset = [side for side in _SIDES if OmegaConf.is_missing(data, side)]
    train: Any = data.get("train") if unset else None
    names = [train] if isinstance(train, str) else [*(train or [])]
    if not names or not all(isinstance(name, str) for name in names):
        return {}
    if data.task not in TASKS or not TASKS[data.task].translates:
        return {}
    languages = _languages_of(names, DataConfig(name=data.name, root=data.root, train=names))
    given = [data[side] for side in _SIDES if side not in unset]
    left = [language for language in languages if language not in [matched(one, languages) for one in given]]
    if len(left) > len(unset):
        raise ConfigError(
            f"data.{unset[0]}: not set, and {names[0]} has {', '.join(languages)}. Set"
            f" {' and '.join(f'data.{side}' for side in unset)} to the languages to translate between"
        )
    if len(left) < len(unset):
        return {}
    found = {f"data.{side}": language for side, language in zip(unset, left, strict=True)}
    LOGGER.info("%s, as %s says", " ".join(f"{key}={value}" for key, value in found.items()), names[0])
    return found


def _languages_of(names: Sequence[str], config: DataConfig) -> list[str]:
    if names_archive(names[0]) and len(corpora := corpora_in(names[0], config)) == 1:
        names = [f"{names[0]}::{member}" for member in corpora[0]]
    key = "data.train"
    files = table_files(names[0], config, key=key, is_alone=len(names) == 1) or shards_of(names[0], config, key=key)
    if not files:
        endings = [file_language(name) for name in names[:2]]
        are_languages = len(set(endings)) == 2 and all(iso_639_1(code) in NAMES and len(code) < 8 for code in endings)
        return endings if are_languages else []
    columns = _names_of(files[0])
    languages = list(language_columns(columns))
    if len(languages) < 2 and columns:
        raise ConfigError(
            f"data.source_lang: not set, and {names[0]} names no two languages (columns: {shown_names(columns)}). Set"
            f" data.source_lang and data.target_lang, and the columns, as {columns_setting(columns[:2])}"
        )
    return languages


def _names_of(file: CorpusFile) -> Sequence[str]:
    """The names of its columns; none where it has no header."""
    if file.format is not None:
        names: Sequence[str] = FORMATS[file.format].names(file.as_source())
        return [] if list(names) == [str(index) for index in range(len(names))] else names
    first = file.head(HEAD_BYTES).decode("utf-8-sig", errors="replace").partition("\n")[0].removesuffix("\r")
    row = [field.strip('"') for field in first.split("\t")]
    return row if looks_like_header(row) else []
