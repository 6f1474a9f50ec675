"""Joining the corpora of all shards, each of which must be there once, whole, and made in the same way."""

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from transformer_cli.data.hashes import file_sha256
from transformer_cli.errors import DataError
from transformer_cli.files import wrap_os_errors, write_whole, writing_whole
from transformer_cli.synthesis.shards import Shard
from transformer_cli.synthesis.work import Pair, Report


def shard_name(name: Path, shard: Shard) -> Path:
    """`bt.2-of-8` of bt and 2/8; bt of 1/1."""
    return name if shard.n == 1 else name.with_name(f"{name.name}.{shard.number}-of-{shard.n}")


def merge(name: Path) -> tuple[Report, Pair]:
    """Write NAME.SOURCE, NAME.TARGET and NAME.json from those of all shards of NAME, in their order.

    Raises DataError for a shard that is missing, there twice (among 4 and among 8), unfinished, changed since it was
    made, or made with other settings.
    """
    shards = _found(name)
    (n,) = _agreed({shard.n for shard in shards}, name)
    if missing := [number for number in range(1, n + 1) if Shard(number, n) not in shards]:
        named = ", ".join(map(str, missing[:10])) + (", …" if len(missing) > 10 else "")
        raise DataError(
            f"{name}: {len(missing)} of {n} shards are missing ({named}). Make them, as shard={missing[0]}/{n}"
        )
    ordered = [Shard(number, n) for number in range(1, n + 1)]
    names = {shard: shard_name(name, shard) for shard in ordered}
    reports = {shard: Report.read(Path(f"{names[shard]}.json")) for shard in ordered}
    settings = _same_settings(reports, names)
    languages: Pair = settings["languages"][0], settings["languages"][1]
    for shard in ordered:
        _check_whole(names[shard], reports[shard], languages)
    for language in languages:
        with writing_whole(Path(f"{name}.{language}")) as output:
            for shard in ordered:
                part = Path(f"{names[shard]}.{language}")
                with wrap_os_errors(part, "read"), part.open("rb") as file:
                    shutil.copyfileobj(file, output)
    dropped = sum((Counter(one.dropped) for one in reports.values()), Counter[str]())
    report = Report(
        {**settings, "shard": "1/1"},
        sum(one.n_lines for one in reports.values()),
        sum(one.n_pairs for one in reports.values()),
        dropped,
        {language: file_sha256(Path(f"{name}.{language}")) for language in languages},
    )
    write_whole(Path(f"{name}.json"), (report.as_json() + "\n").encode())
    return report, languages


def _found(name: Path) -> set[Shard]:
    pattern = re.compile(re.escape(name.name) + r"\.([0-9]+)-of-([0-9]+)\.json")
    matches = [pattern.fullmatch(path.name) for path in name.parent.glob("*.json")]
    shards = {Shard(int(match[1]), int(match[2])) for match in matches if match is not None}
    if not shards:
        raise DataError(f"{name}: no shard is finished ({name}.1-of-N.json). Make them with shard=1/N, 2/N, …")
    return shards


def _agreed(numbers: set[int], name: Path) -> set[int]:
    if len(numbers) > 1:
        named = " and of ".join(map(str, sorted(numbers)))
        raise DataError(f"{name}: there are shards of {named}, which hold the same lines. Remove those of one")
    return numbers


def _same_settings(reports: dict[Shard, Report], names: dict[Shard, Path]) -> dict[str, Any]:
    def shared(report: Report) -> dict[str, Any]:
        return {key: value for key, value in report.settings.items() if key != "shard"}

    first, *others = reports
    settings = shared(reports[first])
    for shard in others:
        if shared(reports[shard]) != settings:
            keys = {*settings, *shared(reports[shard])}
            different = sorted(key for key in keys if settings.get(key) != shared(reports[shard]).get(key))
            raise DataError(
                f"{names[shard]}: made with other settings than {names[first]} ({', '.join(different)}). Make one again"
            )
    return settings


def _check_whole(name: Path, report: Report, languages: Pair) -> None:
    for language in languages:
        file = Path(f"{name}.{language}")
        if not file.is_file():
            raise DataError(f"{file}: no such file, but {name}.json is there. Make the shard again")
        if file_sha256(file) != report.sha256[language]:
            raise DataError(f"{file}: has changed since it was made. Make the shard again")
