"""`tfm generate`: go on from a prompt with a language model. The text is printed with its prompt, one line each."""

import sys
from functools import partial

import torch

from transformer_cli.commands.translate import decode_line, open_input
from transformer_cli.config.commands import GenerateConfig, TranslateConfig
from transformer_cli.config.model import Positions
from transformer_cli.data.lines import read_chunks, shown, split_lines
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.data.unknown import UnknownCounter
from transformer_cli.decoding.generator import Generator, Prompt, read_prompt
from transformer_cli.decoding.terminal import converse
from transformer_cli.errors import DataError, EnvironmentFault
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device
from transformer_cli.models.file import ModelFile, locate_model, read_model, require
from transformer_cli.models.language_model import LanguageModel


def run(config: GenerateConfig) -> None:
    """Go on from `config.prompt`, or from each line of standard input. Raises TfmError."""
    if sys.stdout is None:
        raise EnvironmentFault("standard output: closed. Open it, for the text to be printed")
    if config.prompt is not None:
        refuse_empty(config.prompt, "the prompt")
    device = choose_device(config.device)
    path = locate_model(config.checkpoint, config.runs)
    model = read_model(path)
    require(model, path, "decoder")
    going_on = GoingOn(config, model, device)
    if config.prompt is not None:
        going_on.answer(config.prompt, "the prompt")
    else:
        with open_input(None) as stream:
            if stream.isatty():
                LOGGER.info("goes on with %s. Type a beginning; Ctrl-C drops it, Ctrl-D leaves", shown(path))
                converse(going_on.answer_line, prompt="> ")
            else:
                for raw in read_chunks(stream, "standard input"):
                    for line in split_lines(raw):
                        going_on.answer_line(line)
    going_on.tell()


def refuse_empty(prompt: str, where: str) -> None:
    if not prompt.strip():
        raise DataError(f"{where}: is empty. Give the beginning of a line, if only its first word")


class GoingOn:
    """Answers prompts, which it numbers, and counts what there is to tell of them in the end."""

    def __init__(self, config: GenerateConfig, model: ModelFile, device: torch.device) -> None:
        self.tokenizer: Tokenizer = model.tokenizers.target
        has_table = model.config.positions is Positions.learned
        self.max_positions = model.config.max_positions if has_table else None
        self.generator = Generator(
            model.build_as(LanguageModel, device),
            self.tokenizer,
            config.decode,
            device=device,
            max_positions=self.max_positions,
            seed=config.seed,
        )
        self.decode = partial(decode_line, config=TranslateConfig(strict=config.strict))
        self.streams = self.generator.can_stream and sys.stdout.isatty()
        self.unknown = UnknownCounter()
        self.n_prompts, self.n_bad, self.n_texts, self.n_cut = 0, 0, 0, 0

    def answer_line(self, line: bytes) -> None:
        """Of standard input, without its end."""
        text, was_bad = self.decode(line, self.n_prompts)
        self.n_bad += was_bad
        self.answer(text, f"standard input:{self.n_prompts + 1}")

    def answer(self, text: str, where: str) -> None:
        """Print what comes of a prompt, piece by piece if somebody watches. Raises DataError for one of no use."""
        prompt = self._read(text, where)
        self.n_prompts += 1
        self.unknown.add(self.n_prompts, prompt.unknown)
        on_text = partial(print, end="", flush=True) if self.streams else None
        found = self.generator.generate(prompt, number=self.n_prompts, on_text=on_text)
        print("" if self.streams else "\n".join(one.text for one in found), flush=True)
        self.n_texts += len(found)
        self.n_cut += sum(not one.finished for one in found)

    def _read(self, text: str, where: str) -> Prompt:
        refuse_empty(text, where)
        prompt = read_prompt(text, self.tokenizer)
        if self.max_positions is not None and len(prompt.ids) >= self.max_positions:
            raise DataError(
                f"{where}: {len(prompt.ids):,} tokens, which leave no room for more, because the model has"
                f" model.max_positions={self.max_positions}. Shorten it"
            )
        return prompt

    def tell(self) -> None:
        if self.n_cut:
            LOGGER.info(
                "%d of %d texts did not come to their end: --max-length, or the model's positions, ended them",
                self.n_cut,
                self.n_texts,
            )
        self.unknown.warn("prompt")
        if self.n_bad:
            LOGGER.warning(
                "%d of %d prompts were not UTF-8; their bad bytes became U+FFFD (--strict stops instead)",
                self.n_bad,
                self.n_prompts,
            )
