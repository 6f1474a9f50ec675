"""What the tests share does what it stands for."""

import pytest
from hydra import initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf

from tests.support.compositions import by_hydra, compose_once
from tests.support.each import each
from transformer_cli.config import compose


@each(
    "command, words",
    [
        ("train", []),
        ("train", ["model=big", "data=files", "data.train=[a,b]", "name='a=b'", "~recipe"]),
        ("train", ["seed=3", "model.d_model=16", "schedule=constant", "train.max_steps=7", "train={max_steps: 8}"]),
        ("train", ["data=files", "++data.dev=null", "decode.length_penalty=0.5", "seed=4", "seed=5"]),
        ("translate", ["decode=greedy", "decode.beam_size=2"]),
        ("evaluate", ["data=files", "data.source_lang=en", "data.max_length=9"]),
    ],
)
def test_a_composition_that_is_remembered_is_that_of_hydra(command: str, words: list[str]) -> None:
    once = compose_once()
    with initialize_config_dir(str(compose.config_dir()), version_base="1.3"):
        compose.register_schema(command)
        expected = by_hydra(command, words)
        for _ in range(2):  # composed, then remembered
            config = once(command, words)
            assert OmegaConf.to_yaml(config) == OmegaConf.to_yaml(expected)
            assert config == expected
            assert OmegaConf.is_struct(config)


@each("words", [["model=bigger"], ["train.max_step=3"], ["name=[a"], ["model.d_model={a: 1}"]])
def test_what_hydra_refuses_is_refused_in_its_words(words: list[str]) -> None:
    once = compose_once()
    with initialize_config_dir(str(compose.config_dir()), version_base="1.3"):
        compose.register_schema("train")
        with pytest.raises(HydraException) as expected:
            by_hydra("train", words)
        for _ in range(2):
            with pytest.raises(HydraException) as raised:
                once("train", words)
            assert str(raised.value) == str(expected.value)
