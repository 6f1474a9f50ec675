"""The wheel: what `pip install .` gives somebody without the checkout. And the source distribution."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_carries_every_config_and_the_type_marker(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for path in (ROOT / "configs").rglob("*.yaml"):
        assert f"transformer_cli/configs/{path.relative_to(ROOT / 'configs').as_posix()}" in names
    assert "transformer_cli/py.typed" in names
    assets = [
        path for path in (ROOT / "transformer_cli").rglob("*.*") if path.suffix in (".html", ".css", ".js", ".gz")
    ]
    assert len(assets) >= 3
    assert {path.relative_to(ROOT).as_posix() for path in assets} <= set(names)
    assert not [name for name in names if name.startswith(("tests/", "scripts/"))]


def test_an_installed_wheel_composes_its_configs_in_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    site, empty = tmp_path / "site", tmp_path / "a folder"
    empty.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            archive.extract(name, site)
    program = "from transformer_cli.cli import main; import sys; sys.exit(main(['train', '--cfg']))"
    command = [sys.executable, "-c", program]
    env = {**os.environ, "PYTHONPATH": str(site)}
    result = subprocess.run(command, cwd=empty, env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "name: demo_en_fr" in result.stdout
    assert list(empty.iterdir()) == []


def test_the_long_description_has_no_link_that_leads_nowhere(wheel: Path) -> None:
    """The README's links to pages and pictures are relative, and an index shows it without them."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        metadata = archive.read(name).decode()
    links = re.findall(r"\]\(([^)]*)\)", metadata)
    assert links
    assert [link for link in links if not link.startswith("https://")] == []
    assert "tfm trains and runs Transformer translation models" in metadata
    assert "Classifier: Programming Language :: Python :: 3.13" in metadata


def test_the_source_distribution_holds_all_that_its_tests_read(tmp_path: Path) -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("not a git checkout")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {name for name in tracked.stdout.split("\n")[:-1] if (ROOT / name).exists()} <= names
