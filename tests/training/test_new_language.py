"""One more language for a model in which languages are tokens, and a model of a few of its languages."""

import json
import random
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.addons.serving.served import serving
from tests.conftest import ROOT
from tests.data.test_extend_vocabulary import SYLLABLES, sentences
from tests.data.test_prune_vocabulary import both, packed
from tests.house.test_readme import printed_commands
from tests.support.docs_code import write_files_of
from tests.toy import run as toy_run
from tests.toy.run import MODEL
from transformer_cli.cli import main
from transformer_cli.config.data import TokenizerConfig, TokenizerKind
from transformer_cli.config.model import Positions, Tying
from transformer_cli.config.train import InitConfig
from transformer_cli.data.extend_vocabulary import extended as extended_bytes
from transformer_cli.data.extend_vocabulary import tag_like, with_languages
from transformer_cli.data.packed_tokenizer import PackedTokenizer, Segmenter
from transformer_cli.data.sentencepiece_model import read_pieces
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from transformer_cli.errors import ConfigError
from transformer_cli.models.file import read_model, write_model
from transformer_cli.training.checkpoints import CheckpointStore
from transformer_cli.training.initialisation import Initial, initial_weights

TOKENIZER = Tokenizer(packed(TokenizerKind.bpe).to_bytes())
SIZES = replace(MODEL, tie_embeddings=Tying.three_way, positions=Positions.sinusoidal)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model of the languages xx and yy, and text in xx, yy and zz."""
    monkeypatch.chdir(tmp_path)
    model = toy_run.random_file(SIZES, Tokenizers(TOKENIZER, TOKENIZER), seed=1)
    write_model(tmp_path / "base.safetensors", replace(model, source_lang="xx+yy", target_lang="xx+yy"))
    for name, n in (("train", 60), ("dev", 8)):
        for seed, language in enumerate(("xx", "yy", "zz")):
            lines = sentences(SYLLABLES, n, seed=10 * n + seed)
            (tmp_path / f"{name}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path


def words(*more: str, targets: tuple[str, ...] = ("yy", "zz")) -> list[str]:
    files = {name: f"[{','.join(f'{name}.xx,{name}.{one}' for one in targets)}]" for name in ("train", "dev")}
    tags = json.dumps([f"<xx> <2{one}>" for one in targets])
    return [
        *("train", "init.from=base.safetensors", "data=files", "data.source_lang=xx"),
        *(f"data.target_lang={'+'.join(targets)}", f"data.train={files['train']}", f"data.tags={tags}"),
        *(f"data.dev={files['dev']}", f"data.dev_tags={tags}", f"data.test={files['dev']}", f"data.test_tags={tags}"),
        *("data.clean=[]", "train.max_steps=2", "train.eval_every=2", "train.robustness_lines=0", "device=cpu"),
        *("decode=greedy", "train.tokens_per_update=300", "train.average_last=1", "name=new"),
        *more,
    ]


@pytest.mark.parametrize("in_direction", [False, True])
@pytest.mark.parametrize("like", ["yy", None])
def test_the_token_of_a_new_language_begins_as_that_of_another_or_as_the_mean(
    like: str | None, in_direction: bool
) -> None:
    model = toy_run.random_file(SIZES, Tokenizers(TOKENIZER, TOKENIZER), seed=1)
    extended = with_languages(TOKENIZER, ["zz"])
    assert extended.languages == {**TOKENIZER.languages, "zz": len(TOKENIZER)}
    assert {"<zz>", "<2zz>"} <= set(extended.tags)
    init = InitConfig(from_="x", extend_languages=["zz"], like=like)
    config = replace(toy_run.config(model=model.config), name="x", init=init)
    now = Tokenizers(extended, extended)
    now = now.in_direction("xx", "zz") if in_direction else now
    weights = initial_weights(config, Initial(Path("x"), model, is_resumed=False), now)
    before, after = model.weights["source_embedding.weight"], weights["source_embedding.weight"]
    assert torch.equal(after[:-1], before)
    others = [TOKENIZER.languages[one] for one in ([like] if like else ["xx", "yy"])]
    assert torch.allclose(after[-1], before[others].mean(dim=0), atol=1e-7)


def test_the_tag_of_a_new_language_begins_as_that_of_another() -> None:
    tokenizer = both(TokenizerKind.bpe, False)
    model = replace(toy_run.random_file(SIZES, Tokenizers(tokenizer, tokenizer), "xx-xx", seed=1), target_lang="xx+yy")
    extended = Tokenizer(extended_bytes(tokenizer.model_bytes, tags=["<2zz>"]))
    config = replace(toy_run.config(model=model.config), name="x", init=InitConfig(from_="x", like="yy"))
    weights = initial_weights(config, Initial(Path("x"), model, is_resumed=False), Tokenizers(extended, extended))
    [row] = tokenizer.encode(["<2yy>"])[0]
    assert torch.equal(weights["source_embedding.weight"][-1], model.weights["source_embedding.weight"][row])


def test_a_tag_is_like_one_of_its_own_form() -> None:
    assert tag_like("<2nl>", "de", ["<de>", "<2de>", "<bt>"]) == "<2de>"
    assert tag_like("<nl>", "de", ["<2de>", "<de>"]) == "<de>"
    assert tag_like(">>nl<<", "de", ["<2de>", ">>de<<"]) == ">>de<<"
    assert tag_like("<bt>", "fr", ["<2de>"]) is None


def test_one_direction_needs_no_tags(place: Path) -> None:
    """A corpus of one direction of a model between many names its languages, also a new one."""
    given = [word for word in words(targets=("zz",)) if not re.match(r"data\.\w*tags", word)]
    assert main([*given, "init.extend_languages=[zz]", "init.like=yy", "init.keep_languages=[xx,zz]"]) == 0
    model = read_model(place / "runs/new/model.safetensors")
    assert model.tokenizers.source.packed is not None
    assert list(model.tokenizers.source.packed.prefix) == ["xx"]
    assert len(model.tokenizers.source) < 0.75 * len(TOKENIZER)
    assert main(["translate", "--checkpoint=runs/new", "ka to"]) == 0


def test_a_language_to_begin_like_needs_a_new_one(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words("init.like=yy", targets=("yy",))) == 2
    assert "no tag is new that names a language as one of yy does" in capsys.readouterr().err.splitlines()[-1]


def test_a_model_learns_one_more_language_and_keeps_those_that_are_named(place: Path) -> None:
    more = ["init.extend_languages=[zz]", "init.like=yy", "init.keep_languages=[xx,yy,zz]", "train.floor={xx-2yy:-50}"]
    assert main(words(*more)) == 0
    model = read_model(place / "runs/new/model.safetensors")
    assert list(model.tokenizers.source.languages) == ["xx", "yy", "zz"]
    assert len(model.tokenizers.source) < 0.75 * len(TOKENIZER)
    scored = json.loads((place / "runs/new/result.json").read_bytes())["best"]
    assert {"dev_bleu <xx> <2yy>", "dev_bleu <xx> <2zz>"} <= scored.keys()
    (place / "base.safetensors").unlink()
    assert main(words(*more, "train.max_steps=3")) == 0  # goes on from its own checkpoint
    store = CheckpointStore(place / "runs/new")
    assert store.load_model(3).tokenizers.source.sha256 == model.tokenizers.source.sha256
    assert main(["translate", "--checkpoint=runs/new", "--from=xx", "--to=zz", "ka to"]) == 0


def test_an_old_dev_set_of_languages_that_are_left_out_is_not_scored(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words("init.extend_languages=[zz]")) == 0
    more = ["init.from=runs/new", "init.keep_languages=[xx,zz]", "name=less"]
    assert main(words(*more, targets=("zz",))) == 0
    assert "it has lines with <2yy>, which the new model does not know" in capsys.readouterr().err
    assert not (place / "runs/less/old_dev.json").exists()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["init.extend_languages=[yy]"], "yy is a language of the model already. Leave it out"),
        (["init.extend_languages=[zz]", "init.like=qq"], "init.like qq: not a language of the model"),
        (["init.extend_languages=[zz]", "init.keep_languages=[xx,zz]"], "the corpus has tags of yy, too. Add it"),
        (["init.extend_languages=[zz]", "init.keep_languages=[xx,yy,zz,ww]"], "ww: not a language of the model"),
        (["init.extend_languages=[zz,zz]"], "zz is a language of the model already. Leave it out"),
        (["init.extend_languages=['z z']"], "init.extend_languages: 'z z' is not a language code"),
        (["init.extend_languages=['>>zz<<']"], "init.extend_languages: '>>zz<<' is not a language code"),
        (["init.extend_languages=[zz,ww]", "init.keep_languages=[xx,yy,zz]"], "init.extend_languages adds ww, too"),
        ([], "data.tags: <2zz> asks for no language of the model. Correct it, or add"),
    ],
)
def test_what_the_model_or_the_corpus_does_not_have_is_refused(
    place: Path, more: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(*more)) == 2
    assert says in capsys.readouterr().err.splitlines()[-1]
    assert not (place / "runs/new/checkpoints").exists()


def test_a_language_is_not_added_under_another_code_of_its_own() -> None:
    languages = ["eng_Latn", "kas_Arab", "kas_Deva"]
    assert TOKENIZER.packed is not None
    packed = replace(TOKENIZER.packed, pieces=[*TOKENIZER.packed.pieces, *languages], languages=languages)
    tokenizer = Tokenizer(packed.to_bytes())
    for code, meant in (("en", "eng_Latn"), ("ENG", "eng_Latn"), ("eng-latn", "eng_Latn"), ("kas", "kas_Arab and kas")):
        with pytest.raises(ConfigError, match=rf"{code} is a language of the model already, as {meant}"):
            with_languages(tokenizer, [code])
    assert "eng_Shaw" in with_languages(tokenizer, ["eng_Shaw", "tyv_Cyrl"]).languages


def test_doctor_does_not_miss_tags_of_languages_in_the_text(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", *words("init.extend_languages=[zz]")[1:]])
    report = capsys.readouterr().out
    assert "all come back from their tokens" in report
    assert "come back changed" not in report


# ---- The page


def write_text(folder: Path) -> None:
    """Text of the files that docs/new_language.md names: each word has one translation."""
    draw = random.Random(5)
    rus, eng = ["ка", "то", "ми", "нер", "ос", "ла"], ["ka", "to", "mi", "ner", "os", "la"]
    tyv = ["өң", "ту", "хем", "даг", "кы", "чу"]
    sets = {"train": (80, tyv, rus), "dev": (6, tyv, rus), "test": (4, tyv, rus), "old": (40, eng, rus)}
    for name, (n, source, target) in {**sets, "olddev": (6, eng, rus)}.items():
        words = [[draw.randrange(6) for _ in range(draw.randint(2, 12))] for _ in range(n)]
        for code, syllables in ((("eng" if source is eng else "tyv"), source), ("rus", target)):
            text = "".join(" ".join(syllables[i] * 2 for i in line) + "\n" for line in words)
            (folder / f"{name}.{code}").write_text(text, encoding="utf-8")


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of docs/new_language.md with text, and a small model in place of NLLB."""
    monkeypatch.chdir(tmp_path)
    assert write_files_of(ROOT / "docs/new_language.md", tmp_path) == [
        "mine/data/tuvan.yaml",
        "mine/experiment/tuvan.yaml",
    ]
    write_text(tmp_path)
    lines = [line for code in ("rus", "eng") for line in (tmp_path / f"old.{code}").read_text("utf-8").splitlines()]
    segmenter = train_tokenizer(
        [*lines, "ы э ю я қ ғ ж з"], TokenizerConfig(vocab_size=90, byte_fallback=False), seed=1
    )
    languages = ["eng_Latn", "kaz_Cyrl", "rus_Cyrl", "fra_Latn"]
    own = [name for name, _, _ in read_pieces(segmenter.model_bytes) if name not in ("<s>", "<unk>", "</s>", "<pad>")]
    nllb = PackedTokenizer(
        Segmenter.sentencepiece, ["<s>", "<pad>", "</s>", "<unk>", *own, *languages],
        pad=1, unk=3, bos=2, eos=2, model=segmenter.model_bytes, languages=languages,
    )  # fmt: skip
    tokenizers = Tokenizers(Tokenizer(nllb.to_bytes()), Tokenizer(nllb.to_bytes()))
    sides = "+".join(languages)
    model = replace(toy_run.random_file(SIZES, tokenizers, seed=1), source_lang=sides, target_lang=sides)
    write_model(tmp_path / "nllb.safetensors", model)
    experiment = tmp_path / "mine/experiment/tuvan.yaml"
    written = experiment.read_text("utf-8")
    experiment.write_text(
        written.replace("hf:facebook/nllb-200-distilled-600M", "nllb.safetensors").replace("2000", "20"),
        encoding="utf-8",
    )
    return tmp_path


