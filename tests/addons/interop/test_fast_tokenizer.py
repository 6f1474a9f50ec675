"""tokenizer.json of an exported classifier: transformers' own tokenizer gives the ids of tfm for raw text."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.each import each
from transformer_cli.addons.interop.fast_tokenizer import write_fast_tokenizer
from transformer_cli.config.data import TokenizerConfig, TokenizerKind
from transformer_cli.data.tokenizer import Tokenizer, train_tokenizer

transformers = pytest.importorskip("transformers")

LINES = [
    "the soup is hot , he said",
    "a film that its makers love",
    'it\'s "so" dull – élan , ガ',
    "12 films in 2024",
    "ক\u09dc আ \u0958\u0932",
]
TEXTS = [
    *LINES,
    *(
        "THE SOUP",
        "  two   spaces\u00a0here ",
        "½ ＡＢ ﬁlm",
        "E\u0301lan e\u0301lan",
        "it’s “so”",
        "ｶﾞ カ\u3099",
        "কড\u09bc \u0915\u093c",
    ),
    *("zebra quux 日本語 😀", "soup\u00ad soup\u200b", "…", ""),
]
SETTINGS: dict[str, dict[str, Any]] = {
    "bpe": {},
    "bpe, bytes": {"vocab_size": 400, "byte_fallback": True},
    "bpe, folded": {"fold_case": True},
    "unigram": {"kind": TokenizerKind.unigram, "vocab_size": "auto"},
    "unigram, folded": {"kind": TokenizerKind.unigram, "vocab_size": "auto", "fold_case": True},
    "digits": {"split_digits": True},
}


def trained(**options: Any) -> Tokenizer:
    return train_tokenizer(LINES * 3, TokenizerConfig(**{"vocab_size": 110, **options}), seed=1)


def loaded(tokenizer: Tokenizer, folder: Path, **options: Any) -> Any:
    write_fast_tokenizer(tokenizer, folder, **{"begins": True, "max_length": 64, **options})
    return transformers.AutoTokenizer.from_pretrained(folder)


@each("name", SETTINGS)
def test_its_ids_are_those_of_tfm(name: str, tmp_path: Path) -> None:
    tokenizer = trained(**SETTINGS[name])
    fast = loaded(tokenizer, tmp_path)
    ours = [[tokenizer.bos_id, *ids, tokenizer.eos_id] for ids in tokenizer.encode(TEXTS)]
    assert fast(TEXTS).input_ids == ours


def test_there_is_none_for_a_vocabulary_of_words(tmp_path: Path) -> None:
    tokenizer = trained(kind=TokenizerKind.word, vocab_size=20)
    write_fast_tokenizer(tokenizer, tmp_path, begins=True, max_length=64)
    assert not list(tmp_path.iterdir())


def test_words_that_are_given_apart_are_found_again(tmp_path: Path) -> None:
    tokenizer = trained()
    words = ["the", "soup", "zebra", ","]
    encoded = loaded(tokenizer, tmp_path, begins=False)(words, is_split_into_words=True)
    assert encoded.input_ids == [*(i for ids in tokenizer.encode(words) for i in ids), tokenizer.eos_id]
    assert [n for n in dict.fromkeys(encoded.word_ids()) if n is not None] == [0, 1, 2, 3]


def test_it_pads_truncates_and_decodes(tmp_path: Path) -> None:
    tokenizer = trained()
    fast = loaded(tokenizer, tmp_path, max_length=5)
    inputs = fast(["the soup is hot , he said", "a"], padding=True, truncation=True)
    assert len(inputs.input_ids[0]) == len(inputs.input_ids[1]) == 5
    assert inputs.input_ids[1][-1] == tokenizer.pad_id
    assert sum(inputs.attention_mask[1]) == len(tokenizer.encode(["a"])[0]) + 2
    assert set(inputs) == {"input_ids", "attention_mask"}
    assert fast.decode(fast("the soup").input_ids, skip_special_tokens=True) == "the soup"
