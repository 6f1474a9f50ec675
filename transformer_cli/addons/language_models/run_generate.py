"""`tfm generate`: continue prompts with a language model. Each text is printed with its prompt, on one line."""

import sys
from collections.abc import Sequence
from functools import partial

import torch

from transformer_cli.addons.language_models.generator import Generator, Prompt, read_prompt
from transformer_cli.addons.language_models.keys import GenerateConfig
from transformer_cli.addons.language_models.language_model import LanguageModel
from transformer_cli.addons.language_models.task import LanguageModelling
from transformer_cli.config.model import Positions
from transformer_cli.config.tasks import all_tasks
from transformer_cli.data.lines import shown, split_lines
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.data.unknown import UnknownCounter
from transformer_cli.errors import DataError
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import ModelFile, open_one_model
from transformer_cli.standard_streams import require_stdout
from transformer_cli.text_io import STDIN, Line, LineFilter, run_filter


def run(config: GenerateConfig) -> None:
    """Continue `config.prompt`, or each line of standard input. Raises TfmError."""
    require_stdout("the text")
    if config.prompt is not None:
        refuse_empty(config.prompt, "the prompt")
    device, path, model = open_one_model(
        config, *(task.model for task in all_tasks() if isinstance(task, LanguageModelling))
    )
    prompts = PromptFilter(config, model, device)
    if config.prompt is not None:
        prompts.process_prompt(config.prompt)
        prompts.report()
        return
    prompts.greeting = f"goes on with {shown(path)}. Type a beginning; Ctrl-C drops it, Ctrl-D leaves"
    run_filter(lambda sink, is_typed: prompts, input=None)


def refuse_empty(prompt: str, where: str) -> None:
    if not prompt.strip():
        raise DataError(f"{where}: is empty. Give the beginning of a line, if only its first word")


class PromptFilter(LineFilter):
    """Prints what a language model generates from each prompt."""

    unit, progress, reports_at_end = "prompt", "generate", True

    def __init__(self, config: GenerateConfig, model: ModelFile, device: torch.device) -> None:
        super().__init__(None, strict=config.strict)
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
        self.streams = self.generator.can_stream and sys.stdout.isatty()
        self.unknown = UnknownCounter()
        self.n_texts, self.n_cut = 0, 0

    def process_block(self, block: bytes) -> None:
        """One prompt at a time, so that each text is printed when it is complete."""
        for raw in split_lines(block):
            self.process([raw])

    def process_prompt(self, text: str) -> None:
        """A prompt from the command line."""
        self.generate(text, number=1, where="the prompt")
        self.n_lines = 1

    def respond(self, lines: Sequence[Line]) -> None:
        for line in lines:
            self.generate(line.text, number=line.number, where=f"{STDIN}:{line.number}")

    def generate(self, text: str, *, number: int, where: str) -> None:
        """Print the texts, token by token on a terminal. Raises DataError for a prompt that is empty or too long."""
        prompt = self._read(text, where)
        self.unknown.add(number, prompt.unknown)
        on_text = partial(print, end="", flush=True) if self.streams else None
        texts = self.generator.generate(prompt, number=number, on_text=on_text)
        print("" if self.streams else "\n".join(one.text for one in texts), flush=True)
        self.n_texts += len(texts)
        self.n_cut += sum(not one.finished for one in texts)

    def _read(self, text: str, where: str) -> Prompt:
        refuse_empty(text, where)
        prompt = read_prompt(text, self.tokenizer)
        if self.max_positions is not None and len(prompt.ids) >= self.max_positions:
            raise DataError(
                f"{where}: {len(prompt.ids):,} tokens, which leave no room for more, because the model has"
                f" model.max_positions={self.max_positions}. Shorten it"
            )
        return prompt

    def report(self) -> None:
        if self.n_cut:
            LOGGER.info(
                "%d of %d texts did not come to their end: --max-length, or the model's positions, ended them",
                self.n_cut,
                self.n_texts,
            )
        self.unknown.warn("prompt")
        super().report()
