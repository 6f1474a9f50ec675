"""scripts/pretraining_text.py: plain text without the sentences that are scored."""

from pathlib import Path

import pytest

from scripts.pretraining_text import main, treebank


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("I don't know, it's John's.", "I do n't know , it 's John 's ."),
        ("i don &apos;t know &quot;it&quot;", 'i do n\'t know " it "'),
        ("They paid 3,000 for No. 5!", "They paid 3,000 for No. 5 !"),
    ],
)
def test_text_is_cut_as_the_treebank_is(line: str, expected: str) -> None:
    assert treebank(line) == expected


def test_a_line_of_dev_or_test_is_left_out_and_so_is_a_repeated_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "sst2/train.tsv": "pos\ta good film .\nneg\tnever seen\n",
        "sst2/test.tsv": "neg\tNever seen !\n",
        "sick/dev.tsv": "neutral\tA dog runs\tTwo dogs run\n",
        "ud_english_ewt_pos/train.conll": "Stay\tVERB\nhome\tADV\n\nGo\tVERB\n",
        "tatoeba_en_de/train.en.gz": "",
        "ted_de_en_raw/tst2010.en": "Two dogs run.\nA good film.\nA cat\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        if text:
            path.write_text(text, encoding="utf-8")
    main(tmp_path)
    out, err = capsys.readouterr()
    assert out.split("\n") == ["a good film .", "Stay home", "Go", "A cat", ""]
    assert err == "4 lines; left out as lines of dev or test: 2\n"
