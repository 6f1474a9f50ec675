"""Run by a Python that has argostranslate: installs a package, and prints the translation of each line of stdin.

Argos splits a text into sentences by a model that it downloads; here a line is a sentence, and nothing is downloaded.
"""

import sys
import types
from pathlib import Path


class Sentences:
    def __init__(self, *_: object, **__: object) -> None: ...

    def sentences(self, text: str) -> list[str]:
        return [text]


sys.modules["stanza"] = types.ModuleType("stanza")
minisbd = types.ModuleType("minisbd")
minisbd.SBDetect = Sentences
minisbd.models = types.SimpleNamespace(cache_dir="", list_models=lambda: ["en"])
sys.modules["minisbd"] = minisbd

from argostranslate import package, translate  # noqa: E402  (it imports what is replaced above)

package.install_from_path(Path(sys.argv[1]))
(installed,) = package.get_installed_packages()
print(installed.from_code, installed.from_name, installed.to_code, installed.to_name, sep="\t")
print(len(installed.get_readme()))
for line in sys.stdin:
    print(translate.translate(line.removesuffix("\n"), installed.from_code, installed.to_code))
