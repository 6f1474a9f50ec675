"""Compares NLLB-200 and M2M-100 in transformers, tfm and CTranslate2, on small models that transformers makes here.

    python scripts/bench_nllb.py [--lines 200] [--steps 600] [--folder DIR]

Each model has the real classes and files, a SentencePiece model of invented text in five scripts, and twenty languages,
and is trained for a moment to write a text in another of them. Lines are of all languages in turn, in directions in
which each comes on both sides.
"""

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import transformers

from transformer_cli.addons.interop import ctranslate2, m2m100_writer
from transformer_cli.addons.interop.importing import import_model, read
from transformer_cli.addons.interop.m2m100 import LANGUAGES, nllb_tokens
from transformer_cli.addons.interop.verify import verify
from transformer_cli.config.tags import source_tag, target_tag
from transformer_cli.data.sentencepiece_model import SPACE, PieceKind, read_pieces, with_pieces
from transformer_cli.models.file import read_model

SCRIPTS = {
    "Latn": "abdefgiklmnoprstu",
    "Cyrl": "абвгдеиклмнопрсту",
    "Grek": "αβγδειλμνοπρστυ",
    "Arab": "ابتدرسعفقلمنوي",
}
SCRIPTS["Deva"] = "कगचतदनपबमरलवसह"
CODES = {"nllb": [f"{one}_{script}" for script in SCRIPTS for one in ("xaa", "xbb", "xcc", "xdd")]}
CODES["m2m100"] = LANGUAGES["m2m100"].split()[:20]
N_CONCEPTS, FIRST = 40, ["<s>", "<pad>", "</s>", "<unk>"]
SMALL = {"layers": 2, "attention_heads": 4, "ffn_dim": 128, "d_model": 64}


def words(language: str, number: int) -> list[str]:
    """The word of each concept in a language, which is invented by its code."""
    chooser, letters = random.Random(language), list(SCRIPTS.values())[number // 4]
    return ["".join(chooser.choices(letters, k=chooser.randint(2, 5))) for _ in range(N_CONCEPTS)]


def sentence(chooser: random.Random) -> list[int]:
    return chooser.choices(range(N_CONCEPTS), k=chooser.randint(2, 6))


def with_unused(model: bytes, n_pieces: int) -> bytes:
    """A SentencePiece model with pieces behind its own that are in no text, so that it has as many as that."""
    own = read_pieces(model)
    lowest = min(score for _, score, _ in own)
    words = (f"{SPACE}{chr(0x4E00 + n % 500)}{chr(0x5000 + n // 500)}" for n in range(n_pieces - len(own)))
    return with_pieces(model, [(word, lowest - n - 1, PieceKind.normal) for n, word in enumerate(words)])


class Toy:
    """A folder of a small model with all that belongs to it; of `n_pieces` pieces, most are in no text.

    It is trained to translate `between` some of its languages, or all.
    """

    def __init__(
        self,
        kind: str,
        folder: Path,
        *,
        steps: int,
        fast: bool = False,
        sizes: Mapping[str, int] = SMALL,
        n_pieces: int = 0,
        between: Sequence[str] = (),
    ) -> None:
        self.folder, self.codes, self.sizes = folder, CODES[kind], sizes
        self.trained_codes = between or self.codes
        self.words = {code: words(code, n) for n, code in enumerate(self.codes)}
        model = BytesIO()
        chooser = random.Random(1)
        text = [self.text(code, sentence(chooser)) for code in self.codes for _ in range(100)]
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(text), model_writer=model, vocab_size=600, model_type="bpe", minloglevel=3,
            hard_vocab_limit=False, num_threads=1,
        )  # fmt: skip
        content = with_unused(model.getvalue(), n_pieces)
        self.pieces = sentencepiece.SentencePieceProcessor(model_proto=content)
        names = [self.pieces.id_to_piece(i) for i in range(3, len(self.pieces))]
        known = [*FIRST, *names]
        every = [f"__{code}__" for code in LANGUAGES["m2m100"].split()] if kind == "m2m100" else [*self.codes, "<mask>"]
        self.ids = {piece: i for i, piece in enumerate([*known, *every])}
        self.languages = {code: self.ids[f"__{code}__" if kind == "m2m100" else code] for code in self.codes}
        folder.mkdir(parents=True)
        (folder / "sentencepiece.bpe.model").write_bytes(content)
        settings: dict[str, Any] = {"tokenizer_class": "M2M100Tokenizer", "additional_special_tokens": every}
        if kind == "m2m100":
            (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(known)}), "utf-8")
        else:
            tokens = {str(self.ids[one]): {"content": one, "special": True} for one in [*FIRST, *every]}
            settings = {"tokenizer_class": "NllbTokenizer", "added_tokens_decoder": tokens}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
        if fast:
            loaded = transformers.NllbTokenizer.from_pretrained(folder)
            loaded.backend_tokenizer.save(str(folder / "tokenizer.json"))
        self.model = self.trained(len(self.ids) + 8, steps)
        self.model.save_pretrained(folder)

    def text(self, code: str, concepts: Sequence[int]) -> str:
        return " ".join(self.words[code][one] for one in concepts)

    def encoded(self, code: str, concepts: Sequence[int]) -> list[int]:
        pieces = self.pieces.encode(self.text(code, concepts), out_type=str)
        return [self.languages[code], *(self.ids.get(piece, 3) for piece in pieces), 2]

    def trained(self, size: int, steps: int) -> Any:
        torch.manual_seed(1)
        names = ("layers", "attention_heads", "ffn_dim")
        sizes = {f"{side}_{name}": self.sizes[name] for side in ("encoder", "decoder") for name in names}
        config = transformers.M2M100Config(
            vocab_size=size, d_model=self.sizes["d_model"], scale_embedding=True, dropout=0.0, **sizes
        )
        model = transformers.M2M100ForConditionalGeneration(config)
        optimizer, chooser = torch.optim.Adam(model.parameters(), lr=0.192 / self.sizes["d_model"]), random.Random(2)
        for _ in range(steps):
            rows = [(*chooser.sample(self.trained_codes, 2), sentence(chooser)) for _ in range(32)]
            source_BS = padded([self.encoded(source, concepts) for source, _, concepts in rows], 1)
            labels_BT = padded([self.encoded(target, concepts) for _, target, concepts in rows], -100)
            given_BT = torch.cat([torch.full((32, 1), 2), labels_BT[:, :-1].masked_fill(labels_BT[:, :-1] < 0, 1)], 1)
            found = model(
                input_ids=source_BS, attention_mask=source_BS != 1, decoder_input_ids=given_BT, labels=labels_BT
            )
            optimizer.zero_grad()
            found.loss.backward()
            optimizer.step()
        return model.eval()

    def lines(self, n: int) -> Iterator[str]:
        """Lines with tags of sampled directions."""
        chooser = random.Random(3)
        for i in range(n):
            source, target = self.codes[i % 20], chooser.choice([*self.codes[: i % 20], *self.codes[i % 20 + 1 :]])
            yield f"{source_tag(source)} {target_tag(target)} {self.text(source, sentence(chooser))}"


