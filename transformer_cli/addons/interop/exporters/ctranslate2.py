"""A folder of CTranslate2."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_cli.addons.interop.registries import EXPORTERS, Exporter
from transformer_cli.addons.interop.usage import PLAIN_TOKENIZERS, export_languages, export_tags

if TYPE_CHECKING:
    from transformer_cli.addons.interop.keys import ExportConfig
    from transformer_cli.addons.interop.verify import Program
    from transformer_cli.config.model import ModelConfig
    from transformer_cli.models.file import ModelFile


@EXPORTERS.register("ctranslate2")
class CTranslate2Exporter(Exporter):
    program = "CTranslate2"
    packages = ("ctranslate2",)
    own_keys = ("quantization",)
    length = (
        "Give `tfm translate` decode.length_penalty={own:g}; CTranslate2's own length_penalty is another formula,"
        " length^length_penalty"
    )

    def max_positions(self, config: "ModelConfig") -> int | None:
        from transformer_cli.addons.interop import ctranslate2

        return ctranslate2.max_positions(config)

    def write(self, model: "ModelFile", folder: Path, config: "ExportConfig") -> "Program":
        from transformer_cli.addons.interop import ctranslate2

        ctranslate2.write(model, folder, quantization=config.quantization.name)
        return ctranslate2.Loaded(folder, model.tokenizers)

    def usage(self, facts: Mapping[str, Any], is_packed: bool) -> str:
        """The code that uses the export; of a vocabulary in another program's order, with our reader of it."""
        if languages := export_languages(facts):
            return _usage_with_languages(*languages, is_last=facts.get("language_last") is True)
        if is_packed:
            return "`tfm translate --checkpoint FOLDER < TEXT`"
        pieces, note = 'source.encode("TEXT", out_type=str)', ""
        if tags := export_tags(facts):
            pieces = f"[{json.dumps(tags[0], ensure_ascii=False)}, *{pieces}]"
            note = "A tag is a piece of its own here, and no part of TEXT.\n\n"
        return f"""{note}```python
import ctranslate2
{PLAIN_TOKENIZERS}
translator = ctranslate2.Translator("FOLDER")
(result,) = translator.translate_batch([{pieces}], beam_size=4, disable_unk=True)
print(target.decode(result.hypotheses[0]))
```

or `tfm translate --checkpoint FOLDER < TEXT`."""


def _usage_with_languages(source: str, target: str, *, is_last: bool) -> str:
    text = 'source.encode("TEXT", out_type=str)'
    pieces = f'[*{text}, "</s>", "{source}"]' if is_last else f'["{source}", *{text}]'
    place = "last" if is_last else "first"
    return f"""The language of the text is its {place} token, and that of the translation the first of this.

```python
import ctranslate2
{PLAIN_TOKENIZERS}
translator = ctranslate2.Translator("FOLDER")
pieces = {pieces}
(result,) = translator.translate_batch([pieces], target_prefix=[["{target}"]], beam_size=4, disable_unk=True)
print(target.decode(result.hypotheses[0][1:]))
```

or `tfm translate --checkpoint FOLDER --from {source.strip("_")} --to {target.strip("_")} < TEXT`."""
