"""The tests of DeepL's Python library against our server, with a stand-in that knows the words which they translate.

They are in the library's repository alone: `scripts/deepl_suite` is given a checkout of it.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.addons.serving.toy_server import StandIn, StandInTranslator, running, stand_in_server
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.decoding.results import TranslateOptions

CHECKOUT = os.environ.get("TFM_DEEPL_PYTHON", "")
KEY = "mock_server"  # as the tests have it
WORDS = {"en": "proton beam", "de": "Protonenstrahl", "fr": "faisceau de protons"}
FILES = ("translate_text", "translate_document", "glossary", "multilingual_glossary")
LEFT_OUT = {
    "test_formality": "more and less are refused",
    "test_translate_with_retries": "asks DeepL's mock server to answer with 429",
    "test_translate_document_with_retry": "asks it not to answer",
    "test_translate_document_with_manual_timeout_fails": "asks it to take 22 seconds",
    "test_translate_document_low_level": "asks it to wait, and expects that a document is not done",
    "test_translate_document_request_fields": "asks it to wait, and expects that it has taken 4 seconds",
    "test_document_output_format": "writes text as HTML, which is refused",
    "test_document_failure_during_translation": "one word in German, which is too little to be surely German",
}


class Dictionary(StandInTranslator):
    """Writes the words in another language, and all else in capitals."""

    target = ""

    def _one(self, line: str) -> Any:
        return super()._one(WORDS[self.target] if line in WORDS.values() else line)


class KnowsWords(StandIn):
    def translator(self, decode: DecodeConfig, options: TranslateOptions) -> StandInTranslator:
        found = Dictionary(decode, options, reverses=False)
        found.target = self.target_lang
        found.written = str
        return found


@pytest.mark.slow
@pytest.mark.skipif(not CHECKOUT, reason="scripts/deepl_suite runs it with a checkout of deepl-python")
def test_the_tests_of_deepls_library_pass(tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    packages = ["pydantic<2", "pytest", "requests", "typing_extensions"]
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
    keys = tmp_path / "keys"
    keys.write_text(KEY, encoding="utf-8")
    keys.chmod(0o600)
    models = [KnowsWords(*pair) for pair in (("en", "de"), ("de", "en"), ("fr", "de"), ("en", "fr"))]
    left_out = " and ".join(f"not {name}" for name in LEFT_OUT)
    with running(stand_in_server(*models, api_keys=str(keys))) as server:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
            "DEEPL_SERVER_URL": server.url,
            "DEEPL_MOCK_SERVER_PORT": server.url.rpartition(":")[2],
            "PYTHONPATH": CHECKOUT,
        }
        files = [f"tests/test_{name}.py" for name in FILES]
        command = [str(python), "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *files]
        done = subprocess.run(
            [*command, "-k", left_out], cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False
        )
    print(done.stdout[-3000:])
    assert done.returncode == 0, done.stdout[-5000:]
    (passed,) = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) >= 54
