"""`tfm attention`: attention weights of a sentence and its translation, as a page, heat maps or JSON.

With --positions, position encodings instead.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from transformer_cli.addons.attention_maps.explanation import LIKELIEST, explain_for_page, explain_given
from transformer_cli.addons.attention_maps.keys import AttentionConfig, AttentionKind
from transformer_cli.addons.attention_maps.maps import (
    AttentionMaps,
    compute_attention_maps,
    merge_subwords,
    shorten,
    strongest_links,
    to_json,
)
from transformer_cli.addons.attention_maps.run_positions import draw_positions
from transformer_cli.config.model import Autoregression, Positions
from transformer_cli.data.lines import read_lines, shown
from transformer_cli.data.tags import split_tags, with_tags
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.directions import asked_tags
from transformer_cli.decoding.explain import Record
from transformer_cli.decoding.opening import with_own_length_penalty
from transformer_cli.decoding.plan import check_given_tags
from transformer_cli.decoding.results import Searched, TranslateOptions
from transformer_cli.decoding.search import SEARCHES
from transformer_cli.decoding.segmentation import split_line
from transformer_cli.decoding.torch_engine import torch_translator
from transformer_cli.decoding.training_text import training_text
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import ConfigError, DataError, quoted
from transformer_cli.extras import imported
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import ModelFile, open_one_model
from transformer_cli.models.runs import run_of
from transformer_cli.standard_streams import require_stdout
from transformer_cli.text_io import check_output, open_output

PICTURES = (".png", ".svg", ".pdf")
_FORMATS = (".html", *PICTURES, ".json")
_MAX_TOKENS = 1000  # tokens of a side: the weights of more would not fit in memory


@dataclass(frozen=True)
class Job:
    """A sentence, and the file that its attention maps are written to."""

    where: str  # location for error messages
    sentence: str
    translation: str | None  # unset: the model's own
    output: Path


@dataclass(frozen=True)
class EncodedPair:
    """Token ids of a sentence and its translation, without BOS and EOS, and notes for the picture."""

    source: list[int]
    target: list[int]
    finished: bool  # the translation ends with EOS
    notes: list[str]
    explanation: Record | None = None  # the steps of the output, for a page


def run(config: AttentionConfig) -> None:
    """Write the output file, or one for each line of `config.input`, and print their names. Raises TfmError."""
    require_stdout("the names of the pictures")
    form = output_format(config)
    if config.positions is not None:
        draw_positions(config, form)
        return
    work = list_jobs(config)
    for job in work:
        check_output(job.output, "--output", {"--input": config.input}, overwrite=config.overwrite)
    if form in PICTURES:
        imported("matplotlib", needs=f"--output {shown(config.output_file)}")
    if isinstance(config.checkpoint, list):
        raise ConfigError("--checkpoint: names several, and each has its own attention weights. Name one")
    device, path, file = open_one_model(config, "transformer")
    check_layer_and_head(file, config)
    tags, known = asked_tags(file, config.tag, config.source_lang, config.target_lang), file.tokenizers.source.tags
    check_given_tags(tags, known)
    work = [replace(job, sentence=with_tags(job.sentence, " ".join(tags), known)) for job in work]
    model, name = file.build(device), model_name(file, path)
    text = training_text([file])
    shows_steps = form == ".html" and SEARCHES[config.decode.search].has_trace
    options = TranslateOptions(n_likeliest=LIKELIEST if shows_steps else 0)
    decode = with_own_length_penalty(config.decode, [file.length_penalty])
    translator = torch_translator(
        model, file.tokenizers, decode, device=device, seed=config.seed, options=options, text=text
    )
    for job, ids in [(job, encode(job, file, translator)) for job in work]:
        if job.translation is not None and form == ".html":
            ids = replace(ids, explanation=explain_given(translator, ids.source, ids.target, file.label_smoothing))
        maps = compute_attention_maps(
            model, file.tokenizers, ids.source, ids.target, name=name, notes=ids.notes, finished=ids.finished
        )
        links = [] if config.link is None else format_links(maps, *split_link(config.link), job.where)
        with open_output(str(job.output), replace=config.overwrite) as sink:
            sink.writelines(_render_file(maps, config, form, job.where, ids.explanation))
        print(f"{shown(job.output)}: {maps.source_text} → {maps.translation}", *links, sep="\n", flush=True)


# ---- Command line and input


def output_format(config: AttentionConfig) -> str:
    """The ending of --output. Raises ConfigError for an unknown one, and for options of another format."""
    form = Path(config.output_file).suffix.lower()
    if form not in _FORMATS:
        raise ConfigError(
            f"--output {shown(config.output_file)}: no format has this ending. Choose one of {', '.join(_FORMATS)}"
        )
    if form not in PICTURES:
        for key in ("kind", "layer", "head", "mean"):
            if getattr(config, key):
                others = f"{', '.join(PICTURES[:-1])} or {PICTURES[-1]}"
                raise ConfigError(f"--{key}: {form} has all layers and heads. Leave it out, or choose {others}")
    if config.link is not None:
        split_link(config.link)
    return form


def split_link(link: str) -> tuple[str, str]:
    words = link.split()
    if len(words) != 2:
        raise ConfigError(f"--link {quoted(link)}: {len(words)} words, not two. Give two, as in --link 'it chair'")
    return words[0], words[1]


def list_jobs(config: AttentionConfig) -> list[Job]:
    """One job for the sentence, or one for each line of the file. Raises ConfigError, or DataError with the line."""
    if config.input is not None:
        return list_jobs_of_file(config.input, config)
    if config.sentence is None:
        raise ConfigError('tfm attention: no sentence given. Write one, as in `tfm attention "It was late."`')
    for what, text in (("the sentence", config.sentence), ("--translation", config.translation)):
        if text is not None and not text.strip():
            raise ConfigError(f"tfm attention: {what} is empty. Write one, or leave it out")
        if text is not None and "\n" in text.strip():
            raise ConfigError(
                f"tfm attention: {what} has {text.strip().count(chr(10)) + 1} lines, not one."
                " Give one, or a file with --input"
            )
    return [Job("the sentence", config.sentence, config.translation, Path(config.output_file))]


def list_jobs_of_file(name: str, config: AttentionConfig) -> list[Job]:
    """One for each line that is not blank; its number, with as many digits as the last one's, goes into the output."""
    for flag, text in (("the sentence", config.sentence), ("--translation", config.translation)):
        if text is not None:
            raise ConfigError(
                f"--input {shown(name)}: and {flag} is given, too. Leave one of them out; a line may hold a sentence,"
                " a tab and its translation"
            )
    lines, output, found = read_lines(Path(name)).texts, Path(config.output_file), []
    for number, line in enumerate(lines, start=1):
        sentence, tab, translation = line.partition("\t")
        where = f"{shown(name)}:{number}"
        if "\t" in translation or (tab and not (sentence.strip() and translation.strip())):
            raise DataError(f"{where}: not a sentence, a tab and its translation. Write one, or remove the tab")
        if sentence.strip():
            numbered = output.with_stem(f"{output.stem}-{number:0{len(str(len(lines)))}}")
            found.append(Job(where, sentence, translation or None, numbered))
    if not found:
        raise DataError(f"{shown(name)}: has blank lines only. Write a sentence on a line")
    return found


