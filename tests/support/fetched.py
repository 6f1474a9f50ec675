"""Packages of other projects whose files are test inputs: fetched once by pip or npm, checked, and never copied in."""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT

SECONDS = 60  # that a fetch may take
# Older builds import pkg_resources, which newer versions of setuptools do not have.
BUILD_CONSTRAINT = "setuptools<81"


@dataclass(frozen=True)
class Package:
    tool: str  # pip, for a source distribution, or npm
    name: str
    version: str
    sha256: str  # of the archive


PACKAGES = {
    "html5lib": Package("pip", "html5lib", "1.1", "b2e5b40261e20f354d198eae92afc10d750afb487ed5e50f9c4eaf07c184146f"),
    "commonmark-spec": Package(
        "npm", "commonmark-spec", "0.31.2", "588280df96c211f7ce9db0b7943ded34ac4b8ba321e2fdf9c03d188ec0f01fea"
    ),
}


def fetched(name: str) -> Path:
    """The folder with the files of one of PACKAGES, from the cache if it is there. Skips the test if it cannot be had.

    The cache is `$TFM_TEST_CACHE`, or `.fetched` in the project's folder.
    """
    package = PACKAGES[name]
    cache = Path(os.environ.get("TFM_TEST_CACHE", ROOT / ".fetched"))
    folder = cache / f"{name}-{package.sha256[:16]}"
    if not folder.is_dir() and (reason := _fetch(package, folder)):
        pytest.skip(f"{package.name} {package.version} cannot be fetched: {reason}")
    return folder


@functools.cache  # so that one process tries once where there is no network
def _fetch(package: Package, folder: Path) -> str:
    """Fill `folder`; why it could not be done, in a line, or an empty text."""
    if package.tool == "npm" and shutil.which("npm") is None:
        return "there is no npm"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        constraint = Path(work, "constraint.txt")
        constraint.write_text(BUILD_CONSTRAINT)
        variables = {"PIP_CONSTRAINT": str(constraint), "PIP_BUILD_CONSTRAINT": str(constraint)}
        target = Path(work, "archives")
        target.mkdir()
        try:
            done = subprocess.run(
                _command(package, Path(work)),
                cwd=target,
                env=os.environ | variables,
                capture_output=True,
                text=True,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            return f"no answer within {SECONDS} s"
        found = list(target.iterdir())
        if done.returncode or len(found) != 1:
            return " ".join(done.stderr.split())[-300:] or f"{package.tool} ended with {done.returncode}"
        digest = hashlib.sha256(found[0].read_bytes()).hexdigest()
        assert digest == package.sha256, f"{found[0].name} has the SHA-256 {digest}, and not {package.sha256}"
        with tarfile.open(found[0]) as archive:
            archive.extractall(Path(work, "files"), filter="data")
        try:
            Path(work, "files").rename(folder)
        except OSError:  # another process was first
            assert folder.is_dir()
    return ""


def _command(package: Package, work: Path) -> list[str]:
    """pip compares the digest itself, before it runs what is in the archive."""
    if package.tool == "npm":
        return ["npm", "pack", "--fetch-retries", "0", f"{package.name}@{package.version}"]
    requirements = work / "requirements.txt"
    requirements.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--retries", "0", "download", "--no-deps"]
    return [*pip, "--no-binary", package.name, "--requirement", str(requirements)]
