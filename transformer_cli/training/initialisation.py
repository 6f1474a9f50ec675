"""Fine-tuning: a run that begins with a trained model has its sizes, its tokenizers and its weights.

A classifier takes the encoder of another model, or all of another classifier of the same classes; so does a tagger. The
layers of a language model become an encoder without their mask. Once a run has a checkpoint, that is where it goes on
from: the model that it began with is not read any more, and may be gone.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from transformer_cli.config.data import DataConfig
from transformer_cli.config.fields import keys_of_part
from transformer_cli.config.model import ModelConfig
from transformer_cli.config.options import option_infos
from transformer_cli.config.poolings import POOLINGS, with_pooling_options
from transformer_cli.config.tags import languages_of, source_tag, target_tag
from transformer_cli.config.tasks import task_of_model
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.clean import clean
from transformer_cli.data.corpus import sentence_key
from transformer_cli.data.download import fetch
from transformer_cli.data.extend_vocabulary import (
    extended_tokenizers,
    have_one_vocabulary,
    kept_ids,
    parts_of_new,
    tag_like,
    with_languages,
)
from transformer_cli.data.hashes import file_sha256
from transformer_cli.data.pairs import texts_of
from transformer_cli.data.prune_vocabulary import pruned_tokenizers
from transformer_cli.data.splits import load_splits
from transformer_cli.data.tags import split_tags
from transformer_cli.data.tokenizer import Tokenizers, sampled
from transformer_cli.decoding.directions import direction_of, language_among, shown_languages
from transformer_cli.errors import CheckpointError, ConfigError, TfmError
from transformer_cli.evaluation.held_out import read_left_out, to_leave_out
from transformer_cli.files import follow
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import ModelFile, map_model, read_model, require
from transformer_cli.models.locate import address_in, locate_model, model_at
from transformer_cli.models.registry import MODELS
from transformer_cli.models.runs import run_of
from transformer_cli.registry import did_you_mean
from transformer_cli.training.checkpoints import CheckpointStore
from transformer_cli.training.freezing import check_patterns, is_trained
from transformer_cli.training.resuming import RESUME_AUTO
from transformer_cli.training.run_directory import run_folder, run_name

# Settings of a model that a run chooses for itself; all others are those of the model that it begins with.
OWN = keys_of_part(ModelConfig, "training", "classifier")
# Those that have nothing to do with an encoder, which a classifier or tagger begins with.
NOT_OF_ENCODERS = ["name", "preset", *keys_of_part(ModelConfig, "decoder")]
ENCODER = ("source_embedding.weight", "source_embedding.project_in.", "encoder.")
CONVOLUTION = ("convolution.to_out.weight", "convolution.to_out.bias")
OF_PAIRS = ("segment_embedding.weight",)
OF_SOURCE = ("source_embedding.weight",)
OF_TARGET = (
    *("own_target_embedding.weight", "own_output.weight", "embedding.weight"),  # the last is a language model's
    # The bias of the output layer is where its matrix is.
    *("source_embedding.bias", "own_target_embedding.bias", "own_output.bias", "embedding.bias"),
)
LAYER = re.compile(r"(encoder|decoder)\.layers\.(\d+)\.")


@dataclass(frozen=True)
class Initial:
    """The model that a run begins with, or the one that it goes on from."""

    path: Path
    model: ModelFile
    is_resumed: bool  # the second
    left_out: Sequence[str] = ()  # source sentences that are in no training pair: what earlier runs held out


def read_initial_model(config: TrainConfig) -> Initial | None:
    """The model that init.from names, if it names one; of a run that goes on, its own newest checkpoint.

    Raises CheckpointError for a model of another kind than the run trains.
    """
    if config.init.from_ is None:
        return None
    return _own_model(config) or named_model(config)


def _own_model(config: TrainConfig) -> Initial | None:
    """The model of the checkpoint that the run goes on from; None for a run that is new."""
    store = CheckpointStore(run_folder(config))
    for step in reversed(store.steps()):
        try:
            model, left_out = store.load_model(step), read_left_out(run_folder(config))
            return Initial(store.path(step), model, is_resumed=True, left_out=left_out)
        except CheckpointError:
            continue  # damaged: the run goes on from the one before, and says so
    if config.resume != RESUME_AUTO:
        path = model_at(follow(Path(config.resume)))
        return Initial(path, read_model(path), is_resumed=True, left_out=read_left_out(run_of(path.resolve())))
    return None


def named_model(config: TrainConfig) -> Initial:
    """The model that init.from names. Raises CheckpointError, also for a model of another kind than is trained."""
    name, task = config.init.from_, config.data.trained
    assert name is not None
    kinds = [task.model, *task.also_from]
    wanted = " or ".join(", ".join(task_of_model(kind, {}).what for kind in kinds).rsplit(", ", 1))
    try:
        path = locate_model(name, config.runs)
        model = map_model(path)  # of which a run may take a part, once its text is prepared
    except CheckpointError as error:
        what, _, advice = str(error).rpartition(". ")
        # Of another key than this one; the flag --plugin is for both.
        advice = advice if "--plugin" in advice else f"Choose {wanted}"
        raise CheckpointError(f"init.from: {what}. {advice}") from error
    try:
        require(model, path, *kinds)
    except CheckpointError as error:
        what, _, _ = str(error).partition(";")
        raise CheckpointError(f"init.from: {what}, and data.task={task.name} needs {wanted}. Choose one") from error
    return Initial(path, model, is_resumed=False, left_out=to_leave_out(run_of(path.resolve()), model))


def base_facts(model: ModelFile) -> dict[str, Any]:
    """What a model that is trained from this one says of where this one comes from."""
    return {name: model.provenance[name] for name in ("origin", "license", "base_model") if name in model.provenance}


def described_start(name: str, origin: Mapping[str, Any]) -> str:
    """The name of the model that training began with, and what `base_facts` says of it."""
    words = {"origin": "from", "license": "licence"}
    return ", ".join([name, *(f"{word} {origin[key]}" for key, word in words.items() if key in origin)])


def identity(path: Path) -> str:
    """SHA-256 of a model's file, by which it is known again; empty for what is no file."""
    try:
        return file_sha256(path)
    except OSError:
        return ""