# ---- Encoding


def check_layer_and_head(file: ModelFile, config: AttentionConfig) -> None:
    if config.kind is AttentionKind.decoder and file.config.decoder is Autoregression.ssru:
        raise ConfigError(
            "--kind decoder: the decoder of this model is recurrent (model.decoder=ssru): it attends to the source"
            " alone. Choose encoder or cross"
        )
    in_encoder = config.kind is AttentionKind.encoder
    stack = "encoder" if in_encoder else "decoder"
    n_layers = file.config.n_encoder_layers if in_encoder else file.config.n_decoder_layers
    for key, value, n, of in (
        ("layer", config.layer, n_layers, f"the {stack}"),
        ("head", config.head, file.config.n_heads, "each layer"),
    ):
        if value is not None and value > n:
            raise ConfigError(f"--{key} {value}: {of} has {n} {key}{'s' * (n > 1)}. Choose one from 1 to {n}")


def model_name(file: ModelFile, path: Path) -> str:
    run = run_of(path.resolve())
    return f"{shown((run or path).name)}, {file.source_lang} → {file.target_lang}"


def encode(job: Job, file: ModelFile, translator: Translator) -> EncodedPair:
    """The tokens of a job. Raises DataError if a side has too many or none."""
    ids = encode_segment(job, file.tokenizers, translator)
    for side, n in (("source", len(ids.source)), ("translation", len(ids.target))):
        limit = _MAX_TOKENS
        if file.config.positions is Positions.learned:
            limit = min(_MAX_TOKENS, file.config.max_positions - 1)
        if n > limit:
            raise DataError(
                f"{job.where}: its {side} has {n:,} tokens, more than the {limit:,} that can be shown. Shorten it"
            )
    return ids


