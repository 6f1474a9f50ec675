"""The registry of tasks: what a model is trained for, and so what its corpora hold and what is done with it.

A task is one object. Its facts are read by the config, the readers of corpora and the training; its methods import
their work when they are called, so that no torch is needed to name a task.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from transformer_cli.errors import ConfigError
from transformer_cli.registry import Registry, is_ours, place_of

NLL = "nll"  # nats per target token of the dev set, for every task
ACCURACY = "accuracy"  # of the dev set, in percent: of sentences or words that get labels
BLEU = "bleu"  # of dev translations; chrF where BLEU cannot be computed

# The scores of the test set by name, and why the model is not usable yet, or nothing.
Reported: TypeAlias = tuple[Mapping[str, float | None], str]


class Task:
    """A kind of training: translation, tagging, and so on.

    A subclass is registered, as `TASKS.register("mine")(MyTask())`, under its value of data.task.

    The methods get the config of the command, and raise TfmError.
    """

    name = ""  # as it is registered
    has_source: ClassVar[bool] = True  # a text that the targets are made from
    has_labels: ClassVar[bool] = False  # targets are labels, and an encoder alone is trained
    has_words: ClassVar[bool] = False  # each word has a label: both sides of a pair are divided by tabs
    # A source is question<TAB>passage, and its two targets are the first and the last token of the answer in it.
    has_spans: ClassVar[bool] = False
    corpora: ClassVar[tuple[str, ...]] = ()  # built-in ones; those that no task names are for translation
    reader: ClassVar[str] = "files"  # entry of the reader registry, for its files
    files: ClassVar[str] = "two text files, as in data.train=[corpus.en,corpus.de]"  # for messages
    page: ClassVar[str] = ""  # of docs/, which says where its corpora are from
    # Training text that is in dev or test, for the warning: what it is, and if its target is the same, too.
    leak: ClassVar[tuple[str, str]] = ("training pairs have a source sentence of it", "with the same translation")
    model: ClassVar[str] = "transformer"  # entry of the model registry, and the kind of its models
    what: ClassVar[str] = "a translator"  # what a model is called
    command: ClassVar[str] = "translate"  # that a model is for
    also_from: ClassVar[tuple[str, ...]] = ()  # other kinds of models that training can begin with
    metric: ClassVar[str] = NLL  # that ranks checkpoints by default
    counted: ClassVar[str] = "tokens"  # what train.tokens_per_update counts
    unit: ClassVar[str] = "tokens"  # that has one target
    most_epochs: ClassVar[int] = 50
    fewest_updates: ClassVar[int] = 1000
    # The file of a folder recipe/ for a corpus without one of its own name; None: the defaults of the keys.
    recipe: ClassVar[str | None] = "files"
    changes: ClassVar[tuple[str, ...]] = ()  # entries of PAIR_CHANGES that it always makes, after those of data.changes

    def recipe_of(self, n_columns: int) -> str | None:
        """The recipe for a corpus of which `n_columns` are selected, 0 if that is not said."""
        return self.recipe

    @property
    def translates(self) -> bool:
        return self.has_source and not self.has_labels

    @property
    def labels_lines(self) -> bool:
        """Whether each line has a label, rather than each of its words."""
        return self.has_labels and not self.has_words

    @property
    def stacks(self) -> list[str]:
        """The stacks of layers that its models have."""
        return [side for side, has in (("encoder", self.has_source), ("decoder", not self.has_labels)) if has]

    @property
    def is_encoder_alone(self) -> bool:
        return "decoder" not in self.stacks

    @property
    def begins(self) -> bool:
        """Whether the sentences that its encoder reads begin with BOS."""
        return self.labels_lines

    def labels_of(self, target: str) -> list[str]:
        """The labels in the target of a pair."""
        return [target]

    def find_labels(self, targets: Iterable[str]) -> list[str]:
        """The different labels in the targets of the training text; the index of a label is its class."""
        raise self._lacks("find_labels")

    def label_faults(self, counts: Counter[str]) -> Iterable[str]:
        """A sentence for each probable fault in the labels of the training text, of which there are `counts`."""
        return ()

    def scored_text(self, text: Any, labels: Sequence[str], split: str, config: Any) -> Any:
        """The `data.corpus.ParallelText` of dev or test as it is scored. Raises DataError for one without a use."""
        return text

    def encode(self, text: Any, tokenizers: Any, labels: Sequence[str], config: Any, report: Any, **how: Any) -> Any:
        """Chunks of the training text as ids, where words or spans are targets, as `data.prepare` makes them of other
        text."""
        raise self._lacks("encode")

    def validator(self, config: Any, prepared: Any, device: Any) -> Any:
        """The `training.validation.Validator` of a run."""
        raise self._lacks("validator")

    def evaluate(self, config: Any, opened: Any, device: Any) -> None:
        """Print the scores of the `decoding.opening.Opened` models, for `tfm evaluate`."""
        raise self._lacks("evaluate")

    def report(self, config: Any, prepared: Any, result: Any, device: Any) -> Reported:
        """Print the scores of the test set at the end of `tfm train`, and return them."""
        raise self._lacks("report")

    def evaluate_files(self, config: Any, hypotheses: Sequence[Any]) -> None:
        """Print the scores of files of outputs, for `tfm evaluate --hypotheses`."""
        raise self._lacks("evaluate_files")

    def labeller(self, model: Any, device: Any, batch_tokens: Any) -> Any:
        """What labels with a model, for Python: a `TextClassifier` or `SentenceTagger` of models.labelling."""
        raise self._lacks("labeller")

    def next_commands(self, config: Any, which: str) -> Iterator[str]:
        """The commands for what people do next with a model; `which` names it, where that is needed."""
        yield f"tfm {self.command}{which}"

    def _lacks(self, method: str) -> ConfigError:
        return ConfigError(
            f"data.task={self.name}: its {type(self).__name__} has no `{method}`. Define it, or name ours"
        )


def _adopted(name: str, entry: Any) -> Task:
    if not isinstance(entry, Task):
        raise ConfigError(f"{place_of(entry)}: a task is an object of a subclass of Task. Correct it")
    entry.name = name
    return entry


TASKS: Registry[Task] = Registry("task", adopt=_adopted)


def all_tasks() -> list[Task]:
    return [TASKS[name] for name in TASKS.names()]


def our_kinds() -> set[str]:
    """The kinds of models that are no plugin's."""
    return {task.model for task in all_tasks() if is_ours(task)}


def task_of_model(kind: str, data: Mapping[str, Any]) -> Task:
    """The task of a model of this kind: the one that its corpus names, where that trains such models, or ours.

    Raises ConfigError for a kind that no task has.
    """
    suited = [task for task in all_tasks() if task.model == kind]
    if not suited:
        raise ConfigError(f"models of the kind `{kind}`: no task has them. Register one in TASKS, or name its plugin")
    named = [task for task in suited if task.name == data.get("task")]
    return (named or sorted(suited, key=lambda task: not is_ours(task)))[0]
