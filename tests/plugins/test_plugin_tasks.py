"""A plugin's task, with a model of tfm or one of its own, trains, resumes, is evaluated and is used as ours are."""

import json
from pathlib import Path

import pytest
import yaml

from tests.addons.classification.toy_classifier import table
from tests.support.each import each
from tests.support.forked import Ran, run
from tests.toy.run import sentences

# The plugin: a task for a translator, and one for a model that only averages the vectors of a line.
PLUGIN = """
from torch import nn

from transformer_cli.addons.classification.task import Classification
from transformer_cli.addons.language_models.language_model import LanguageModel
from transformer_cli.addons.language_models.task import LanguageModelling
from transformer_cli.config.tasks import TASKS
from transformer_cli.models.registry import MODELS
from transformer_cli.addons.embedding.pooling import pool, source_layout
from transformer_cli.models.transformer import Model
from transformer_cli.tasks.translation import Translation


class Rewriting(Translation):
    what, metric = "a rewriter", "chrf"

    def next_commands(self, config, which):
        yield f"tfm translate{which} < draft.txt"


class BagOfWords(Model):
    kind = "bag"

    def __init__(self, width, source, n_classes):
        super().__init__()
        self.source_pad_id = source.pad_id
        self.embedding = nn.Embedding(source.size, width)
        self.to_classes = nn.Linear(width, n_classes)

    def predict(self, source_S, source):
        return self.to_classes(pool(self.embedding(source_S), source, "mean"))

    def logits(self, given):
        return self.predict(given.source_S, given.source)

    def forward(self, source_BS):
        return self.predict(source_BS, source_layout(source_BS, self.source_pad_id))


@MODELS.register("bag")
def bag(config, source, target, options):
    return BagOfWords(config.d_model, source, target.size)


@MODELS.register("flat")
def flat(config, source, target, options):
    made = bag(config, source, target, options)
    made.kind = "transformer"
    return made


class Text(LanguageModel):
    kind = "story"


@MODELS.register("story")
def story(config, source, target, options):
    return Text(config, vocab_size=target.size, pad_id=target.pad_id, options=options)


class Telling(LanguageModelling):
    model, what = "story", "a teller"


class Sorting(Classification):
    model, what = "bag", "a bag of words"


class Drafting(Rewriting):
    recipe = "drafts"


class Plain(Rewriting):
    recipe = None


TASKS.register("rewriting")(Rewriting())
TASKS.register("drafting")(Drafting())
TASKS.register("plain")(Plain())
TASKS.register("sorting")(Sorting())
TASKS.register("telling")(Telling())
"""
TRAIN = [
    *("train", "name=run", "device=cpu", "data.tokenizer.vocab_size=30", "data.tokenizer.kind=unigram"),
    *("model.d_model=16", "model.n_heads=2", "model.d_ff=16", "model.n_encoder_layers=1", "model.n_decoder_layers=1"),
    *("train.tokens_per_update=300", "train.eval_every=2", "train.save_every=2", "train.log_every=1"),
    *("train.robustness_lines=0", "decode=greedy"),
]
CORPUS = ["data=files", "data.source_lang=en", "data.target_lang=fr", "data.train=[train.en,train.fr]"]
PARALLEL = [*CORPUS, "recipe=files", "data.task=rewriting", "data.dev=[dev.en,dev.fr]", "data.test=[dev.en,dev.fr]"]
LABELLED = ["data=labels", "data.task=sorting", "data.train=train.tsv", "data.dev=dev.tsv", "data.test=dev.tsv"]
LABELLED += ["model.name=bag"]


def tfm(folder: Path, *arguments: str, stdin: bytes = b"") -> Ran:
    ran = run([*arguments, "--plugin", "mine"], folder, stdin=stdin)
    assert ran.code == 0, ran.err.decode()
    return ran


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tasks")
    (made / "mine.py").write_text(PLUGIN, encoding="utf-8")
    for split, n in (("train", 60), ("dev", 8)):
        lines = sentences(n, seed=n)
        for language, text in (("en", lines), ("fr", [line.upper() for line in lines])):
            (made / f"{split}.{language}").write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
        (made / f"{split}.tsv").write_text(table(n, seed=n), encoding="utf-8")
    (made / "two.en").write_text("a b\nc d e\n", encoding="utf-8")
    for file, text in (
        ("recipe/drafts.yaml", "train: {max_steps: 7}"),
        ("experiment/drafts.yaml", "plugins: [mine]"),
    ):
        (made / "own" / file).parent.mkdir(parents=True, exist_ok=True)
        (made / "own" / file).write_text(f"# @package _global_\n{text}\n", encoding="utf-8")
    return made


def dev_scores(run_dir: Path) -> list[dict[str, object]]:
    entries = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]
    return [entry for entry in entries if entry["kind"] == "dev"]


def trained_at_once_and_in_parts(folder: Path, corpus: list[str], name: str) -> Ran:
    """Train four updates, and again two and two; the weights are the same. Returns what the last command says."""
    tfm(folder, *TRAIN, *corpus, f"runs={name}-once", "train.max_steps=4")
    tfm(folder, *TRAIN, *corpus, f"runs={name}", "train.max_steps=2")
    ran = tfm(folder, *TRAIN, *corpus, f"runs={name}", "train.max_steps=4")
    assert (
        dev_scores(folder / name / "run")[-1]["dev_nll"] == dev_scores(folder / f"{name}-once" / "run")[-1]["dev_nll"]
    )
    return ran


