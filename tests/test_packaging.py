"""The wheel: what `pip install .` gives somebody without the checkout."""

import os
import subprocess
import sys
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
    assets = [path for path in (ROOT / "transformer_cli").rglob("*.*") if path.suffix in (".html", ".css", ".js")]
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
