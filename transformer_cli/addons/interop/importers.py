"""The importers; what reads is imported when it is asked for."""

from transformer_cli.addons.interop.registries import IMPORTERS, Importer


@IMPORTERS.register("ctranslate2")
def ctranslate2() -> Importer:
    """A folder of CTranslate2, or an unpacked package of Argos Translate."""
    from transformer_cli.addons.interop.ctranslate2_reader import CTranslate2Reader

    return CTranslate2Reader()


@IMPORTERS.register("fairseq")
def fairseq() -> Importer:
    """A checkpoint of fairseq."""
    from transformer_cli.addons.interop.fairseq import FairseqReader

    return FairseqReader()


@IMPORTERS.register("hf")
def hf() -> Importer:
    """A folder of Hugging Face transformers: Marian (OPUS-MT), Pegasus as we export it, M2M-100 and NLLB-200."""
    from transformer_cli.addons.interop import huggingface_reader, m2m100

    return huggingface_reader.HuggingFaceReader({**huggingface_reader.ARCHITECTURES, "m2m_100": m2m100.M2M100})


@IMPORTERS.register("marian")
def marian() -> Importer:
    """A model of Marian."""
    from transformer_cli.addons.interop.marian_reader import Marian

    return Marian()


@IMPORTERS.register("opennmt")
def opennmt() -> Importer:
    """A checkpoint of OpenNMT-py."""
    from transformer_cli.addons.interop.opennmt import OpenNMTReader

    return OpenNMTReader()