def warn_if_changed(config: TrainConfig, run_dir: Path, before: str) -> None:
    """Warn if init.from now names another model than the one with this identity, with which the run began."""
    name = config.init.from_
    if name is None or address_in(name) is not None:
        return  # an address would be fetched for this alone
    try:
        path = locate_model(name, config.runs).resolve()
    except TfmError:
        return  # it may be gone
    if run_dir.resolve() in path.parents:
        return  # `latest`, which is this run by now
    if before and identity(path) not in (before, ""):
        LOGGER.warning(
            "init.from=%s: is another model now than when this run began, which goes on from its own checkpoints."
            " Choose another name= to begin with this one",
            name,
        )


def initial_tokenizers(config: TrainConfig, start: Initial | None) -> Tokenizers | None:
    """The tokenizers that encode the text in place of new ones; None without a model to begin with."""
    if start is None:
        return None
    init, taken, of_model = config.init, _tokenizers_of(start, config), start.model.tokenizers.source
    if config.data.trained.is_encoder_alone:  # which has one text
        taken = Tokenizers(taken.source, taken.source)
    if start.is_resumed:
        return taken
    taken = _with_new_pieces(config, taken, start.left_out)
    if init.like is not None:
        like = _like(start.model, init.like)
        new = set(taken.source.tags) - set(of_model.tags)
        if not init.extend_languages and not any(tag_like(tag, like, of_model.tags) for tag in new):
            raise ConfigError(
                f"init.like={init.like}: no tag is new that names a language as one of {like} does, to begin like it."
                " Name the language in data.tags, or in init.extend_languages"
            )
    return _pruned(config, start, taken) if init.keep_languages else taken


