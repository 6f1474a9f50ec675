"""The corpora of mtdata's index: what they are, their files in mtdata's own cache ($MTDATA, or ~/.mtdata).

Files are downloaded here, to where mtdata keeps them, so that a download that was cut goes on, and none is taken from
a server whose certificate is wrong. What was found is kept beside the prepared corpus: later starts need no mtdata.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformer_cli.addons.named_corpora import lookup
from transformer_cli.config.data import DataConfig, Download
from transformer_cli.data.archive import member_sizes
from transformer_cli.data.download import Records, Transfer
from transformer_cli.data.lines import shown
from transformer_cli.environment import folder_named
from transformer_cli.errors import ConfigError, EnvironmentFault, quoted
from transformer_cli.extras import how_to_install
from transformer_cli.files import locked, wrap_os_errors, write_whole
from transformer_cli.logs import LOGGER

_ID = re.compile(r"[^-/\\\s]+(?:-[^-/\\\s]+){3,4}")
_RECORD_VERSION = 1
_UNREAD = (".xz", ".bz2")


@dataclass(frozen=True)
class NamedCorpus:
    """A corpus of the index with its files, which are there."""

    id: str
    languages: list[str]  # of its first and its second text, as mtdata names them
    form: str  # as mtdata names it, such as txt, tsv.gz and tmx
    names: list[str]  # the files as data.train has them: two texts, or tables
    columns: list[int]  # of a table
    paths: list[str]
    urls: list[str]
    n_bytes: int
    citations: list[str]  # BibTeX
    mtdata: str  # its version

    def facts(self) -> dict[str, Any]:
        """What a model card says of it."""
        return {"id": self.id, "urls": self.urls, "bytes": self.n_bytes, "citations": self.citations}


def named_corpora(config: DataConfig) -> list[NamedCorpus]:
    """The corpora of data.mtdata, downloaded if need be.

    Raises ConfigError for an id that is none, EnvironmentFault where mtdata or the network is not there.
    """
    for name in config.mtdata:
        if not _ID.fullmatch(name):
            raise ConfigError(
                f"data.mtdata: {quoted(name)} is no id of mtdata. Write GROUP-NAME-VERSION-LANGUAGE-LANGUAGE, as"
                " Statmt-europarl-10-deu-eng; `mtdata list -l deu-eng` prints those that there are"
            )
    folder = folder_named(config.cache) / config.name / "mtdata"
    known = {name: _recorded(folder / f"{name}.json") for name in config.mtdata}
    if missing := [name for name, found in known.items() if found is None]:
        LOGGER.info("looking up %s in the index of mtdata", ", ".join(missing))
        answer = _answer(missing)
        for name in missing:
            if name not in answer["entries"]:
                near = answer["near"].get(name)
                hint = f"; did you mean {' or '.join(near)}?" if near else ""
                raise ConfigError(
                    f"data.mtdata: mtdata {answer['version']} has no corpus {name}{hint} `mtdata list` prints all"
                )
        for name in missing:
            obtained = _obtained(name, answer["entries"][name], answer["version"])
            known[name] = obtained
            with wrap_os_errors(folder, "keep what mtdata says of a corpus"):
                folder.mkdir(parents=True, exist_ok=True)
                record = {"version": _RECORD_VERSION, **asdict(obtained)}
                write_whole(folder / f"{name}.json", json.dumps(record, indent=2).encode() + b"\n")
    return [found for name in config.mtdata if (found := known[name]) is not None]


def _recorded(path: Path) -> NamedCorpus | None:
    """What an earlier start found, if the files are still there."""
    try:
        record = json.loads(path.read_bytes())
        if record.pop("version") != _RECORD_VERSION:
            return None
        found = NamedCorpus(**record)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return found if all(Path(one).is_file() for one in found.paths) else None


def _answer(ids: Sequence[str]) -> dict[str, Any]:
    """What the program `lookup` prints."""
    environment = dict(os.environ)
    if cache := environment.get("MTDATA"):
        environment["MTDATA"] = str(Path(cache).expanduser().absolute())
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-P", str(Path(lookup.__file__)), *ids]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise EnvironmentFault(
            f"data.mtdata: mtdata cannot read its index ({quoted(last, 160)}). Delete mtdata.index.*.pkl in $MTDATA or"
            " ~/.mtdata, and it is made again"
        ) from None
    if "absent" in answer:
        raise EnvironmentFault(
            f"data.mtdata: the package mtdata cannot be imported ({answer['absent']}). Run {how_to_install('mtdata')}"
        )
    return answer


def _obtained(name: str, entry: Mapping[str, Any], version: str) -> NamedCorpus:
    """The corpus with its files, which are downloaded if they are not in mtdata's cache."""
    form, files = str(entry["form"]), entry["files"]
    packed = next((Path(file["path"]).suffix for file in files if file["path"].endswith(_UNREAD)), "")
    is_readable = any(one in form for one in ("tsv", "txt", "raw", "tmx", "sgm")) and not packed
    if len(entry["languages"]) != 2 or not is_readable:
        what = f"as {form.removesuffix(packed)}{packed}" if len(entry["languages"]) == 2 else "in one language"
        raise ConfigError(
            f"data.mtdata: {name} is text {what}, which is not read by name. Fetch it with `mtdata get`, and name its"
            " files in data.train"
        )
    for file in files:
        _fetch(name, file["url"], Path(file["path"]), Path(file["flag"]))
    paths = [file["path"] for file in files]
    names = [f"{paths[0]}::{member}" for member in _members(name, paths[0], entry["members"])] or paths
    sizes = [Path(path).stat().st_size for path in paths]
    urls = [file["url"] for file in files]
    columns = list(entry["columns"]) if "tsv" in form else []
    return NamedCorpus(
        name, list(entry["languages"]), form, names, columns, paths, urls, sum(sizes), list(entry["citations"]), version
    )


def _members(name: str, path: str, patterns: Sequence[str]) -> list[str]:
    """The members of the archive that the index has patterns for, one for each."""
    found = []
    inside = member_sizes(Path(path)) if patterns else {}
    for pattern in patterns:
        matching = [member for member in inside if fnmatchcase(member, pattern.removeprefix("./"))]
        if len(matching) != 1:
            raise EnvironmentFault(
                f"data.mtdata: {name}: {len(matching)} members of {shown(path)} are called {quoted(pattern)}, and the"
                " index expects one. Delete the file, and it is downloaded again, or name the members in data.train"
            )
        found += matching
    return found


def _fetch(name: str, url: str, path: Path, flag: Path) -> None:
    """Download a file to where mtdata keeps it, and mark it as whole as mtdata does."""
    if path.is_file() and flag.is_file():
        return
    with wrap_os_errors(path.parent, "keep a download"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_name(f"{path.name}.tfm-lock")):
            if path.is_file() and flag.is_file():
                return
            part = path.with_name(f"{path.name}.part")
            try:
                Transfer(Download(url=url), part, Records(path.parent / "downloads.json"), progress=False).run()
            except EnvironmentFault as error:
                what, _, remedy = str(error).partition(". ")
                if "data.root" in remedy:
                    remedy = "Connect to the network and run again, or fetch it with `mtdata get`"
                raise EnvironmentFault(f"data.mtdata: {name}: {what}. {remedy}") from None
            part.replace(path)
            flag.touch()
