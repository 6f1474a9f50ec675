"""Joining the corpora of all shards, each of which must be there once, whole, and made in the same way."""

import re
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_cli.addons.synthesis.work import (
    CorpusReport,
    alone_in,
    different,
    files_of,
    finished,
    folder_of,
    publish,
    refuse_unfinished,
    report_of,
    unpublished,
)
from transformer_cli.config.shard import Shard
from transformer_cli.data.hashes import file_sha256
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.files import wrap_os_errors, writing_whole


def shard_name(name: Path, shard: Shard) -> Path:
    """`bt.2-of-8` of bt and 2/8; bt of 1/1."""
    return name if shard.n == 1 else name.with_name(f"{name.name}.{shard.number}-of-{shard.n}")


def merge(name: Path, *, replace: bool = False) -> tuple[CorpusReport, bool]:
    """Write NAME.SOURCE, NAME.TARGET and NAME.json from those of all shards of NAME, in their order.

    Returns the report, and whether it is new. Raises DataError for a shard that is missing, there twice (among 4 and
    among 8, or under another number or name), changed since it was made, or made with other settings; ConfigError where
    a file of NAME is the input, and ConfigError or EnvironmentFault if a run of a shard, or of NAME, is not finished.
    """
    reports = _reports(name)
    for one in (name, *reports):  # what a run with --overwrite has not yet replaced is whole, but is not what is wanted
        refuse_unfinished(one)
    settings = _same_settings(reports)
    _check_lines(reports)
    for part, report in reports.items():
        _check_whole(part, report)
    if not replace and (report_before := finished(name, settings)) is not None:
        return report_before, False
    if report_of(name).exists() and not replace:
        raise ConfigError(f"{report_of(name)}: exists already, and is another. Add --overwrite, or move it away")
    _refuse_inputs(name, settings)
    with alone_in(folder_of(name)) as folder:
        for number, joined in enumerate(unpublished(folder)):
            with writing_whole(joined) as output:
                for part, report in reports.items():
                    file = files_of(part, report.languages)[number]
                    with wrap_os_errors(file, "read"), file.open("rb") as content:
                        shutil.copyfileobj(content, output)
        report = publish(name, folder, _sum(list(reports.values()), settings), replace=replace)
        shutil.rmtree(folder, ignore_errors=True)
    return report, True


def _sum(reports: Sequence[CorpusReport], settings: dict[str, Any]) -> CorpusReport:
    return CorpusReport(
        settings,
        first_line=1,
        n_lines=sum(one.n_lines for one in reports),
        n_translations=sum(one.n_translations for one in reports),
        n_pairs=sum(one.n_pairs for one in reports),
        dropped=sum((Counter(one.dropped) for one in reports), Counter[str]()),
    )


def _reports(name: Path) -> dict[Path, CorpusReport]:
    """The reports of all shards by their names, in order."""
    pattern = re.compile(re.escape(name.name) + r"\.([0-9]+)-of-([0-9]+)\.json")
    matches = [(path, match) for path in name.parent.glob("*.json") if (match := pattern.fullmatch(path.name))]
    if not matches:
        raise DataError(f"{name}: no shard is finished ({name}.1-of-N.json). Make them with shard=1/N, 2/N, …")
    found = {_shard(path, f"{match[1]}/{match[2]}"): path for path, match in matches}
    numbers = sorted({shard.n for shard in found})
    if len(numbers) > 1:
        named = " and of ".join(map(str, numbers))
        raise DataError(f"{name}: there are shards of {named}, which hold the same lines. Remove those of one")
    n = numbers[0]
    if missing := [number for number in range(1, n + 1) if Shard(number, n) not in found]:
        named = ", ".join(map(str, missing[:10])) + (", …" if len(missing) > 10 else "")
        raise DataError(
            f"{name}: {len(missing)} of {n} shards are missing ({named}). Make them, as shard={missing[0]}/{n}"
        )
    reports = {}
    for shard in sorted(found):
        part = shard_name(name, shard)
        reports[part] = CorpusReport.read(found[shard])
        if reports[part].shard != str(shard):
            raise DataError(f"{found[shard]}: holds shard {reports[part].shard}, not {shard}. Make shard={shard} again")
    return reports


def _shard(path: Path, number: str) -> Shard:
    """The shard of a report by its name. Raises DataError for another."""
    try:
        return Shard.parse(number)
    except ConfigError as error:
        raise DataError(
            f"{path}: not the name of a shard, which begins at 1-of-N, ends at N-of-N and has no zeros in front."
            " Rename or remove it"
        ) from error


def _same_settings(reports: dict[Path, CorpusReport]) -> dict[str, Any]:
    """The settings of all shards, which are the same but for the shard, as one run would have them."""

    def shared(report: CorpusReport) -> dict[str, Any]:
        return {**report.settings, "shard": str(Shard(1, 1))}

    first, *others = reports
    settings = shared(reports[first])
    for part in others:
        if unlike := different(settings, shared(reports[part])):
            raise DataError(f"{part}: made with other settings than {first} ({', '.join(unlike)}). Make one again")
    return settings


def _refuse_inputs(name: Path, settings: dict[str, Any]) -> None:
    """Raise ConfigError where a file of NAME is the text that the shards were made from, and not an earlier merge."""
    if report_of(name).is_file() and CorpusReport.read(report_of(name)).is_whole(name):
        return
    inputs = {settings["input_sha256"], settings["reference_sha256"]}
    for file in files_of(name, (settings["languages"][0], settings["languages"][1])):
        if file.is_file() and file_sha256(file) in inputs:
            raise ConfigError(
                f"{file}: is the text that the shards were made from. Give the shards another name, or move it away"
            )


def _check_lines(reports: dict[Path, CorpusReport]) -> None:
    """Each shard begins where the one before it ends."""
    next_line = 1
    for part, report in reports.items():
        if report.first_line != next_line:
            raise DataError(
                f"{part}: begins at line {report.first_line:,} of the input, and the shard before it ends at line"
                f" {next_line - 1:,}. Make all shards again, with the same version"
            )
        next_line += report.n_lines


def _check_whole(part: Path, report: CorpusReport) -> None:
    for file in files_of(part, report.languages):
        if not file.is_file():
            raise DataError(f"{file}: no such file, but {report_of(part)} is there. Make the shard again")
    if not report.is_whole(part):
        raise DataError(f"{part}: its text has changed since it was made. Make the shard again, with --overwrite")
