"""A model of Marian."""

from transformer_cli.addons.interop.registries import IMPORTERS, Importer


@IMPORTERS.register("marian")
def marian() -> Importer:
    from transformer_cli.addons.interop.marian_reader import Marian

    return Marian()
