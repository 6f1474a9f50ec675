"""A checkpoint of fairseq."""

from transformer_cli.addons.interop.registries import IMPORTERS, Importer


@IMPORTERS.register("fairseq")
def fairseq() -> Importer:
    from transformer_cli.addons.interop.fairseq import FairseqReader

    return FairseqReader()