def encode_segment(job: Job, tokenizers: Tokenizers, translator: Translator) -> EncodedPair:
    """The whole pair if a translation is given; otherwise the first segment that `tfm translate` would translate."""
    (source,) = tokenizers.source.encode([job.sentence])
    if not source:
        raise DataError(f"{job.where}: nothing that the model could read. Write words")
    if job.translation is not None:
        (target,) = tokenizers.encode_targets([job.sentence], [job.translation])
        if not target:
            raise DataError(f"{job.where}: nothing of its translation that the model could read. Write words")
        return EncodedPair(source, target, finished=True, notes=["translation given"])
    max_length, notes = translator.planner.max_source_length, []
    if len(source) > max_length:
        whole, language = len(source), translator.text.source_lang
        packs = translator.planner.packs_sentences
        parts = split_line(job.sentence, tokenizers.source, max_tokens=max_length, language=language, packs=packs)
        source = parts[0].ids
        notes = [
            f"the first {len(source)} of {whole} tokens, as decode.max_source_length={max_length} splits such sentences"
        ]
        LOGGER.warning("%s: %s", job.where, notes[0])
    found = translator.best(source, tokenizers.first_ids(split_tags(job.sentence, tokenizers.source.tags)[0]))
    notes += [] if found.finished else ["stopped at its longest length"]
    explanation = explain_for_page(Searched(source, [found]), tokenizers) if found.trace is not None else None
    return EncodedPair(source, found.ids, found.finished, notes, explanation)


# ---- Output


def _render_file(
    maps: AttentionMaps, config: AttentionConfig, form: str, where: str, explanation: Record | None
) -> Iterator[bytes]:
    """The content of the output file, in chunks."""
    maps = merge_subwords(maps) if config.words else maps
    if form == ".json":
        yield from (chunk.encode() for chunk in to_json(maps))
        return
    short = shorten(maps)
    if short is not maps:
        LOGGER.warning("%s: %s", where, short.notes[-1])
    if form == ".html":
        from transformer_cli.addons.attention_maps.page import render

        yield render(short, explanation).encode()
        return
    from transformer_cli.addons.attention_maps.heatmaps import render_heat_map  # needs matplotlib

    kind = config.kind or AttentionKind.cross
    yield render_heat_map(short, form[1:], kind=kind, layer=config.layer, head=config.head, mean=config.mean)


def format_links(maps: AttentionMaps, word: str, other: str, where: str) -> list[str]:
    """A line for each kind of attention in which `word` can attend to `other`. Raises ConfigError if there is none."""
    links = strongest_links(maps, word, other)
    if not links:
        sides = f"{quoted(maps.source_text)} → {quoted(maps.translation)}"
        raise ConfigError(
            f"--link '{word} {other}': no attention of {where} leads from the one to the other ({sides})."
            " Choose two words of the source, two of the translation, or one of the translation and one of the source"
        )
    return [f"{word} → {other}: {link}" for link in links]
