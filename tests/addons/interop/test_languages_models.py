"""NLLB-200 and M2M-100 with all their languages: read, asked for a direction, trained on, and written back."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.addons.interop.toy_huggingface import change_json, write_json
from tests.addons.interop.toy_languages import NLLB, m2m100, nllb
from tests.support.contract import run
from tests.toy.translator import sentences
from transformer_cli.addons.interop import m2m100_writer, verify
from transformer_cli.addons.interop.foreign import ReadOptions
from transformer_cli.addons.interop.importing import import_model, read
from transformer_cli.addons.interop.m2m100 import LANGUAGES, NLLB_LANGUAGES
from transformer_cli.addons.interop.verify import in_all_languages
from transformer_cli.config.compose import load_config
from transformer_cli.data.corpus import load_text
from transformer_cli.errors import CheckpointError, ConfigError
from transformer_cli.evaluation.model_test_sets import Direction, named_test_set
from transformer_cli.models.file import read_model, write_model

LINES = sentences(4, seed=3)


def written(folder: Path, output: Path, options: ReadOptions | None = None) -> Any:
    """The model file of a folder, after the comparison with the original has held."""
    outcome = import_model(read(folder, "hf", options or ReadOptions()), output, origin=folder, n_made_up=8)
    assert outcome.comparison is not None
    assert outcome.comparison.holds
    return read_model(output)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of NLLB, and the model file that was made of it."""
    folder = tmp_path_factory.mktemp("models")
    nllb(folder / "nllb")
    written(folder / "nllb", folder / "n.safetensors")
    return folder


