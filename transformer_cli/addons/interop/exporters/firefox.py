"""The files of a Firefox translation model, for Firefox's engine, translateLocally and their like."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_cli.addons.interop.registries import EXPORTERS, Exporter, Verdict
from transformer_cli.config.fields import key

if TYPE_CHECKING:
    from transformer_cli.addons.interop.keys import ExportConfig
    from transformer_cli.config.model import ModelConfig
    from transformer_cli.models.file import ModelFile


USAGE = """\
```python
from pathlib import Path

import fxtranslate

folder = Path("FOLDER")
one, *other = (path.read_bytes() for path in sorted(folder.glob("*vocab.spm")))
lexicon = folder / "lex.s2t.bin"
translator = fxtranslate.Translator(
    (folder / "model.{pair}.intgemm.alphas.bin").read_bytes(),
    one,
    other[0] if other else one,
    lexicon.read_bytes() if lexicon.exists() else None,
)
print(translator.translate("TEXT"))
```

It translates a sentence at a time. translateLocally takes the folder as it is."""


@dataclass
class FirefoxOptions:
    """Settings of `tfm export firefox`."""

    shortlist: str | None = key(
        None, "File of `tfm shortlist`, or auto: that beside the model. Unset: the whole vocabulary.", path=True
    )


@EXPORTERS.register("firefox", options=FirefoxOptions)
class FirefoxExporter(Exporter):
    program = "Firefox's engine"
    packages = ("fxtranslate",)
    takes_tags = False
    length = "Its search is greedy"
    n_lines = 200
    quantization = "int8"

    def max_positions(self, config: "ModelConfig") -> int | None:
        from transformer_cli.addons.interop import firefox

        firefox.check(config)
        return None

    def write_with(self, model: "ModelFile", folder: Path, config: "ExportConfig", lines: Sequence[str]) -> Any:
        from transformer_cli.addons.interop import firefox
        from transformer_cli.decoding.shortlist import Shortlist, shortlist_path
        from transformer_cli.models.locate import locate_model

        named, shortlist = config.options["shortlist"], None
        if named is not None:
            beside = shortlist_path(named, locate_model(config.checkpoint, config.runs))
            shortlist = Shortlist.read(beside, model.tokenizers, (model.source_lang, model.target_lang))
        return firefox.write(model, folder, lines, shortlist)

    def verify(self, model: "ModelFile", program: Any, lines: Sequence[str], config: Any) -> Verdict:
        verdict: Verdict = program.verified(lines)
        return verdict

    def usage(self, facts: Mapping[str, Any], is_packed: bool) -> str:
        return USAGE.format(pair=f"{facts['source_lang']}{facts['target_lang']}")