def _tokenizers_of(start: Initial, config: TrainConfig) -> Tokenizers:
    """The tokenizers of a model with the languages that the run adds, or those of the one direction of its corpus."""
    found, added = start.model.tokenizers, config.init.extend_languages
    if added and not start.is_resumed:
        source, target = (with_languages(one, added) for one in (found.source, found.target))
        found = replace(found, source=source, target=target)
    return _in_direction(found, config.data)


def _languages_of(model: ModelFile) -> list[str]:
    """The languages of which a model has tokens, or else those that it is said to translate."""
    sides = [*languages_of(model.source_lang), *languages_of(model.target_lang)]
    return [*model.tokenizers.source.languages] or list(dict.fromkeys(sides))


def _like(model: ModelFile, language: str) -> str:
    """The model's code for init.like. Raises ConfigError."""
    return language_among(language, [], _languages_of(model), flag="init.like")


def _pruned(config: TrainConfig, start: Initial, tokenizers: Tokenizers) -> Tokenizers:
    """The tokenizers with the tokens of init.keep_languages alone, and the pieces that the text uses."""
    known = [*tokenizers.source.languages] or [*_languages_of(start.model), *config.init.extend_languages]
    kept = [language_among(code, [], known, flag="init.keep_languages") for code in config.init.keep_languages]
    if other := [code for code in _asked_languages(config, tokenizers) if code not in kept]:
        given = ",".join(config.init.keep_languages)
        raise ConfigError(f"init.keep_languages=[{given}]: the corpus has tags of {other[0]}, too. Add it")
    if left_out := [code for code in config.init.extend_languages if code in known and code not in kept]:
        given = ",".join(config.init.keep_languages)
        raise ConfigError(f"init.keep_languages=[{given}]: init.extend_languages adds {left_out[0]}, too. Add it")
    fetch(config.data, progress=True)
    with TemporaryDirectory() as spool:
        splits = load_splits(config.data, Path(spool))
        texts = [splits.train, splits.dev, *([splits.test] if splits.test is not None else [])]
        pruned = pruned_tokenizers(tokenizers, chain.from_iterable(text.each() for text in texts), kept)
    LOGGER.info(
        "vocabulary: %s of %s pieces, those that the text needs",
        *(f"{len(one.source):,}" for one in (pruned, tokenizers)),
    )
    return pruned


def _asked_languages(config: TrainConfig, tokenizers: Tokenizers) -> list[str]:
    """The languages that the tags of the corpus name, of a model in which languages are tokens."""
    tags = {*config.data.all_tags}
    return [code for code in tokenizers.source.languages if {source_tag(code), target_tag(code)} & tags]


def _in_direction(tokenizers: Tokenizers, data: DataConfig) -> Tokenizers:
    """The tokenizers of one direction, that of a corpus without tags, for a model between many languages.

    Raises ConfigError for a language that the model does not have.
    """
    every = list(tokenizers.source.languages)
    if not every or data.all_tags or not data.trained.translates:
        return tokenizers
    sides = (("data.source_lang", data.source_lang), ("data.target_lang", data.target_lang))
    source, target = (language_among(code, every, (), flag=key) for key, code in sides)
    return tokenizers.in_direction(source, target)


def left_out_for(start: Initial | None) -> Sequence[str]:
    """The source sentences that no training pair may have; none without a model to begin with."""
    return () if start is None else start.left_out