@pytest.fixture(autouse=True)
def few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports are compared on few lines."""
    monkeypatch.setattr(verify, "N_LINES", 9)


# ---- Reading


@pytest.mark.parametrize(
    "kind",
    [
        {"fast": True},
        pytest.param({"legacy": True}, marks=pytest.mark.slow),
        pytest.param({"half": True, "shards": True}, marks=pytest.mark.slow),
    ],
)
def test_every_layout_of_nllb_says_what_transformers_says(kind: dict[str, Any], tmp_path: Path) -> None:
    nllb(tmp_path / "nllb", **kind)
    model = written(tmp_path / "nllb", tmp_path / "m.safetensors")
    assert list(model.tokenizers.source.languages) == list(kind.get("languages", NLLB))
    assert model.source_lang == model.target_lang == "+".join(kind.get("languages", NLLB))


def test_without_the_ids_of_tokens_the_languages_are_in_the_order_of_nllb(tmp_path: Path) -> None:
    nllb(tmp_path / "nllb", languages=NLLB_LANGUAGES.split())
    change_json(tmp_path / "nllb" / "tokenizer_config.json", added_tokens_decoder=None)
    model = written(tmp_path / "nllb", tmp_path / "m.safetensors")
    assert list(model.tokenizers.source.languages) == NLLB_LANGUAGES.split()
    assert len(set(model.tokenizers.source.languages.values())) == 202


def test_all_languages_of_m2m100_are_read(tmp_path: Path) -> None:
    m2m100(tmp_path / "m2m")
    model = written(tmp_path / "m2m", tmp_path / "m.safetensors")
    assert list(model.tokenizers.source.languages) == LANGUAGES["m2m100"].split()
    (ids,) = model.tokenizers.source.encode(["<de> <2fr> " + LINES[0]])
    assert model.tokenizers.source.pieces(ids)[0] == "__de__"


def test_a_direction_that_is_named_makes_a_model_of_that(place: Path, tmp_path: Path) -> None:
    model = written(place / "nllb", tmp_path / "m.safetensors", ReadOptions(source_lang="zh", target_lang="fra"))
    assert (model.source_lang, model.target_lang) == ("zho_Hans", "fra_Latn")
    assert not model.tokenizers.source.tags
    with pytest.raises(
        CheckpointError, match=r"--source-lang ks: the model has kas_Arab and kas_Deva. Name one of them"
    ):
        read(place / "nllb", "hf", ReadOptions(source_lang="ks", target_lang="fra"))


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("shard", r"model-\d+-of-\d+.safetensors: no such file, and the model needs it"),
        ("pieces", "has another id in it: of two revisions"),
        ("rows", "added tokens, but the model has .* rows: of another revision"),
        ("gap", "no added token has the id .*: of two revisions"),
        ("two", "two files give the id .*: of two revisions"),
        ("overlap", "among the added tokens: of two revisions"),
        ("twice", "eng_Latn.* is the added token of two ids: of two revisions"),
        ("legacy", "legacy_behaviour='maybe': neither true nor false"),
        ("no pieces", r"sentencepiece.bpe.model: no such file"),
        ("no languages", "none of its added tokens names a language"),
    ],
)
def test_files_that_do_not_fit_together_are_refused_in_one_line(fault: str, says: str, tmp_path: Path) -> None:
    folder = tmp_path / "nllb"
    nllb(folder, fast=fault == "pieces", shards=fault == "shard")
    config = folder / "tokenizer_config.json"
    tokens = json.loads(config.read_bytes()).get("added_tokens_decoder")
    if fault == "shard":
        next(iter(sorted(folder.glob("model-*")))).unlink()
    elif fault == "pieces":
        change_json(folder / "tokenizer.json", model={"vocab": {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "x": 4}})
    elif fault == "rows":
        tokens |= {str(int(max(tokens, key=int)) + n): {"content": f"x{n}"} for n in range(1, 5)}
    elif fault == "gap":
        del tokens[max(tokens, key=int)[:-1] + "2"]
    elif fault == "two":
        write_json(folder / "added_tokens.json", {"<other>": int(max(tokens, key=int))})
    elif fault == "overlap":
        tokens["7"] = {"content": "eng_Latn"}
    elif fault == "twice":
        (of_french,) = (number for number, token in tokens.items() if token["content"] == "fra_Latn")
        tokens[of_french]["content"] = "eng_Latn"
    elif fault == "no pieces":
        (folder / "sentencepiece.bpe.model").unlink()
    elif fault == "no languages":
        tokens = {number: {"content": token["content"].lower()} for number, token in tokens.items()}
    if tokens is not None:
        change_json(config, added_tokens_decoder=tokens)
    if fault == "legacy":
        change_json(config, legacy_behaviour="maybe")
    with pytest.raises(CheckpointError, match=says) as refused:
        read(folder, "hf")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "listed",
    [
        {"additional_special_tokens": []},
        {"additional_special_tokens": None},
        {"additional_special_tokens": None, "extra_special_tokens": {}},
        pytest.param({"tokenizer_class": None, "additional_special_tokens": None}, id="no tokenizer_config"),
    ],
)
def test_languages_that_are_no_special_tokens_are_none_of_the_text(
    listed: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """M2M100Tokenizer lists none by itself, and then writes `__fr__` before what it decodes."""
    m2m100(tmp_path / "m2m")
    change_json(tmp_path / "m2m/tokenizer_config.json", **listed)
    caplog.set_level("INFO", logger="tfm")
    imported = read(tmp_path / "m2m", "hf")
    outcome = import_model(imported, tmp_path / "m.safetensors", origin=tmp_path / "m2m", n_made_up=2)
    assert outcome.comparison is not None
    assert outcome.comparison.holds
    assert len(imported.tokenizers.source.languages) == 100
    assert "does not list its languages as special tokens" in caplog.text


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("special_tokens_map.json", b'{"a'),
        ("added_tokens.json", b""),
        ("tokenizer_config.json", b'{"tokenizer_class": "M2M100Tokenizer", "src_lang": "xx"}'),
        ("tokenizer_config.json", b'{"tokenizer_class": "M2M100Tokenizer", "unk_token": "<nix>"}'),
        ("generation_config.json", b'{"cache_implementation": "none of these"}'),
    ],
)
def test_what_transformers_cannot_read_is_one_line(file: str, content: bytes, tmp_path: Path) -> None:
    m2m100(tmp_path / "m2m")
    (tmp_path / "m2m" / file).write_bytes(content)
    with pytest.raises(CheckpointError) as refused:
        import_model(read(tmp_path / "m2m", "hf"), tmp_path / "m.safetensors", origin=tmp_path / "m2m", n_made_up=2)
    assert str(tmp_path / "m2m") in str(refused.value)
    assert " again" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "m.safetensors").exists()


def saved_again(folder: Path, output: Path) -> Path:
    """A folder as transformers 5 saves it: the tokenizer is tokenizer.json, without a SentencePiece model."""
    transformers = pytest.importorskip("transformers")
    shutil.copytree(folder, output, ignore=shutil.ignore_patterns("*token*", "*.model"))
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(output)
    assert not list(output.glob("*.model"))
    return output


@pytest.mark.parametrize("legacy", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_tokenizer_json_alone_cuts_text_as_the_sentencepiece_model(legacy: bool, tmp_path: Path) -> None:
    nllb(tmp_path / "nllb", legacy=legacy)
    with_model = read(tmp_path / "nllb", "hf").tokenizers.source
    alone = written(saved_again(tmp_path / "nllb", tmp_path / "5"), tmp_path / "m.safetensors").tokenizers.source
    assert alone.language_last is legacy
    odd = ["½ ﬁne  ＡＢ\u00a0x", "the\u2581cat", "e\u0301 日本 🙂", "woman\twomanwoman", "ĳ … ǆ"]
    lines = [f"<eng_Latn> <2fra_Latn> {line}" for line in [*sentences(40, seed=8), *odd]]
    assert alone.encode(lines) == with_model.encode(lines)
    assert alone.pieces(range(len(alone))) == with_model.pieces(range(len(alone)))


def parted(merges: list[list[str]]) -> None:
    """Move one of the two ways to put a piece together to the end."""
    made = ["".join(pair) for pair in merges]
    merges.append(merges.pop(next(i for i, piece in enumerate(made) if made.count(piece) > 1)))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda model: model["merges"].pop(), "its merges are not those of a SentencePiece model"),
        (lambda model: parted(model["merges"]), "its merges are not those of a SentencePiece model"),
        (lambda model: model.update(merges=None), "its merges are not those of a SentencePiece model"),
        (lambda model: model.update(vocab=[["<unk>", 0.0]]), "has no pieces of byte-pair encoding"),
        (lambda model: model.update(byte_fallback=True), "has byte_fallback=True"),
        (lambda model: model["vocab"].update({"<s>": 1, "<pad>": 0}), "its pieces do not begin with <s>, <pad>"),
        (lambda model: model["vocab"].pop("<s>"), "has the id 80, but the model has 80 rows"),
        (lambda model: model["vocab"].update({"<s>": "x"}), "the id of '<s>' is 'x', no whole number"),
    ],
)
def test_a_tokenizer_json_that_cannot_stand_for_the_model_is_refused(
    change: Callable[[dict[str, Any]], Any], says: str, tmp_path: Path
) -> None:
    nllb(tmp_path / "nllb", fast=True)
    (tmp_path / "nllb/sentencepiece.bpe.model").unlink()
    file = tmp_path / "nllb/tokenizer.json"
    model = json.loads(file.read_bytes())["model"]
    read(tmp_path / "nllb", "hf")
    change(model)
    change_json(file, model=model)
    with pytest.raises(CheckpointError, match=says) as refused:
        read(tmp_path / "nllb", "hf")
    assert "\n" not in str(refused.value)
    if "the id" not in says:
        assert "sentencepiece.bpe.model cannot be made from it. Fetch that file" in str(refused.value)


def test_the_class_of_the_tokenizer_says_how_a_folder_is_read(tmp_path: Path) -> None:
    m2m100(tmp_path / "m2m")
    (tmp_path / "m2m/vocab.json").unlink()
    with pytest.raises(CheckpointError, match=r"vocab\.json: no such file, and the model needs it"):
        read(tmp_path / "m2m", "hf")
    nllb(tmp_path / "nllb")
    write_json(tmp_path / "nllb/vocab.json", {"<s>": 0})
    assert list(read(tmp_path / "nllb", "hf").tokenizers.source.languages) == NLLB


def test_t5_is_refused_by_its_name(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "nllb", tmp_path / "t5")
    change_json(tmp_path / "t5" / "config.json", model_type="t5")
    with pytest.raises(CheckpointError, match="model_type=t5: not one that tfm computes"):
        read(tmp_path / "t5", "hf")


# ---- Directions


def translated(place: Path, *options: str) -> Any:
    (place / "text").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    command = ["translate", "--checkpoint", "n.safetensors", "--input", "text", "--device", "cpu"]
    return run([*command, "decode.max_extra_length=5", *options], place)


def test_codes_of_any_standard_ask_for_a_direction(place: Path) -> None:
    ways = [("eng_Latn", "fra_Latn"), ("en", "fr"), ("eng", "fre"), ("en-GB", "FR")]
    found = {translated(place, "--from", source, "--to", target).out for source, target in ways}
    assert len(found) == 1
    assert translated(place, "--tag", "<eng_Latn> <2fra_Latn>").out in found
    assert translated(place, "--from", "eng_Latn", "--to", "zh").out not in found


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "--to: no language to translate into, and the model has 7 of them. Give --to LANGUAGE, or begin the line"),
        (("--to", "fr"), "--from: no language to translate from"),
        (("--from", "en", "--to", "ks"), "--to ks: the model has kas_Arab and kas_Deva. Name one of them"),
        (("--from", "en", "--to", "fra_Lath"), "--to fra_Lath: not a language of the model; did you mean `fra_Latn`?"),
        (("--from", "English", "--to", "fr"), "--from English: not a language of the model; did you mean `eng_Latn`?"),
        (("--from", "en", "--to", "de_Cyrl"), "--to de_Cyrl: not a language of the model; did you mean `deu_Latn`?"),
        (("--from", "en", "--to", "sr_Latn"), "--to sr_Latn: not a language of the model (languages: deu_Latn, eng"),
        (("--from", "tlh", "--to", "fr"), "--from tlh: not a language of the model (languages: deu_Latn, eng_Latn"),
    ],
)
def test_a_direction_that_is_not_there_is_one_line(options: tuple[str, ...], says: str, place: Path) -> None:
    done = translated(place, "--engine", "torch", *options)
    assert done.code == 2
    assert says in done.err.decode()
    assert len(done.err.decode().strip().split("\n")) == 1


def test_the_usual_script_is_meant_where_a_code_leaves_it_open(place: Path) -> None:
    assert (
        translated(place, "--from", "en", "--to", "zh").out == translated(place, "--from", "en", "--to", "zho_Hans").out
    )
    assert (
        translated(place, "--from", "en", "--to", "zh-TW").out
        == translated(place, "--from", "en", "--to", "zho_Hant").out
    )


def test_each_line_can_name_its_own_direction(place: Path) -> None:
    lines = [f"<eng_Latn> <2fra_Latn> {LINES[0]}", f"<deu_Latn> <2zho_Hans> {LINES[0]}"]
    (place / "tagged").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = ["translate", "--checkpoint", "n.safetensors", "--input", "tagged", "decode.max_extra_length=5"]
    both = run(command, place).out.decode().split("\n")
    expected = [
        translated(place, "--from", source, "--to", target).out.decode().split("\n")[0]
        for source, target in (("en", "fr"), ("de", "zh"))
    ]
    assert both[:2] == expected


def test_the_score_of_a_translation_has_the_token_of_its_language(place: Path) -> None:
    (place / "pairs").write_text(f"{LINES[0]}\t{LINES[1]}\n", encoding="utf-8")
    done = run(
        ["score", "--checkpoint", "n.safetensors", "--json", "--from", "de", "--to", "zh"],
        place,
        stdin=(place / "pairs").read_bytes(),
    )
    assert done.code == 0, done.err
    assert json.loads(done.out)["tokens"][0][0] == "zho_Hans"


def test_attention_is_that_of_the_translation_into_the_language_that_is_asked_for(place: Path) -> None:
    search = ["--checkpoint", "n.safetensors", "--beam", "1", "decode.max_extra_length=5"]
    found = {}
    for code in ("fr", "zh-TW"):
        done = run(["translate", *search, "--from", "de", "--to", code], place, stdin=f"{LINES[0]}\n".encode())
        assert done.code == 0, done.err
        expected = done.out.decode().strip()
        drawn = run(["attention", LINES[0], *search, "--from", "de", "--to", code, "--output", f"{code}.json"], place)
        assert drawn.code == 0, drawn.err
        maps = json.loads((place / f"{code}.json").read_text(encoding="utf-8"))
        assert maps["translation"] == expected
        found[maps["written"][0]] = expected
    assert list(found) == ["fra_Latn", "zho_Hant"]
    assert len(set(found.values())) == 2
    done = run(["attention", LINES[0], *search, "--output", "none.json"], place)
    assert (done.code, (place / "none.json").exists()) == (2, False)
    assert b"--to: no language to translate into" in done.err


def test_scores_of_given_translations_are_those_of_transformers_with_an_empty_side_too(place: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pairs = [(LINES[0], LINES[1]), (LINES[0], ""), ("", LINES[1])]
    command = ["score", "--checkpoint", "n.safetensors", "--from", "de", "--to", "fr"]
    done = run(command, place, stdin="".join(f"{source}\t{target}\n" for source, target in pairs).encode())
    assert done.code == 0, done.err
    tokenizer = transformers.NllbTokenizer.from_pretrained(place / "nllb", src_lang="deu_Latn", tgt_lang="fra_Latn")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(place / "nllb").eval()
    expected = []
    for source, target in pairs:
        batch = tokenizer(source, text_target=target, return_tensors="pt")
        with torch.no_grad():  # its loss is a mean over the labels: language, text and end
            expected.append(-model(**batch).loss.item() * batch.labels.shape[1])
    assert [float(line) for line in done.out.splitlines()] == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize(
    ("asked", "tags", "name"),
    [
        (Direction(), "<eng_Latn> <2fra_Latn>", "demo_en_fr.test"),
        (Direction(target="fr"), "<eng_Latn> <2fra_Latn>", "demo_en_fr.test"),
        (Direction(source="fra", target="en"), "<fra_Latn> <2eng_Latn>", "demo_en_fr.fr-en.test"),
    ],
)
def test_a_corpus_with_codes_of_iso_is_scored_in_the_directions_that_it_has(
    asked: Direction, tags: str, name: str, place: Path
) -> None:
    model, data = read_model(place / "n.safetensors"), load_config("evaluate", ["data=demo_en_fr"]).data
    text = load_text(data, "test")
    assert text is not None
    sources, references = (text.targets, text.sources) if asked.source else (text.sources, text.targets)
    test = named_test_set(data, [model], asked=asked)
    assert (test.name, test.references) == (name, [references])
    assert test.sources == [f"{tags} {line}" for line in sources]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (Direction(target="de"), "--to de: data=demo_en_fr is en → fr. Leave one of them out"),
        (Direction(source="de", target="fr"), "--from de: data=demo_en_fr is en → fr. Leave one of them out"),
    ],
)
def test_a_direction_that_a_corpus_does_not_have_is_refused(asked: Direction, says: str, place: Path) -> None:
    model, data = read_model(place / "n.safetensors"), load_config("evaluate", ["data=demo_en_fr"]).data
    with pytest.raises(ConfigError, match=re.escape(says)):
        named_test_set(data, [model], asked=asked)


def test_a_direction_is_refused_for_a_corpus_whose_lines_say_theirs(place: Path) -> None:
    model = read_model(place / "n.safetensors")
    tagged = ["data=demo_en_fr", "data.tags=['<eng_Latn> <2fra_Latn>']", "data.test_tags=['<eng_Latn> <2fra_Latn>']"]
    data = load_config("evaluate", tagged).data
    assert named_test_set(data, [model]).sources[0].startswith("<eng_Latn> <2fra_Latn> ")
    with pytest.raises(ConfigError, match="--to fr: the lines of data=demo_en_fr begin with tags"):
        named_test_set(data, [model], asked=Direction(target="fr"))


# ---- Written back


@pytest.mark.parametrize("kind", ["nllb", *(pytest.param(one, marks=pytest.mark.slow) for one in ("legacy", "m2m100"))])
def test_a_folder_that_is_exported_again_has_the_same_weights_and_tokenizer(kind: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "theirs"
    theirs = m2m100(folder) if kind == "m2m100" else nllb(folder, legacy=kind == "legacy")
    model = written(folder, tmp_path / "m.safetensors")
    command = ["export", "huggingface", "--checkpoint", "m.safetensors", "--output", "back"]
    done = run(command, tmp_path)
    assert done.code == 0, done.err
    ours = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "back")
    assert type(ours) is type(theirs)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert all(torch.equal(weight, theirs.state_dict()[name]) for name, weight in ours.state_dict().items())
    there, back = (transformers.AutoTokenizer.from_pretrained(one) for one in (folder, tmp_path / "back"))
    assert type(there) is type(back)
    for code in list(model.tokenizers.source.languages)[:7]:
        there.src_lang = back.src_lang = code
        assert back(LINES).input_ids == there(LINES).input_ids
    again = written(tmp_path / "back", tmp_path / "again.safetensors")
    assert again.tokenizers.source.sha256 == model.tokenizers.source.sha256


@pytest.mark.parametrize("legacy", [pytest.param(False, marks=pytest.mark.slow), True])
def test_ctranslate2_gets_the_language_as_a_target_prefix(legacy: bool, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    nllb(tmp_path / "nllb", legacy=legacy)
    written(tmp_path / "nllb", tmp_path / "n.safetensors")
    done = run(["export", "ctranslate2", "--checkpoint", "n.safetensors", "--output", "ct"], tmp_path)
    assert done.code == 0, done.err
    assert 'target_prefix=[["zho_Hant"]]' in (tmp_path / "ct" / "README.md").read_text(encoding="utf-8")
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    found = []
    for checkpoint in ("n.safetensors", "ct"):
        command = [
            "translate",
            "--checkpoint",
            checkpoint,
            "--input",
            "text",
            "--output-format",
            "jsonl",
            "--from",
            "en",
        ]
        done = run([*command, "--to", "fr", "--beam", "1", "decode.max_extra_length=5"], tmp_path)
        assert done.code == 0, done.err
        found.append([json.loads(line) for line in done.out.splitlines()])
    assert [one["translation"] for one in found[0]] == [one["translation"] for one in found[1]]
    assert [one["score"] for one in found[0]] == pytest.approx([one["score"] for one in found[1]], abs=2e-4)


def test_other_formats_refuse_a_model_of_languages(place: Path) -> None:
    for form, output, says in (
        ("onnx", "on", "every translation begins with a token of its language"),
        ("argos", "on.argosmodel", "Argos"),
        ("marian", "on", "Marian"),
    ):
        done = run(["export", form, "--checkpoint", "n.safetensors", "--output", output], place)
        assert done.code == 2, (form, done.err)
        assert says in done.err.decode()
        assert not (place / output).exists()


def test_what_m2m100_lacks_is_refused(place: Path) -> None:
    model = read_model(place / "n.safetensors")
    model = replace(model, config=replace(model.config, first_position=3))
    with pytest.raises(ConfigError, match=r"model\.first_position=3"):
        m2m100_writer.as_m2m100(model)


def test_lines_of_all_languages_have_each_on_both_sides(place: Path) -> None:
    tokenizer = read_model(place / "n.safetensors").tokenizers.source
    tagged = in_all_languages([*LINES, *LINES, ""], tokenizer)
    assert len(tagged) == 2 * len(LINES)
    pairs = [tokenizer.direction_of(line.split()[:2]) for line in tagged]
    assert all(source != target for source, target in pairs)
    assert {source for source, _ in pairs} == {target for _, target in pairs} == set(NLLB)
    again = in_all_languages(tagged, tokenizer)
    assert again == tagged
    write_model(place / "same.safetensors", read_model(place / "n.safetensors"))
    assert read_model(place / "same.safetensors").tokenizers.source.languages == tokenizer.languages
