"""The commands of `tfm` and their flags. Nothing heavy is imported here: `--help` and completion read this table."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Flag:
    """A synonym of one config key. `kind` is the type of its value; bool takes none."""

    key: str
    help: str
    kind: type = str
    repeated: bool = False


@dataclass(frozen=True)
class Command:
    """A command of `tfm`."""

    help: str
    example: str
    run: str  # module:function, imported only when the command runs
    flags: dict[str, Flag] = field(default_factory=dict)
    argument: Flag | None = None  # a value that needs no --name
    argument_choices: str = ""  # the folder of configs/ whose files are the values of the argument, for completion
    before: Flag | None = None  # a word that may stand before the argument
    needs_argument: str = ""  # the message where it is missing; empty: it is optional
    takes_command_lines: bool = False  # its words are those of other commands, also where they hold a = sign
    input_hint: str = ""  # where input comes from, for the message that refuses a word on its own
    reads: tuple[str, ...] = ()  # the groups of keys that it uses, of those that it accepts; empty: all
    reads_with: dict[str, tuple[str, ...]] = field(default_factory=dict)  # a key → the groups used where it is given
    multirun: bool = False

    def load(self) -> Callable[[Any], object]:
        module, function = self.run.split(":")
        loaded: Callable[[Any], object] = getattr(importlib.import_module(module), function)
        return loaded


_CHECKPOINT = Flag(
    "checkpoint",
    "model file, checkpoint or run directory (default: the newest finished run); repeat for an ensemble",
    repeated=True,
)
_ONE_MODEL = Flag(
    "checkpoint",
    "model file, checkpoint or run directory (default: the newest finished run)",
    repeated=True,  # and refused then, rather than to let the last one win
)
_BEAM = Flag("decode.beam_size", "hypotheses kept by beam search (default: 4)", int)
_NAME = Flag("name", "name of the run directory (default: made from the config)")
_TEXT_INPUT = "Give the text on standard input, or a file with --input"
_TAG = Flag("tag", "tags of lines that do not begin with one of their own, as '<2de>'")
_DEVICE = Flag("device", "auto, cpu, cuda or mps (Apple)")
_ENGINE = Flag("engine", "torch, ctranslate2 (faster on CPUs; converted once), or auto")

_COMET = {
    "--comet-model": Flag("comet.model", "COMET model: checkpoint, or a name to download (Unbabel/wmt22-comet-da)"),
    "--comet-python": Flag("comet.python", "Python that has unbabel-comet (default: that of tfm)"),
    "--trust-comet-model": Flag("comet.trust", "load a checkpoint that can run code while it is read", bool),
}

COMMANDS = {
    "train": Command(
        "prepare the data, train, report BLEU; the same command resumes",
        "tfm train model=base data=wmt14_en_de",
        "transformer_cli.commands.train:run",
        {"--name": _NAME, "--device": _DEVICE},
        multirun=True,
    ),
    "reproduce": Command(
        "train a published or measured recipe beside the curve of our own run, and compare the scores at the end",
        "tfm reproduce demo_en_fr",
        "transformer_cli.addons.reproduction.run_reproduce:run",
        {"--name": _NAME, "--device": _DEVICE},
        argument=Flag("reproduction", "name of the recipe, as multi30k (default: all are listed)"),
        argument_choices="reproductions",
    ),
    "translate": Command(
        "translate lines from standard input, or --input, in order",
        "tfm translate --beam 4 < news.en > news.de",
        "transformer_cli.commands.translate:run",
        {
            "--checkpoint": _CHECKPOINT,
            "--beam": _BEAM,
            "--input": Flag("input", "file to translate (default: standard input)"),
            "--output": Flag("output", "file for the translation, written whole or not at all"),
            "--overwrite": Flag("overwrite", "replace --output if it exists", bool),
            "--format": Flag("format", "text (lines; default), or a document: html, xml, markdown, po or srt"),
            "--n-best": Flag("decode.n_best", "translations a line, as `line ||| text ||| score`, lines from 1", int),
            "--output-format": Flag(
                "output_format",
                "text; jsonl: an object a line with scores, n-best and flags; or moses: its n-best lists",
            ),
            "--prefix": Flag("prefix", "file: line n begins the translation of line n"),
            "--tag": _TAG,
            "--terms": Flag("terms", "terminology: source phrase, tab, target phrase on each line"),
            "--alignments": Flag("alignments", "file for word alignments, as `i-j`"),
            "--token-scores": Flag("token_scores", "log-probability of each token, in jsonl", bool),
            "--explain": Flag("explain", "show every step: likeliest tokens, and the hypotheses of the beam", bool),
            "--reference": Flag("reference", "file: with --explain, what is predicted at each token of its line n"),
            "--on-issue": Flag("on_issue", "keep, or retry: translate suspicious lines again"),
            "--strict": Flag("strict", "stop at a line that is not UTF-8", bool),
            "--engine": _ENGINE,
            "--device": _DEVICE,
        },
        argument=Flag("text", "the text to translate (default: standard input)"),
    ),
    "serve": Command(
        "answer HTTP requests: the APIs of LibreTranslate, DeepL and OpenNMT, our own, and a web page",
        "tfm serve --checkpoint model.safetensors",
        "transformer_cli.addons.serving.run_serve:run",
        {
            "--checkpoint": Flag(
                "checkpoint",
                "model file, checkpoint, run or export (default: the newest finished run); or repeated for other pairs",
                repeated=True,
            ),
            "--host": Flag("host", "address to listen at (default: 127.0.0.1, this machine alone)"),
            "--port": Flag("port", "port to listen at (default: 8080)", int),
            "--pivot": Flag("pivot", "language through which two models make a pair, as en"),
            "--beam": _BEAM,
            "--engine": _ENGINE,
            "--device": _DEVICE,
            "--api-keys": Flag("api_keys", "file with the API keys that requests need, one a line"),
            "--cors": Flag("cors", "origin whose pages may call the server; repeatable", repeated=True),
            "--log-format": Flag("log_format", "access log: text (default) or json"),
            "--check": Flag("check", "load the models, translate a sentence with each, and stop", bool),
        },
    ),
    "augment": Command(
        "make synthetic pairs: back-translate target text, distill a teacher; merge the shards of either",
        "tfm augment back-translate --checkpoint runs/de-en --input news.de --output bt",
        "transformer_cli.addons.synthesis.run_augment:run",
        {
            "--checkpoint": _CHECKPOINT,
            "--input": Flag("input", "text file, one sentence a line"),
            "--output": Flag("output", "name of the corpus: NAME.en, NAME.de and NAME.json"),
            "--overwrite": Flag("overwrite", "make the corpus again if it exists", bool),
            "--shard": Flag("shard", "part of the input, I/N; several with -m, as shard=1/2,2/2"),
            "--reference": Flag("reference", "translations of the input, for --choose chrf"),
            "--choose": Flag(
                "choose", "score (default); chrf: of the n-best list the most similar to the reference; or all of it"
            ),
            "--forward": Flag(
                "forward",
                "model from source to target that scores back-translations; repeat for an ensemble",
                repeated=True,
            ),
            "--min-score": Flag("min_score", "least log-probability per token by --forward", float),
            "--beam": _BEAM,
            "--n-best": Flag("decode.n_best", "translations a line, for --choose chrf or all", int),
            "--tag": _TAG,
            "--strict": Flag("strict", "stop at a line that is not UTF-8", bool),
            "--engine": _ENGINE,
            "--device": _DEVICE,
        },
        argument=Flag("method", "back-translate, distill or merge"),
        needs_argument="Name back-translate, distill or merge",
        multirun=True,
    ),
    "classify": Command(
        "classify each line of standard input, or --input, in order",
        "tfm classify --probabilities < questions.txt",
        "transformer_cli.addons.classification.run_classify:run",
        {
            "--checkpoint": _ONE_MODEL,
            "--input": Flag("input", "file to classify (default: standard input)"),
            "--output": Flag("output", "file for the classes, written whole or not at all"),
            "--overwrite": Flag("overwrite", "replace --output if it exists", bool),
            "--probabilities": Flag("probabilities", "add the probability of every class", bool),
            "--output-format": Flag("output_format", "text, or jsonl: an object a line with all probabilities"),
            "--strict": Flag("strict", "stop at a line that is not UTF-8", bool),
            "--device": _DEVICE,
        },
        input_hint=_TEXT_INPUT,
    ),
    "tag": Command(
        "label each word of each line of standard input, or --input, in order",
        "tfm tag < sentences.txt",
        "transformer_cli.addons.tagging.run_tag:run",
        {
            "--checkpoint": _ONE_MODEL,
            "--input": Flag("input", "file to tag (default: standard input)"),
            "--output": Flag("output", "file for the tags, written whole or not at all"),
            "--overwrite": Flag("overwrite", "replace --output if it exists", bool),
            "--format": Flag("format", "text: a sentence a line (default); conll or conllu: columns, a word a line"),
            "--output-format": Flag(
                "output_format", "text, or jsonl: an object a line with words, tags, probabilities"
            ),
            "--strict": Flag("strict", "stop at a line that is not UTF-8, or at a row without a word", bool),
            "--device": _DEVICE,
        },
        input_hint=_TEXT_INPUT,
    ),
    "embed": Command(
        "compute a vector for each line, or token, with a model's encoder, or find the nearest lines of a file",
        "tfm embed --input lines.txt --output lines.npy",
        "transformer_cli.addons.embedding.run_embed:run",
        {
            "--checkpoint": _ONE_MODEL,
            "--input": Flag("input", "file to read (default: standard input)"),
            "--output": Flag("output", "NAME.npy (of tokens: .npz) or NAME.jsonl (default: JSONL on standard output)"),
            "--overwrite": Flag("overwrite", "replace --output if it exists", bool),
            "--tokens": Flag("tokens", "a vector for each token instead: pieces, or words"),
            "--layer": Flag("layer", "encoder layer, from 0 (its input); -1, all, or mean (default: the last)"),
            "--pooling": Flag("pooling", "mean of all tokens (default), max of each column, or first"),
            "--nearest": Flag("nearest", "print the N nearest lines of --among instead, by cosine", int),
            "--among": Flag("among", "file whose lines are searched"),
            "--strict": Flag("strict", "stop at a line that is not UTF-8", bool),
            "--device": _DEVICE,
        },
        input_hint=_TEXT_INPUT,
    ),
    "evaluate": Command(
        "report BLEU, chrF and TER on the test set; accuracy and F1; or perplexity",
        "tfm evaluate --beam 4",
        "transformer_cli.commands.evaluate_file:run",
        {
            "--checkpoint": _CHECKPOINT,
            "--beam": _BEAM,
            "--source": Flag("source", "own test set: file to translate, label<TAB>text lines, CoNLL columns or text"),
            "--reference": Flag("reference", "own test set: its translation; repeat for several", repeated=True),
            "--test-set": Flag(
                "test_set", "test sets of sacrebleu by name, as wmt14,wmt15; `list` prints the names", repeated=True
            ),
            "--languages": Flag("languages", "direction of --test-set, as en-de (default: that of the model)"),
            "--hypotheses": Flag(
                "hypotheses",
                "score this file of translations or labels, made by anything, without a model",
                repeated=True,
            ),
            "--save": Flag("save", "file for the model's translations or labels (default: beside the model)"),
            "--overwrite": Flag("overwrite", "replace --save and --sentence-scores if they exist", bool),
            "--sentence-scores": Flag("sentence_scores", "file for the scores of each line, as JSONL"),
            "--tag": _TAG,
            "--tokenize": Flag("tokenize", "sacrebleu's tokenizer for BLEU (default: by the target language)"),
            **_COMET,
            "--robustness": Flag("robustness", "also translate perturbed lines: capitals, typos, emoji, …", bool),
            "--json": Flag("json", "print JSON", bool),
            "--engine": _ENGINE,
            "--device": _DEVICE,
        },
        input_hint="Name files with --source and --reference, or a test set with --test-set",
    ),
    "compare": Command(
        "say which of several systems translates better, whether by chance, and where; with a page",
        "tfm compare runs/old runs/new",
        "transformer_cli.addons.comparison.run_compare:run",
        {
            "--source": Flag("source", "own test set: file to translate (not needed for files of translations)"),
            "--reference": Flag("reference", "own test set: its translation; repeat for several", repeated=True),
            "--test-set": Flag("test_set", "a test set of sacrebleu, as wmt14"),
            "--languages": Flag("languages", "its direction, as en-de (default: that of the first model)"),
            "--metrics": Flag("metrics", "metrics to compare by, as bleu,chrf,ter (default: bleu,chrf)", repeated=True),
            "--output": Flag("output", "file for the page (default: compare.html)"),
            "--overwrite": Flag("overwrite", "replace --output if it exists", bool),
            "--json": Flag("json", "print JSON, and write a page only to --output", bool),
            "--seed": Flag("seed", "of the significance tests (default: 12345, as sacrebleu's)", int),
            "--samples": Flag("samples", "resamples of the bootstrap test (default: 1000)", int),
            "--tokenize": Flag("tokenize", "sacrebleu's tokenizer for BLEU (default: by the target language)"),
            **_COMET,
            "--beam": _BEAM,
            "--tag": _TAG,
            "--engine": _ENGINE,
            "--device": _DEVICE,
        },
        argument=Flag(
            "systems",
            "two or more: runs, models, checkpoints, exports, or text files of translations; the first is the baseline",
            repeated=True,
        ),
        needs_argument="Name two or more, as `tfm compare runs/old runs/new`",
    ),
    "score": Command(
        "print the log-probability that a model gives to existing translations, or to lines of text",
        "tfm score --source news.en --translation news.de",
        "transformer_cli.commands.score:run",
        {
            "--checkpoint": _CHECKPOINT,
            "--source": Flag("source", "file (default: standard input, with source, tab, translation; or with text)"),
            "--translation": Flag("translation", "file whose line n translates line n of --source"),
            "--tag": _TAG,
            "--json": Flag("json", "print an object a line, with the score of each token", bool),
            "--strict": Flag("strict", "stop at a line that is not UTF-8", bool),
            "--device": _DEVICE,
        },
        input_hint="Name files with --source and --translation, or give source<TAB>translation on standard input",
    ),
    "attention": Command(
        "draw the attention weights of a model for a sentence and its translation",
        'tfm attention "She sat down in the chair, it was very comfortable."',
        "transformer_cli.addons.attention_maps.run_attention:run",
        {
            "--checkpoint": _ONE_MODEL,
            "--beam": _BEAM,
            "--input": Flag("input", "file with a sentence a line, or a sentence, a tab and a translation"),
            "--translation": Flag("translation", "show this one instead of the model's own"),
            "--positions": Flag("positions", "draw this many position encodings instead; no model needed", int),
            "--output": Flag("output", "file: .html (default: attention.html or positions.html), .png, .svg or .json"),
            "--overwrite": Flag("overwrite", "replace --output if it exists", bool),
            "--words": Flag("words", "merge the subwords of each word", bool),
            "--link": Flag("link", 'two words, as "it chair": print the head with the largest weight between them'),
            "--kind": Flag("kind", "of .png and .svg: cross (default), encoder or decoder"),
            "--layer": Flag("layer", "of .png and .svg: this layer, from 1 (default: all)", int),
            "--head": Flag("head", "of .png and .svg: this head, from 1 (default: all)", int),
            "--mean": Flag("mean", "of .png and .svg: the mean of the heads of each layer", bool),
            "--device": _DEVICE,
        },
        argument=Flag("sentence", "the sentence to translate"),
    ),
    "generate": Command(
        "continue a prompt, or each line of standard input, with a language model",
        'tfm generate "The weather" --temperature 0.8 --n 3',
        "transformer_cli.addons.language_models.run_generate:run",
        {
            "--checkpoint": _ONE_MODEL,
            "--prompt": Flag("prompt", "the prompt, where it holds a = (default: standard input, one a line)"),
            "--temperature": Flag("decode.temperature", "below 1: favour likely tokens (default: 1)", float),
            "--top-k": Flag("decode.top_k", "sample from the N likeliest tokens", int),
            "--top-p": Flag(
                "decode.top_p", "sample from the likeliest tokens with this total probability (0.9)", float
            ),
            "--max-length": Flag("decode.max_length", "most tokens after the prompt (default: 256)", int),
            "--n": Flag("decode.n_best", "texts for each prompt (default: 1)", int),
            "--seed": Flag("seed", "the same seed gives the same text (default: 1)", int),
            "--strict": Flag("strict", "stop at a line that is not UTF-8", bool),
            "--device": _DEVICE,
        },
        argument=Flag("prompt", "the text to continue"),
    ),
    "average": Command(
        "average the weights of several models, or of a run's last checkpoints",
        "tfm average --last 5 --output average.safetensors",
        "transformer_cli.commands.average:run",
        {
            "--checkpoint": Flag("checkpoint", "model to average; repeat for several", repeated=True),
            "--last": Flag("last", "average the last N checkpoints of a run (default: the newest finished run)", int),
            "--output": Flag("output", "file for the model, written whole or not at all"),
            "--overwrite": Flag("overwrite", "replace --output if it exists", bool),
        },
        input_hint="Name models with --checkpoint",
    ),
    "prepare": Command(
        "download, verify, clean, train the tokenizer and encode, without training",
        "tfm prepare data=multi30k_en_de",
        "transformer_cli.commands.prepare:run",
        {"--name": Flag("name", "of `tfm train`; not used"), "--device": Flag("device", "of `tfm train`; not used")},
        reads=("data", "init", "experiment", "recipe", "plugins"),  # a recipe may set keys of data
        reads_with={"init.from_": ("runs", "name", "resume")},  # where the model is, or the run that goes on
    ),
    "doctor": Command(
        "check the text, memory, time and disk of a training run before it starts",
        "tfm doctor model=base data=wmt14_en_de",
        "transformer_cli.commands.doctor:run",
        {"--json": Flag("json", "print JSON", bool), "--name": _NAME, "--device": _DEVICE},
    ),
    "bench": Command(
        "measure speed on this machine, beside other programs",
        "tfm bench train model=base data=multi30k_en_de",
        "transformer_cli.addons.benchmarks.run_bench:run",
        {
            "--checkpoint": Flag("checkpoint", "for decode and start: the model to translate with"),
            "--json": Flag("json", "print JSON", bool),
            "--device": _DEVICE,
        },
        argument=Flag("subject", "machine, train, loss, attention, data, start, decode or layers"),
        needs_argument="Name one: machine, train, loss, attention, data, start, decode or layers",
    ),
    "export": Command(
        "write a model for CTranslate2, Hugging Face transformers, ONNX, Argos Translate or Marian, and verify that it"
        " gives the same translations",
        "tfm export ctranslate2 --output model.ct2 --quantization int8",
        "transformer_cli.addons.interop.run_export:run",
        {
            "--checkpoint": _ONE_MODEL,
            "--output": Flag("output", "folder for the model, or FILE.argosmodel; written whole or not at all"),
            "--overwrite": Flag("overwrite", "replace an earlier export", bool),
            "--quantization": Flag(
                "quantization", "of ctranslate2 and argos: float32 (default), int8, int8_float32, int16, …"
            ),
            "--license": Flag("license", "licence of the model, for its card (default: not stated)"),
            "--scores": Flag("scores", "output of `tfm evaluate --json`, for the card"),
            "--package-version": Flag("package_version", "of argos: version of the package (default: 1.0)"),
            "--from-name": Flag("from_name", "of argos: name of the source language (default: by its code)"),
            "--to-name": Flag("to_name", "of argos: name of the target language (default: by its code)"),
        },
        argument=Flag("format", "ctranslate2, huggingface, onnx, argos or marian"),
    ),
    "inspect": Command(
        "print what a model file, run, checkpoint or export says of itself",
        "tfm inspect model.safetensors",
        "transformer_cli.commands.inspect:run",
        {
            "--json": Flag("json", "print JSON", bool),
            "--card": Flag("card", "print the model card, as Markdown", bool),
            "--license": Flag("license", "licence of the model, for its card (default: not stated)"),
            "--scores": Flag("scores", "output of `tfm evaluate --json`, for the card"),
        },
        argument=Flag(
            "checkpoint", "model file, checkpoint, run directory or export (default: the newest finished run)"
        ),
    ),
    "import": Command(
        "read a model of Hugging Face, Marian, fairseq, OpenNMT-py or CTranslate2, and verify that it is the same",
        "tfm import hf opus-mt-en-de --output model.safetensors",
        "transformer_cli.addons.interop.run_import:run",
        {
            "--output": Flag("output", "file for the model, written whole or not at all"),
            "--overwrite": Flag("overwrite", "replace --output if it exists", bool),
            "--source-lang": Flag("source_lang", "language that the model translates from (default: as its files say)"),
            "--target-lang": Flag("target_lang", "language that the model translates into"),
            "--vocabulary": Flag("vocabulary", "vocabulary file; repeat for that of the target", repeated=True),
            "--segmenter": Flag(
                "segmenter", "SentencePiece model or BPE codes; repeat for that of the target", repeated=True
            ),
            "--lines": Flag("lines", "file of source lines on which both are compared (default: random pieces)"),
        },
        argument=Flag("path", "folder or file of the model"),
        before=Flag("format", "hf, marian, fairseq, opennmt or ctranslate2 (default: recognised)"),
        needs_argument="Name the folder or file of the model",
    ),
    "config": Command(
        "say which file, group, flag or default sets a key, or in which keys two configs differ",
        "tfm config why model.d_model experiment=multi30k model=big",
        "transformer_cli.config_command:run",
        {
            "--command": Flag("command", "command that command lines without one, and YAML files, are for (train)"),
            "--json": Flag("json", "print JSON", bool),
        },
        before=Flag("action", "why or diff"),
        argument=Flag(
            "words",
            "after why: a key, then a command line, or a run; after diff: two runs, model files, YAML files, or command"
            ' lines in quotes, as "model=big norm=pre"',
            repeated=True,
        ),
        needs_argument="Write `why KEY`, or `diff A B`",
        takes_command_lines=True,
    ),
    "replay": Command(
        "repeat the update at which a run diverged",
        "tfm replay runs/NAME/incidents/step-00001204",
        "transformer_cli.commands.replay:run",
        {"--device": _DEVICE},
        argument=Flag("incident", "folder that a diverged run has left"),
        needs_argument="Name the folder that a diverged run has left, as runs/NAME/incidents/step-00001204",
    ),
}

# The options of every command; --multirun only where a command has it.
COMMON_OPTIONS: dict[tuple[str, ...], dict[str, Any]] = {
    ("--plugin",): {
        "action": "append",
        "metavar": "MODULE",
        "help": "import a Python module of your own, which registers models, searches, optimizers, …; repeatable",
    },
    ("--keys",): {
        "nargs": "?",
        "const": "",
        "metavar": "PATTERN",
        "help": "print every config key (that contains PATTERN) with type, default and meaning, and stop",
    },
    ("--cfg",): {"action": "store_true", "help": "print the resolved config and stop"},
    ("--config-dir",): {"metavar": "DIR", "help": "folder with your own YAML files, laid out as ours"},
    ("-m", "--multirun"): {"action": "store_true", "help": "one run for each combination of a,b values"},
}