def _with_new_pieces(config: TrainConfig, tokenizers: Tokenizers, left_out: Sequence[str]) -> Tokenizers:
    """The tokenizers with the pieces of init.extend_vocab, and the tags and symbols of the corpus that they lack."""
    data, n_pieces = config.data, config.init.extend_vocab
    languages = tokenizers.source.languages
    for tag in data.all_tags:
        if languages and tag not in tokenizers.source.tags and tag.startswith("<2"):
            code = tag.strip("<2>")
            near = did_you_mean(code, languages) or "."
            raise ConfigError(
                f"data.tags: {tag} asks for no language of the model{near} Correct it, or add"
                f" the language by init.extend_languages=[{code}]"
            )
    known = {*tokenizers.source.tags, *tokenizers.source.pieces(range(len(tokenizers.source)))}
    written = [tokenizers.source.normalized(symbol, as_written=True) for symbol in data.tokenizer.user_symbols]
    tags, symbols = ([one for one in entries if one not in known] for entries in (data.all_tags, written))
    if tags or symbols:
        LOGGER.info("appended to the vocabulary: %s", ", ".join([*symbols, *tags]))
    sentences: tuple[list[str], list[str]] = ([], [])
    if n_pieces:
        LOGGER.info("training %s more pieces of the vocabulary", f"{n_pieces:,}")
        sentences = _training_sentences(data, left_out)
    return extended_tokenizers(tokenizers, n_pieces=n_pieces, sentences=sentences, symbols=symbols, tags=tags)


def _training_sentences(config: DataConfig, left_out: Sequence[str]) -> tuple[list[str], list[str]]:
    """Both sides of the training text, as it is encoded; of much text a sample."""
    fetch(config, progress=True)
    with TemporaryDirectory() as spool:
        splits = load_splits(config, Path(spool))
        tags = config.all_tags
        text, _ = clean(
            splits.train,
            drop_duplicates=config.drop_duplicates,
            held_out=splits.held_out,
            left_out=frozenset(map(sentence_key(config), left_out)),
            tags=tags,
            key_of=sentence_key(config),
        )
        pairs = [(split_tags(source, tags)[1], target) for source, target in text.each()]
    chosen = [pairs[i] for i in sampled(len(pairs), config.tokenizer, seed=config.seed)]
    sources = [split_tags(source, config.all_tags)[1] for source, _ in chosen]
    targets = [target for _, target in chosen]
    if config.n_texts == 2:
        sources = list(chain.from_iterable(map(texts_of, sources)))
    return sources if config.trained.has_source else [], [] if config.trained.has_labels else targets


def with_initial_sizes(config: TrainConfig, start: Initial | None) -> TrainConfig:
    """`config` with the sizes of `start`, and with the name that the run has without them.

    Of a new run, those that differ are logged. Raises ConfigError for a part to freeze that the model does not have.
    """
    if start is None:
        return config
    config = replace(config, name=run_name(config))
    model, init = start.model, config.init
    is_encoder, has_labels = config.data.trained.is_encoder_alone, config.data.trained.has_labels
    own = (*OWN, *NOT_OF_ENCODERS) if is_encoder else OWN
    sizes = {field.name: getattr(model.config, field.name) for field in fields(ModelConfig) if field.name not in own}
    sizes["options"] = _options(config.model, model.config)
    sizes |= {"n_encoder_layers": _n_layers(model, "encoder")} if is_encoder else {}
    if not start.is_resumed:
        _report(config, start, sizes)
        for side, n_layers in (("encoder", init.encoder_layers), ("decoder", init.decoder_layers)):
            if n_layers is not None:
                sizes[f"n_{side}_layers"] = n_layers
    data = config.data
    if not is_encoder:
        joint = _tokenizers_of(start, config).joint
        data = replace(data, tokenizer=replace(data.tokenizer, joint=joint))
    config = replace(config, model=replace(config.model, **sizes), data=data)
    head = ["to_classes.weight", "to_classes.bias"] if has_labels else []
    head += OF_PAIRS if config.model.n_segments == 2 else []
    head += CONVOLUTION if config.model.convolution is not None else []
    head += _pooling_names(config.model) if data.trained.labels_lines else []
    check_patterns([*_taken(config, model), *head], config)  # before text is prepared, which may take an hour
    return config


