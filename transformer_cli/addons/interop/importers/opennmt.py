"""A checkpoint of OpenNMT-py."""

from transformer_cli.addons.interop.registries import IMPORTERS, Importer


@IMPORTERS.register("opennmt")
def opennmt() -> Importer:
    from transformer_cli.addons.interop.opennmt import OpenNMTReader

    return OpenNMTReader()
