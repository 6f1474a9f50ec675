"""Measures the memory of fine-tuning a model of the sizes of NLLB-200's distilled 600M, with drawn weights.

python scripts/bench_memory.py [WAY …] [--pieces 256000] [--width 1024] [--layers 12] [--out FOLDER] [key=value …]

Each WAY is a run of `tfm train` of its own: 3 updates of 512 tokens on text of the built-in corpus, with the overrides,
as train.precision=bf16, if any are given. Its peak is the resident memory of the process as the system has it, with
torch and all: until the run is over, with evaluations and saving, and with the translation of the test set after that,
for which the model is read again. The seconds of an update are those of the fastest. The model, 2.5 GB with these
sizes, and the runs are in a temporary folder in --out.
"""

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import sentencepiece
import torch

import transformer_cli
from transformer_cli.config.model import ModelConfig, Norm, Positions, Tying
from transformer_cli.data.packed_tokenizer import PackedTokenizer, Segmenter
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.models.build import build_model
from transformer_cli.models.file import ModelFile, write_model

LANGUAGES = ["eng_Latn", "fra_Latn"]
PRUNED = f"init.keep_languages=[{','.join(LANGUAGES)}]"
IN_16_BITS = "train.frozen_precision=bf16"
WAYS = {
    "full": [],
    "frozen encoder": ["init.freeze=[encoder]"],
    "frozen encoder, 16 bits": ["init.freeze=[encoder]", IN_16_BITS],
    "frozen embeddings": ["init.freeze=[embeddings]"],
    "LoRA": ["lora.rank=16"],
    "LoRA, 16 bits": ["lora.rank=16", IN_16_BITS],
    "pruned": [PRUNED],
    "LoRA and pruned": ["lora.rank=16", PRUNED],
    "LoRA and pruned, 16 bits": ["lora.rank=16", PRUNED, IN_16_BITS],
    "pruned, Adafactor": [PRUNED, "optimizer=adafactor"],
    "full, Adafactor": ["optimizer=adafactor"],
    "full, Muon": ["optimizer=muon"],
    "full, checkpointed activations": ["train.activation_checkpointing=true"],
}


def text() -> dict[str, list[str]]:
    """The lines of the built-in corpus in English and French."""
    folder = Path(transformer_cli.__file__).parent / "data/demo/demo_en_fr"
    files = {"en": "train.source.gz", "fr": "train.target.gz"}
    lines = {code: gzip.decompress((folder / name).read_bytes()).decode().split("\n") for code, name in files.items()}
    return {code: side[:400] for code, side in lines.items()}


def tokenizer(lines: list[str], n_pieces: int, folder: Path) -> Tokenizer:
    """A vocabulary of `n_pieces`, most of which no text has, and tokens of NLLB's number of languages."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(folder / "pieces"), model_type="bpe", vocab_size=1000,
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    model = (folder / "pieces.model").read_bytes()
    read = sentencepiece.SentencePieceProcessor(model_proto=model)
    own = [read.id_to_piece(i) for i in range(3, len(read))]
    languages = [*LANGUAGES, *(f"x{number:02}_Latn" for number in range(200))]
    others = [f"▁of{number}" for number in range(n_pieces - len(own))]
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *own, *others, *languages]
    packed = PackedTokenizer(
        Segmenter.sentencepiece, pieces, pad=1, unk=3, bos=2, eos=2, model=model, languages=languages
    )
    return Tokenizer(packed.to_bytes())


def write_start(path: Path, given: argparse.Namespace, lines: list[str]) -> None:
    """A model with drawn weights, and the architecture of NLLB."""
    config = ModelConfig(
        n_encoder_layers=given.layers, n_decoder_layers=given.layers, d_model=given.width, d_ff=4 * given.width,
        n_heads=16, norm=Norm.pre, positions=Positions.sinusoidal_tensor2tensor, first_position=2,
        tie_embeddings=Tying.three_way, max_positions=1024,
    )  # fmt: skip
    ids = tokenizer(lines, given.pieces, path.parent)
    tokenizers = Tokenizers(ids, ids)
    torch.manual_seed(1)
    model = build_model(config, *tokenizers.vocabularies)
    languages = "+".join(LANGUAGES)
    write_model(path, ModelFile(config, tokenizers, model.state_dict(), languages, languages, 1))


def peak_of(pid: int) -> float:
    """The largest resident memory of a process until now, in GB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e9


def measure(way: str, start: Path, overrides: list[str]) -> dict[str, object]:
    """One training run, and its largest memory."""
    place, name = start.parent, way.replace(" ", "-").replace(",", "")
    files = [str(place / f"train.{code}") for code in ("en", "fr")]
    command = [
        *("train", f"init.from={start}", "data=files", f"data.train=[{','.join(files)}]", "data.holdout=20"),
        *("data.source_lang=eng_Latn", "data.target_lang=fra_Latn", 'data.tags=["<eng_Latn> <2fra_Latn>"]'),
        *("data.clean=[]", "data.max_length=64", "train.max_steps=3", "train.tokens_per_update=512"),
        *(
            "train.log_every=1",
            "train.max_tokens_per_microbatch=512",
            "train.eval_every=3",
            "train.eval_lines=4",
            "train.samples=0",
        ),
        *(
            "train.robustness_lines=0",
            "train.average_last=1",
            "train.keep_last=1",
            "decode=greedy",
            "device=cpu",
            "train.ema=null",
        ),
        *(f"runs={place / 'runs'}", f"name={name}", f"data.cache={place / 'cache'}"),
        *(*WAYS[way], *overrides),
    ]
    program = "from transformer_cli.cli import entry_point; entry_point()"
    begin = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", program, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    run, training, is_over = place / "runs" / name, 0.0, False
    with process.stderr:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if not is_over:
                training, is_over = peak_of(process.pid), (run / "result.json").exists()
        err = "".join(lines)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if status:
        sys.exit(f"{way}: {err[-2000:]}")
    size = (run / "model.safetensors").stat().st_size
    logged = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]
    fastest = max(one["tokens_per_second"] for one in logged if one["kind"] == "train")
    shutil.rmtree(run)
    return {
        "way": way,
        "training GB": training,
        "peak GB": used.ru_maxrss * 1024 / 1e9,
        "model GB": size / 1e9,
        "s an update": 512 / fastest,
        "s": time.monotonic() - begin,
    }


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"unset: all, which are {', '.join(WAYS)}")
    parser.add_argument("--pieces", type=int, default=256_000)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--out", type=Path, help="unset: the folder of temporary files")
    given = parser.parse_intermixed_args(arguments)
    overrides = [word for word in given.ways if "=" in word]
    ways = [word for word in given.ways if "=" not in word] or list(WAYS)
    if unknown := [way for way in ways if way not in WAYS]:
        parser.error(f"{unknown[0]}: no way. Ways: {', '.join(WAYS)}")
    with tempfile.TemporaryDirectory(dir=given.out) as place:
        lines = text()
        for code, side in lines.items():
            (Path(place) / f"train.{code}").write_text("".join(f"{line}\n" for line in side if line), encoding="utf-8")
        start = Path(place) / "start.safetensors"
        write_start(start, given, [line for side in lines.values() for line in side if line])
        print(f"model: {start.stat().st_size / 1e9:.2f} GB", flush=True)
        for way in ways:
            print(json.dumps(measure(way, start, overrides)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