def _report(config: TrainConfig, start: Initial, sizes: Mapping[str, object]) -> None:
    """Log what is taken over, and what differs from `config`."""
    model = start.model
    languages, ids = direction_of(model), model.tokenizers
    with_its = "tokenizer" if ids.joint or config.data.trained.is_encoder_alone else "two tokenizers"
    LOGGER.info(
        "init.from=%s: %s, step %d, with its %s in place of data.tokenizer",
        *(config.init.from_, languages, model.step, with_its),
    )
    if changed := [
        f"model.{key}={_shown(value)} (not {_shown(getattr(config.model, key))})"
        for key, value in sizes.items()
        if value != getattr(config.model, key)
    ]:
        LOGGER.info("as there: %s", ", ".join(changed))
    is_extended = config.init.extend_vocab or config.data.all_tags or config.data.tokenizer.user_symbols
    if is_extended and not all(is_trained(name, config) for name in OF_SOURCE):
        LOGGER.warning(
            "the embeddings are not trained, so that those of new pieces and tags stay as they begin. %s",
            "Add lora.also=[embeddings]" if config.lora.rank else "Leave them out of init.freeze",
        )
    trained, now = (model.source_lang, model.target_lang), (config.data.source_lang, config.data.target_lang)
    known = [{*languages_of(side), *config.init.extend_languages} for side in trained]
    is_new = any(not known_side.issuperset(languages_of(side)) for known_side, side in zip(known, now, strict=True))
    if config.data.trained.translates and is_new:
        LOGGER.warning(
            "init.from=%s: was trained from %s to %s, and data=%s is from %s to %s",
            *(config.init.from_, *map(shown_languages, trained), config.data.name, *now),
        )


def _shown(value: object) -> object:
    return "null" if value is None else getattr(value, "name", value)


def initial_weights(config: TrainConfig, start: Initial, tokenizers: Tokenizers) -> dict[str, Tensor]:
    """Weights of `start` for a new run of `config`; a classifier or tagger lacks those of its output layer.

    `config` has the sizes of the model, and `tokenizers` are those of the run.
    """
    model = start.model
    for side, old, new in _layers(config, model):
        if old != new:
            chosen = ", ".join(map(str, copied_layers(old, new)))
            LOGGER.info("%s: %d layers, which are those of number %s of %d", side, new, chosen, old)
    weights = _with_rows(
        _taken(config, model), model.tokenizers, tokenizers, config.init.like and _like(model, config.init.like)
    )
    is_head_pooled_so = model.config.name == config.model.name and _is_pooled_alike(model.config, config.model)
    if is_head_pooled_so:
        weights |= {name: x for name, x in model.weights.items() if name.startswith("pooling.")}
    if is_head_pooled_so and model.tokenizers.labels and model.tokenizers.labels == tokenizers.labels:
        weights |= {name: x for name, x in model.weights.items() if name.startswith("to_classes.")}
    return weights


def _pooling_names(config: ModelConfig) -> list[str]:
    """The names of the weights that a classifier's pooling has."""
    with torch.device("meta"):
        pooling: nn.Module = POOLINGS[config.pooling].build(with_pooling_options(config))
    return [f"pooling.{name}" for name in pooling.state_dict()]


def _is_pooled_alike(one: ModelConfig, other: ModelConfig) -> bool:
    """Whether the output layer of the one fits the other: the same pooling, or any two that have no weights."""
    first, second = with_pooling_options(one), with_pooling_options(other)
    are_fixed = all(POOLINGS[config.pooling].is_fixed for config in (one, other))
    return are_fixed or (first.pooling, first.pooling_options) == (second.pooling, second.pooling_options)


def _taken(config: TrainConfig, model: ModelFile) -> dict[str, Tensor]:
    """The weights of `model` that a run begins with, in the layers that it has."""
    task, is_same_kind = config.data.trained, model.config.name == config.model.name
    takes_all = not task.is_encoder_alone or (is_same_kind and not task.has_labels)
    parts = (*ENCODER, *(OF_PAIRS if config.model.n_segments == 2 else ()))
    if model.config.convolution is not None and model.config.convolution == config.model.convolution:
        parts += CONVOLUTION
    given = model.weights if set(task.stacks) & set(model.task.stacks) else _as_encoder(model.weights)
    weights = {name: x for name, x in given.items() if takes_all or name.startswith(parts)}
    for side, old, new in _layers(config, model):
        if old != new:
            weights = _with_layers(weights, side, copied_layers(old, new))
    return weights