SMALL = [
    *("train.max_steps=2", "train.eval_every=2", "train.robustness_lines=0", "device=cpu", "decode=greedy"),
    *("train.tokens_per_update=300", "train.average_last=1", "data.max_length=64", "data.clean=[]"),
]


@pytest.mark.slow
def test_the_commands_of_the_page_go_from_text_to_a_served_model(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [shlex.split(line)[1:] for line in printed_commands([ROOT / "docs/new_language.md"])]
    doctor, train, serve = (
        next(line for line in lines if line[0] == command) for command in ("doctor", "train", "serve")
    )
    assert main([*doctor, *SMALL]) == 0
    assert not (page / "runs").exists()
    assert main([*train, *SMALL]) == 0
    model = read_model(page / "runs/tuvan/model.safetensors")
    assert list(model.tokenizers.source.languages) == ["eng_Latn", "rus_Cyrl", "tyv_Cyrl"]
    assert {"<tyv_Cyrl>", "<2tyv_Cyrl>"} <= set(model.tokenizers.source.tags)
    [name] = [word for word in serve if word.startswith("runs/")]
    with serving(page, models=[page / name]) as served:
        [known] = [one for one in served.ask("/languages").json if one["code"] == "rus-Cyrl"]
        answer = served.ask("/translate", {"q": "ка то", "source": "ru", "target": "tyv-Cyrl"})
    assert "tyv-Cyrl" in known["targets"]
    assert answer.status == 200
