"""Makes the golden files of today's formats: `python -m tests.golden.make`, from the root of the repository.

Run it for the last time right before the first release that writes a format. From then on its folder stays as it is,
for ever: a later format gets a folder of its own. The text is ours, sentences of letters (tests/toy/run.py).
"""

import hashlib
import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.toy.run import CPU, MODEL, config, sentences, tokenizers, train
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.model import Norm, Tying
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.clean import CleaningReport
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.prepare import Prepared
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.torch_engine import torch_translator
from transformer_cli.models.file import FORMAT, ModelFile, read_model
from transformer_cli.training.validation import encode_pairs

FOLDER = Path(__file__).parent / f"format-{FORMAT}"
EXPECTED, RUN = "expected.json", "run"
VARIANTS = [(joint, norm) for joint in (True, False) for norm in Norm]
LAST_STEP, N_MORE = 1200, 4
SOURCES = [*sentences(5, seed=11), "", "a", "a b c d e f g h i j"]


def name_of(*, joint: bool, norm: Norm) -> str:
    return f"{'joint' if joint else 'separate'}-{norm.name}"


def settings(*, joint: bool, norm: Norm, max_steps: int) -> TrainConfig:
    tying = Tying.three_way if joint else Tying.decoder
    small = replace(MODEL, d_model=8, d_ff=16, norm=norm, tie_embeddings=tying)
    return config(model=small, max_steps=max_steps, tokens_per_update=256, max_tokens_per_microbatch=256, log_every=1,
                  eval_every=LAST_STEP, save_every=LAST_STEP)  # fmt: skip


def corpus(ids: Tokenizers) -> Prepared:
    """Letters to be copied, as capitals where the target has a vocabulary of its own."""
    texts = []
    for n, seed in ((200, 1), (6, 2)):
        lines = sentences(n, seed=seed)
        texts.append(ParallelText(lines, lines if ids.joint else [line.upper() for line in lines]))
    encoded = encode_pairs(texts[0], ids, max_length=20)
    return Prepared(ids, encoded, texts[1], None, fingerprint="golden", report=CleaningReport())


def translations(model: ModelFile) -> dict[str, str]:
    translator = torch_translator(model.build(CPU), model.tokenizers, DecodeConfig(max_extra_length=10), device=CPU)
    return {source: done.text for source, done in zip(SOURCES, translator.translate(SOURCES), strict=True)}


def losses_after(run_dir: Path, ids: Tokenizers) -> dict[str, float]:
    """Step → loss of the steps that a run goes on for; no dropout, whose random numbers are no part of a format."""
    longer = settings(joint=True, norm=Norm.pre, max_steps=LAST_STEP + N_MORE)
    longer = replace(longer, model=replace(longer.model, dropout=0.0))
    train(longer, corpus(ids), run_dir, device=CPU)
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_bytes().split(b"\n")[:-1]]
    return {str(row["step"]): row["loss"] for row in rows if row["kind"] == "train" and row["step"] > LAST_STEP}


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    texts = {}
    for joint, norm in VARIANTS:
        name, ids = name_of(joint=joint, norm=norm), tokenizers(joint=joint)
        with tempfile.TemporaryDirectory() as place:
            run_dir = Path(place) / "runs" / RUN
            run_dir.mkdir(parents=True)
            result = train(settings(joint=joint, norm=norm, max_steps=LAST_STEP), corpus(ids), run_dir, device=CPU)
            shutil.copy(result.model_path, FOLDER / f"{name}.safetensors")
            texts[name] = translations(read_model(FOLDER / f"{name}.safetensors"))
            if (joint, norm) == (True, Norm.pre):
                shutil.copytree(run_dir / "checkpoints", FOLDER / RUN / "checkpoints")
                losses = losses_after(run_dir, ids)
    files = sorted(path for path in FOLDER.rglob("*") if path.is_file())
    hashes = {str(path.relative_to(FOLDER)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    expected = {"sha256": hashes, "translations": texts, "losses": losses}
    (FOLDER / EXPECTED).write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
