"""scripts/pretraining_text.py leaves out what is scored."""

import gzip
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT


def test_a_sentence_of_dev_or_test_is_not_in_the_text_however_it_is_written(tmp_path: Path) -> None:
    files = {
        "sst2/train.tsv": "1\tA fine film .\n0\tDull .\n",
        "sst2/test.tsv": "1\tIt is a fine cat .\n",
        "sick/dev.tsv": "neutral\tTwo dogs run .\tA dog sleeps .\n",
        "ud_english_ewt_pos/train.conll": "He PRON\nslept VERB\n\nWe PRON\nate VERB\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "multi30k").mkdir()
    plain = "Two dogs run!\nIt is a FINE cat\nI don't know, it's late.\na fine film\nA dog   sleeps\n"
    (tmp_path / "multi30k" / "train.en.gz").write_bytes(gzip.compress(plain.encode()))
    command = [sys.executable, str(ROOT / "scripts/pretraining_text.py"), str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout == "A fine film .\nDull .\nHe slept\nWe ate\nI do n't know , it 's late .\n"
    assert "left out as lines of dev or test: 3" in ran.stderr