def _options(own: ModelConfig, before: ModelConfig) -> dict[str, Any]:
    """The options of a model that begins as one with the config `before`: those of training are its own."""
    if own.name != before.name:
        return own.options
    of_training = {name for name, info in option_infos(MODELS, own.name).items() if info.part == "training"}
    names = (before.options.keys() - of_training) | (own.options.keys() & of_training)
    return {name: (own if name in of_training else before).options[name] for name in sorted(names)}


def _as_encoder(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a language model by their names in an encoder: its layers have no cross-attention, either."""
    return {re.sub("^embedding", "source_embedding", re.sub("^decoder", "encoder", n)): x for n, x in weights.items()}


def _layers(config: TrainConfig, model: ModelFile) -> list[tuple[str, int, int]]:
    """Each stack, with its layers in `model` and in the run."""
    return [
        (side, _n_layers(model, side), getattr(config.model, f"n_{side}_layers")) for side in config.data.trained.stacks
    ]


def _n_layers(model: ModelFile, side: str) -> int:
    """The layers of the stack of `model` that becomes this one."""
    return int(getattr(model.config, f"n_{side if side in model.task.stacks else 'decoder'}_layers"))


def _with_layers(weights: Mapping[str, Tensor], side: str, chosen: Sequence[int]) -> dict[str, Tensor]:
    """`weights` with those of the layers `chosen` as layers 0, 1, … of a side."""
    found: dict[str, Tensor] = {}
    for name, weight in weights.items():
        layer = LAYER.match(name)
        if layer is None or layer[1] != side:
            found[name] = weight
            continue
        for new, old in enumerate(chosen):
            if old == int(layer[2]):
                found[f"{side}.layers.{new}.{name[layer.end() :]}"] = weight
    return found


def _with_rows(weights: dict[str, Tensor], before: Tokenizers, now: Tokenizers, like: str | None) -> dict[str, Tensor]:
    """`weights` with a row for each entry of `now`: its own, or the mean of the rows of its parts in `before`."""
    parts = parts_of_new(before.source, now.source, like)
    of_target = parts_of_new(before.target, now.target, like) if not now.labels else []
    if have_one_vocabulary(before):
        parts = of_target = [a or b for a, b in zip(parts, of_target or parts, strict=True)]
    found = dict(weights)
    for names, rows, old_ids, new_ids in (
        (OF_SOURCE, parts, before.source, now.source),
        (OF_TARGET, of_target, before.target, now.target),
    ):
        given = [name for name in names if name in weights]
        kept = kept_ids(old_ids, new_ids) if given else []
        for name in given:
            old = weights[name]
            left = old if len(kept) == len(old_ids) else old[torch.tensor(kept)]
            new = [old[row or [before.target.unk_id]].double().mean(dim=0) for row in rows]
            found[name] = torch.cat([left, torch.stack(new).to(old.dtype)]) if new else left
    if parts or of_target:
        LOGGER.info("%s new pieces begin as the mean of their parts", f"{max(len(parts), len(of_target)):,}")
    return found


def copied_layers(n_old: int, n_new: int) -> list[int]:
    """The old layer, of `n_old`, that each of `n_new` layers begins as.

    More: each is repeated, as evenly as possible (0 0 1 1 2 2). Fewer: evenly spaced, the first and the last among them
    (0 2 5), as Shleifer and Rush 2020 begin their students.
    """
    if n_new >= n_old or n_new == 1:
        return [i * n_old // n_new for i in range(n_new)]
    return [round(i * (n_old - 1) / (n_new - 1)) for i in range(n_new)]
