"""Files of every released format are read for ever: they translate and go on training as when they were written."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.golden import make
from tests.golden.make import CPU, LAST_STEP, N_MORE, RUN, VARIANTS, name_of
from tests.support.contract import refused, signed
from transformer_cli.config.model import Norm
from transformer_cli.errors import CheckpointError
from transformer_cli.models.file import read_model
from transformer_cli.training.checkpoints import CheckpointStore
from transformer_cli.training.resuming import load_checkpoint
from transformer_cli.training.trainer import Trainer

FOLDERS = sorted(Path(make.__file__).parent.glob("format-*"))
FORMAT = pytest.mark.parametrize("golden", FOLDERS, ids=lambda folder: folder.name)


def expected(golden: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((golden / make.EXPECTED).read_bytes())
    return found


@FORMAT
def test_A23_golden_files_are_those_of_their_day(golden: Path) -> None:
    files = [path for path in golden.rglob("*") if path.is_file() and path.name != make.EXPECTED]
    hashes = {str(path.relative_to(golden)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    assert hashes == expected(golden)["sha256"]


@FORMAT
@pytest.mark.parametrize(("joint", "norm"), VARIANTS, ids=[name_of(joint=j, norm=n) for j, n in VARIANTS])
def test_A23_a_golden_model_translates_as_on_its_day(golden: Path, joint: bool, norm: Norm) -> None:
    name = name_of(joint=joint, norm=norm)
    model = read_model(golden / f"{name}.safetensors")
    assert (model.tokenizers.joint, model.config.norm) == (joint, norm)
    assert make.translations(model) == expected(golden)["translations"][name]


@FORMAT
def test_A23_a_golden_run_goes_on_as_on_its_day(golden: Path, tmp_path: Path) -> None:
    shutil.copytree(golden / RUN, tmp_path / RUN)
    checkpoint = CheckpointStore(tmp_path / RUN).newest()
    assert checkpoint is not None
    assert checkpoint.step == LAST_STEP
    config = make.settings(joint=True, norm=Norm.pre, max_steps=LAST_STEP + N_MORE)
    trainer = Trainer(config, checkpoint.model.tokenizers, CPU)
    assert load_checkpoint(checkpoint, trainer, trainer.ranks) == checkpoint.state
    for name, weight in trainer.model.state_dict().items():
        assert weight.equal(checkpoint.model.weights[name])
    losses = make.losses_after(tmp_path / RUN, checkpoint.model.tokenizers)
    # To the bit on the machine that made them; another processor or torch may round otherwise.
    assert losses == pytest.approx(expected(golden)["losses"], rel=1e-4)
    assert len(losses) == N_MORE


@FORMAT
def test_A23_keys_that_a_later_tfm_adds_to_the_state_do_no_harm(golden: Path, tmp_path: Path) -> None:
    shutil.copytree(golden / RUN, tmp_path / RUN)
    rewrite_state(tmp_path / RUN, lambda state: state["state"].update(invented={"later": 1}))
    checkpoint = CheckpointStore(tmp_path / RUN).newest()
    assert checkpoint is not None
    assert checkpoint.state["invented"] == {"later": 1}
    assert make.losses_after(tmp_path / RUN, checkpoint.model.tokenizers)


def test_A23_a_model_of_a_later_format_names_the_tfm_that_reads_it(tmp_path: Path) -> None:
    content = (FOLDERS[0] / "joint-pre.safetensors").read_bytes()
    (tmp_path / "new.safetensors").write_bytes(signed(content, format=99, needs="9.8.7"))
    says = ["new.safetensors: ", "needs tfm >= 9.8.7", "Install that"]
    refused(["translate", "--checkpoint", "new.safetensors"], tmp_path, code=4, says=says, stdin=b"a\n")


def test_A23_a_checkpoint_of_a_later_format_names_the_tfm_that_reads_it(tmp_path: Path) -> None:
    shutil.copytree(FOLDERS[0] / RUN, tmp_path / RUN)
    rewrite_state(tmp_path / RUN, lambda state: state.update(format=99, needs="9.8.7"))
    with pytest.raises(CheckpointError, match=r"needs tfm >= 9\.8\.7; this is .* Install that") as caught:
        CheckpointStore(tmp_path / RUN).newest()
    assert caught.value.exit_code == 4


def rewrite_state(run_dir: Path, change: Any) -> None:
    """Change state.json of the one checkpoint, and the manifest with it."""
    (folder,) = (run_dir / "checkpoints").iterdir()
    state = json.loads((folder / "state.json").read_bytes())
    change(state)
    content = json.dumps(state).encode()
    (folder / "state.json").write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["format"] = state["format"]
    manifest["files"]["state.json"] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")
