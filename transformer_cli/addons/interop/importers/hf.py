"""A folder of Hugging Face transformers: Marian (OPUS-MT), Pegasus as we export it, M2M-100 and NLLB-200."""

from transformer_cli.addons.interop.registries import IMPORTERS, Importer


@IMPORTERS.register("hf")
def hf() -> Importer:
    from transformer_cli.addons.interop import huggingface_reader, m2m100

    return huggingface_reader.HuggingFaceReader({**huggingface_reader.ARCHITECTURES, "m2m_100": m2m100.M2M100})