def padded(rows: Sequence[Sequence[int]], value: int) -> torch.Tensor:
    tensors = [torch.tensor(row) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=value)


def measure(name: str, toy: Toy, place: Path, n_lines: int) -> None:
    """Print what is the same in transformers, after an export to it, and in CTranslate2."""
    lines, file = list(toy.lines(n_lines)), place / f"{name}.safetensors"
    outcome = import_model(read(toy.folder, "hf"), file, origin=toy.folder, lines=lines, text=f"{n_lines} lines")
    assert outcome.comparison is not None
    print(f"{name}: tfm and transformers", *outcome.comparison.lines_of_text(), sep="\n  ", flush=True)
    model = read_model(file)
    if name != "m2m100":
        assert nllb_tokens(model.tokenizers.source)["additional_special_tokens"] == toy.codes
    back = place / f"{name}.back"
    back.mkdir()
    m2m100_writer.write_m2m100(m2m100_writer.arranged(model), back)
    again = transformers.AutoModelForSeq2SeqLM.from_pretrained(back).state_dict()
    same = sum(torch.equal(weight, again[key]) for key, weight in toy.model.state_dict().items())
    print(f"  exported to transformers again: {same} of {len(again)} tensors are equal bit by bit")
    folder = place / f"{name}.ct2"
    folder.mkdir()
    ctranslate2.write(model, folder)
    verdict = verify(model, ctranslate2.Loaded(folder, model.tokenizers), lines, is_float32=True)
    print(f"{name}: tfm and CTranslate2", *verdict.lines_of_text(), sep="\n  ", flush=True)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args(arguments)
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        place = Path(folder)
        for name, kind, fast in (("nllb", "nllb", False), ("nllb-fast", "nllb", True), ("m2m100", "m2m100", False)):
            measure(name, Toy(kind, place / f"{name}.hf", steps=options.steps, fast=fast), place, options.lines)


if __name__ == "__main__":
    main(sys.argv[1:])
