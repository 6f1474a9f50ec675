"""A folder of CTranslate2, or an unpacked package of Argos Translate."""

from transformer_cli.addons.interop.registries import IMPORTERS, Importer


@IMPORTERS.register("ctranslate2")
def ctranslate2() -> Importer:
    from transformer_cli.addons.interop.ctranslate2_reader import CTranslate2Reader

    return CTranslate2Reader()