def test_a_plugin_s_task_of_parallel_text_trains_resumes_and_translates(folder: Path) -> None:
    ran = trained_at_once_and_in_parts(folder, PARALLEL, "rewriting")
    assert b"next: tfm translate --checkpoint rewriting/run < draft.txt" in ran.err or b"not usable yet" in ran.err
    model = ["--checkpoint", "rewriting/run", "device=cpu"]
    assert tfm(folder, "translate", *model, "decode=greedy", stdin=b"a b\nc d e\n").out.count(b"\n") == 2
    evaluated = json.loads(tfm(folder, "evaluate", *model, "decode=greedy", "--json").out)
    assert evaluated["test_set"].endswith(".test")
    assert all("dev_chrf" in entry for entry in dev_scores(folder / "rewriting/run"))  # its metric


def test_a_plugin_s_own_model_for_its_own_task_trains_resumes_and_is_evaluated(folder: Path) -> None:
    trained_at_once_and_in_parts(folder, LABELLED, "sorting")
    evaluated = json.loads(tfm(folder, "evaluate", "--checkpoint", "sorting/run", "device=cpu", "--json").out)
    assert evaluated["lines"] == 8
    refused = run(["translate", "--checkpoint", "sorting/run", "device=cpu", "--plugin", "mine"], folder, stdin=b"a\n")
    assert (refused.code, b"this is a bag of words; use `tfm classify`" in refused.err) == (4, True), refused.err


def test_a_plugin_s_own_language_model_is_trained_scored_and_continues_a_prompt(folder: Path) -> None:
    text = [
        "data=text",
        "data.task=telling",
        "data.tokenizer.vocab_size=20",
        "data.train=train.en",
        "data.dev=dev.en",
        "data.test=dev.en",
    ]
    run_dir = ["--checkpoint", "telling/run", "device=cpu"]
    trained = tfm(folder, *TRAIN, *text, "model.name=story", "runs=telling", "train.max_steps=2")
    assert b"next: tfm generate" in trained.err
    scored = tfm(folder, "score", *run_dir, stdin=b"a b\nc d e\n")
    of_lines = [float(line) for line in scored.out.split()]
    evaluated = json.loads(tfm(folder, "evaluate", *run_dir, "--source", "two.en", "--json").out)
    assert sum(of_lines) == pytest.approx(evaluated["log_prob"], abs=1e-3)
    assert tfm(folder, "generate", "a b", *run_dir, "--max-length", "3").out.startswith(b"a b")
    refused = run(["score", *run_dir, "--source", "two.en", "--translation", "two.en", "--plugin", "mine"], folder)
    assert (refused.code, b"telling/run" in refused.err, b"is a teller. Give --source" in refused.err) == (
        2,
        True,
        True,
    )


def test_a_translator_that_no_search_can_use_is_refused_before_the_first_update(folder: Path) -> None:
    ran = run([*TRAIN, *PARALLEL, "model.name=flat", "runs=flat", "train.max_steps=2", "--plugin", "mine"], folder)
    assert ran.code == 2
    assert b"model.name=flat: a BagOfWords is no Transformer" in ran.err
    assert not list((folder / "flat").rglob("*.safetensors"))


@pytest.mark.slow
@each(
    "overrides, expected",
    [
        ([*CORPUS, "data.task=rewriting"], ("auto", "auto", "transformer")),  # files, as its superclass
        ([*CORPUS, "data.task=drafting"], (7, 25_000, "transformer")),  # of the folder of --config-dir
        ([*CORPUS, "data.task=drafting", "experiment=drafts"], (7, 25_000, "transformer")),  # which names its plugin
        ([*CORPUS, "data.task=drafting", "recipe=files"], ("auto", "auto", "transformer")),
        ([*CORPUS, "data.task=plain"], (100_000, 25_000, "transformer")),  # none: the defaults of the keys
        ([*LABELLED, "data.columns=[0,1,2]"], ("auto", 2048, "bag")),  # pairs, of its superclass
        ([*LABELLED, "model.convolution=3"], ("auto", 2048, "bag")),  # and the keys of classifiers
    ],
)
def test_a_plugin_s_task_takes_the_recipe_that_it_names(
    folder: Path, overrides: list[str], expected: tuple[object, ...]
) -> None:
    plugin = [] if "experiment=drafts" in overrides else ["--plugin", "mine"]
    ran = run(["train", *overrides, "--cfg", "--config-dir", "own", *plugin], folder)
    assert ran.code == 0, ran.err.decode()
    config = yaml.safe_load(ran.out)
    train = config["train"]
    assert (train["max_steps"], train["tokens_per_update"], config["model"]["name"]) == expected
    assert config["model"]["n_segments"] == (2 if "data.columns=[0,1,2]" in overrides else 1)


@each(
    "arguments, says",
    [
        (
            ["data.task=rewritin"],
            "data.task=rewritin: unknown; did you mean `rewriting`? (choices: classification, drafting,",
        ),
        (["data.task=rewritin"], "Name one of them, or the plugin that brings it with --plugin"),
        (["data.task=drafting"], "data.task=drafting: its recipe `drafts` is no file of a folder recipe. Name the"),
    ],
)
def test_a_task_that_is_unknown_or_lacks_its_recipe_is_refused_by_its_key(
    folder: Path, arguments: list[str], says: str
) -> None:
    ran = run(["train", *CORPUS, *arguments, "--plugin", "mine"], folder)
    assert ran.code == 2
    assert says in ran.err.decode()
