"""Names of models on the hub: `hf:OWNER/NAME`, with a revision behind an `@` if it is not the newest."""

import re
from dataclasses import dataclass
from urllib.parse import quote

from transformer_cli.errors import ConfigError, quoted

SCHEME = "hf"
_PART = r"\w(?:[\w.-]*\w)?"
_REPOSITORY = re.compile(rf"(?:{_PART}/)?{_PART}", re.ASCII)
_REVISION = re.compile(rf"{_PART}(?:/{_PART})*", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_MOST_CHARACTERS = 96  # of a repository, as the hub has it
_SHORT = 12  # characters of a commit that are shown, and that its folder has


@dataclass(frozen=True)
class HubName:
    """A repository, and the branch, tag or commit that is asked for; None: the newest of its main branch."""

    repository: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{SCHEME}:{self.text}"

    @property
    def text(self) -> str:
        """The name without the scheme."""
        return self.repository + (f"@{self.revision}" if self.revision else "")

    @property
    def is_commit(self) -> bool:
        return self.revision is not None and _COMMIT.fullmatch(self.revision) is not None

    @property
    def title(self) -> str:
        """The name of the repository without that of its owner, which may say the languages of the model."""
        return self.repository.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """What begins the names of its files here. No repository has two hyphens in its name."""
        return self.repository.replace("/", "--")

    @property
    def record(self) -> str:
        """The name of the file that says what is kept under this name."""
        return self.stem + (f"@{quote(self.revision, safe='')}" if self.revision else "") + ".json"

    def folder(self, commit: str) -> str:
        return f"{self.stem}@{shortened(commit)}"


def read_name(text: str) -> HubName:
    """The name that follows `hf:`. Raises ConfigError for what is none, as a path that leads elsewhere."""
    repository, at, revision = text.partition("@")
    if (
        not _REPOSITORY.fullmatch(repository)
        or len(repository) > _MOST_CHARACTERS
        or any(part in repository for part in ("--", ".."))
        or repository.endswith(".git")
        or (at and (not _REVISION.fullmatch(revision) or ".." in revision))
    ):
        raise ConfigError(
            f"{quoted(f'{SCHEME}:{text}')}: no name of a model on the hub. Write {SCHEME}:OWNER/NAME, or"
            f" {SCHEME}:OWNER/NAME@REVISION for a branch, tag or commit"
        )
    return HubName(repository, revision if at else None)


def shortened(commit: str) -> str:
    return commit[:_SHORT]
