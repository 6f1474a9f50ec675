"""Names of other toolkits are answered with our key for them, as a key in any group and as a flag."""

from pathlib import Path

import pytest

from tests.support.each import each
from transformer_cli.cli import main
from transformer_cli.command import COMMANDS, schema_of
from transformer_cli.config.foreign_names import FOREIGN_NAMES, our_key
from transformer_cli.config.keys import all_keys
from transformer_cli.config.yaml_files import groups_of

# As the documentation of each toolkit has them, beside the key that does it here.
NAMES = {
    # fairseq
    "--lr": "schedule.lr",
    "--max-tokens": "train.max_tokens_per_microbatch",
    "--update-freq": "train.tokens_per_update",
    "--clip-norm": "train.clip_norm",
    "--warmup-updates": "schedule.warmup_steps",
    "--label-smoothing": "train.label_smoothing",
    "--load-alignments": "data.alignments",
    "--share-all-embeddings": "model.tie_embeddings",
    "--encoder-ffn-embed-dim": "model.d_ff",
    "--lenpen": "decode.length_penalty",
    "--patience": "train.patience",
    "--fp16": "train.precision",
    "--max-epoch": "train.max_epochs",
    "--restore-file": "resume",
    # Hugging Face
    "learning_rate": "schedule.lr",
    "per_device_train_batch_size": "train.tokens_per_update",
    "gradient_accumulation_steps": "train.tokens_per_update",
    "num_train_epochs": "train.max_epochs",
    "num_beams": "decode.beam_size",
    "bf16": "train.precision",
    "num_hidden_layers": "model.n_encoder_layers",
    "save_total_limit": "train.keep_last",
    # OpenNMT-py
    "accum_count": "train.tokens_per_update",
    "rnn_size": "model.d_model",
    "heads": "model.n_heads",
    "train_steps": "train.max_steps",
    "valid_steps": "train.eval_every",
    # Marian
    "mini-batch": "train.tokens_per_update",
    "optimizer-delay": "train.tokens_per_update",
    "dim-emb": "model.d_model",
    "exponential-smoothing": "train.ema",
    "beam-size": "decode.beam_size",
    # JoeyNMT and Sockeye
    "epochs": "train.max_epochs",
    "ff_size": "model.d_ff",
    "batch_size": "train.tokens_per_update",
    "transformer-model-size": "model.d_model",
    "max-num-epochs": "train.max_epochs",
    "hidden_size": "model.d_model",
    "layers": "model.n_encoder_layers",
    "dropout": "model.dropout",
    "vocab_size": "data.tokenizer.vocab_size",
}


@each("name, key", NAMES.items())
def test_a_name_of_another_toolkit_is_answered_with_our_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, key: str
) -> None:
    monkeypatch.chdir(tmp_path)
    bare = name.strip("-").replace("-", "_")
    for words in ([f"--{bare.replace('_', '-')}", "1"], [f"trainer.{bare}=1"], [f"+train.x.{bare}=1"]):
        assert main(["train", *words]) == 2
        said = capsys.readouterr().err
        assert f"did you mean `{key}" in said, said
        assert said.count("\n") == 1


def test_every_key_of_the_table_exists_and_no_name_stands_twice() -> None:
    of_each = [{*all_keys(schema_of(command)), *groups_of(command)} for command in COMMANDS]
    known = set().union(*of_each)
    for ours in set(FOREIGN_NAMES.values()):
        for keys in ours.keys:
            assert {key.partition("=")[0] for key in keys.split(" and ")} <= known, keys
    names = [name for ours in dict.fromkeys(FOREIGN_NAMES.values()) for name in ours.names.split()]
    assert sorted(names) == sorted(set(names))
    for name in names:  # and is asked for where it is none of ours
        assert any(name not in keys and our_key(name, keys) for keys in of_each), name


@pytest.mark.parametrize(
    ("command", "word", "answer"),
    [
        ("train", "batch_size=32", "`train.tokens_per_update`, which counts tokens, not sentences?"),
        ("train", "--save-interval=1", "`train.save_every=VALUE`, in updates, not epochs?"),
        ("translate", "--batch-size=32", "`decode.batch_tokens=VALUE`, which counts tokens, not sentences?"),
        ("translate", "--beam-size=5", "`--beam`?"),
        ("translate", "--src=a.en", "`--input`?"),
        ("train", "--checkpoint=runs/a", "`init.from=VALUE`?"),
        ("train", "--output=runs/a", "`--name`?"),
        ("train", "--input=a.en", "`data.train=VALUE`?"),
        ("evaluate", "--output=a.fr", "`--save`?"),
        ("evaluate", "--input=a.en", "`--source`?"),
        ("train", "model.layers=3", "`model.n_encoder_layers` and `model.n_decoder_layers`?"),
    ],
)
def test_a_flag_is_named_where_there_is_one_and_another_meaning_is_said(
    capsys: pytest.CaptureFixture[str], command: str, word: str, answer: str
) -> None:
    assert main([command, word]) == 2
    assert f"did you mean {answer}" in capsys.readouterr().err


def test_a_name_of_which_the_command_has_nothing_has_no_answer() -> None:
    assert our_key("lr", all_keys(schema_of("translate"))) is None
