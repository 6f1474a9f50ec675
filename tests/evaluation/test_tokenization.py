"""BLEU and TER in the tokens of the target language, in evaluation and in training; expected are sacrebleu's own."""

import json
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import sacrebleu.utils
import sentencepiece
from sacrebleu.tokenizers import tokenizer_spm
from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS

from tests.evaluation.test_metrics import assert_equal_to_command, sacrebleu_command, score
from tests.golden.make import FOLDER
from tests.support.contract import refused, run, signed
from tests.support.each import each
from tests.toy import run as toy_run
from tests.training.test_training import score_as
from transformer_cli.addons.benchmarks.decoding_report import summary
from transformer_cli.addons.benchmarks.decoding_rounds import BenchmarkText
from transformer_cli.addons.doctor.findings import CheckReport, Level
from transformer_cli.addons.doctor.run_doctor import check_dev_score
from transformer_cli.config.compose import load_config
from transformer_cli.config.data import DataConfig
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.cache_key import cache_key
from transformer_cli.data.corpus import ParallelText
from transformer_cli.errors import EnvironmentFault
from transformer_cli.evaluation.metrics import METRICS, MetricSettings, MetricUnavailable, Translations, bleu
from transformer_cli.evaluation.tokenization import PLAIN, Tokenization, tokenization, tokenizer_of, warn_of_script
from transformer_cli.logs import LOGGER
from transformer_cli.training import dev_metrics
from transformer_cli.training.run_directory import run_name

TEXT = {
    "zh": (["猫喝了牛奶。", "他不擅长游泳，对吗？"], ["猫喝完了牛奶。", "他不太擅长游泳，对吗？"]),
    "ja": (
        ["猫が牛乳を飲んだ。", "彼は水泳が得意ではない。"],
        ["猫が牛乳を飲みました。", "彼は水泳が得意ではなかった。"],
    ),
    "ko": (
        ["고양이가 우유를 마셨다.", "그는 수영을 잘 못한다."],
        ["고양이가 우유를 마셨어요.", "그는 수영을 잘 못했다."],
    ),
    "th": (["แมวดื่มนม", "เขาว่ายน้ำไม่เก่ง"], ["แมวกินนม", "เขาว่ายน้ำไม่ค่อยเก่ง"]),
    "fr": (["Le chat boit le lait.", "Il ne nage pas bien."], ["Le chat a bu le lait.", "Il ne nage pas très bien."]),
}
ASIAN = ["--ter-normalized", "--ter-asian-support"]
HYPOTHESES = ["evaluate", "--hypotheses", "h", "--reference"]


@pytest.fixture
def without_mecab(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("MeCab", "mecab_ko"):
        monkeypatch.setitem(sys.modules, library, None)  # import raises ImportError


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger=LOGGER.name)
    return caplog


def put(file: Path, lines: Sequence[str]) -> None:
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def pair(folder: Path, language: str, ending: str | None = None) -> list[str]:
    """The command that scores translations in a language, whose reference has this ending."""
    hypotheses, references = TEXT[language]
    put(folder / "h", hypotheses)
    put(folder / f"r.{ending or language}", references)
    return [*HYPOTHESES, f"r.{ending or language}"]


# ---- Which tokens


@each(
    "codes, name",
    [
        ("ja jpn JA ja-JP ja_JP jpn_Jpan JPN-Jpan", "ja-mecab"),
        ("zh zho cmn yue chi zh-CN zh_CN zh-TW zh_Hans zh-Hant-HK yue_Hant ZH", "zh"),
        ("ko kor ko-KR kor_Hang", "ko-mecab"),
        ("th tha lo lao km khm my mya bo bod bod_Tibt dz", "char"),
        ("en de fr xx hi ar vi ja-Latn zh_Latn_pinyin jav kok en-ja label", "13a"),
    ],
)
def test_a_language_has_sacrebleus_tokenizer_however_its_code_is_written(codes: str, name: str) -> None:
    assert [tokenizer_of(code) for code in codes.split()] == [name] * len(codes.split())
    assert tokenizer_of("") == "13a"


@pytest.mark.parametrize(
    ("language", "options"), [("zh-CN", ["--tokenize", "zh", *ASIAN]), ("fr", ["--language-pair", "en-fr"])]
)
def test_scores_of_a_language_equal_sacrebleus_own_command(language: str, options: list[str], tmp_path: Path) -> None:
    hypotheses, references = TEXT[language[:2]]
    printed = sacrebleu_command(tmp_path, hypotheses, [references], "-m", "bleu", "chrf", "ter", *options)
    tokens = tokenization(language)
    assert_equal_to_command(score(hypotheses, [references], tokens), printed)
    assert_equal_to_command([bleu(hypotheses, [references], tokens)], printed[:1])


def test_what_is_written_without_blanks_is_scored_by_its_characters_and_has_no_ter(tmp_path: Path) -> None:
    hypotheses, references = TEXT["th"]
    printed = sacrebleu_command(tmp_path, hypotheses, [references], "-m", "bleu", "chrf", "--tokenize", "char")
    assert_equal_to_command(score(hypotheses, [references], tokenization("th")), printed)
    assert score(hypotheses, [references])[2].value == 100, "every sentence is one wrong word"


@pytest.mark.parametrize("language", ["ja", "ko"])
def test_japanese_and_korean_scores_equal_sacrebleus_own_command(language: str, tmp_path: Path) -> None:
    pytest.importorskip("MeCab" if language == "ja" else "mecab_ko", reason="pip extras ja and ko")
    hypotheses, references = TEXT[language]
    options = ["--language-pair", f"en-{language}", *(ASIAN if language == "ja" else [])]
    printed = sacrebleu_command(tmp_path, hypotheses, [references], "-m", "bleu", "chrf", "ter", *options)
    assert_equal_to_command(score(hypotheses, [references], tokenization(language)), printed)


# ---- tfm evaluate


def test_chinese_is_scored_in_its_own_tokens_by_the_ending_of_the_reference(tmp_path: Path) -> None:
    for ending in ("zh", "zh-CN"):
        ran = run(pair(tmp_path, "zh", ending), tmp_path)
        assert (ran.code, ran.err) == (0, b"")
        lines = ran.out.decode().split("\n")[1:-1]
        assert [line.split()[0] for line in lines] == ["BLEU", "chrF2", "TER", "length"], "nothing of Moses"
        assert "|tok:zh|" in lines[0]
        assert "|norm:yes|punct:yes|asian:yes|" in lines[2]


def test_without_a_library_there_is_chrf_and_a_line_says_why(tmp_path: Path, without_mecab: None) -> None:
    for language, library in (("ja", "MeCab"), ("ko", "mecab_ko")):
        ran = run(pair(tmp_path, language), tmp_path)
        assert ran.code == 0
        assert [line.split()[0] for line in ran.out.decode().split("\n")[1:-1]] == ["chrF2", "TER", "length"]
        (message,) = ran.err.decode().strip().split("\n")
        assert message.startswith(
            f"tfm: warning: no BLEU: BLEU of {language}: the package {library} cannot be imported"
        )
        assert message.endswith(f"Run `pip install '.[{language}]'` in the checkout of tfm")
    found = json.loads(run([*pair(tmp_path, "ja"), "--json"], tmp_path).out)
    assert [entry["name"] for entry in found["scores"]] == ["chrF2", "TER"]
    assert "'.[ja]'" in found["missing"]["BLEU"]


def test_a_tokenizer_that_was_asked_for_and_is_not_installed_is_an_error(tmp_path: Path, without_mecab: None) -> None:
    says = ["--tokenize ja-mecab: the package MeCab", "pip install '.[ja]'"]
    refused([*pair(tmp_path, "zh"), "--tokenize", "ja-mecab"], tmp_path, code=5, says=says)
    data = ["data=files", "data.source_lang=en", "data.target_lang=ja", "data.test=[h,r.zh]"]
    command = ["evaluate", "--hypotheses", "h", *data, "data.bleu_tokenize=ja-mecab"]
    refused(command, tmp_path, code=5, says=["data.bleu_tokenize=ja-mecab: the package MeCab"])
    for other in ("train", "doctor"):  # before the text is read
        refused(
            [other, *data[:3], "data.train=nowhere.tsv", "data.bleu_tokenize=ko-mecab", "device=cpu"],
            tmp_path,
            code=5,
            says=["data.bleu_tokenize=ko-mecab: the package mecab_ko", "'.[ko]'"],
            new=["runs"],
        )


def test_a_tokenizer_can_be_chosen_for_one_evaluation(tmp_path: Path) -> None:
    hypotheses, references = TEXT["ja"]
    ran = run([*pair(tmp_path, "ja"), "--tokenize", "char", "--json"], tmp_path)
    printed = sacrebleu_command(tmp_path, hypotheses, [references], "--tokenize", "char")
    found = json.loads(ran.out)["scores"][0]
    assert (round(found["score"], 12), found["signature"]) == (printed[0]["score"], printed[0]["signature"])


def test_a_name_that_is_no_tokenizer_is_refused_with_the_choices(tmp_path: Path) -> None:
    for given, says in (
        (["--tokenize", "ja"], "tokenize=ja: no tokenizer for BLEU"),
        (["data=demo_en_fr", "data.bleu_tokenize=13"], "data.bleu_tokenize=13: no tokenizer"),
        (["data=demo_en_fr", "data.bleu_tokenize=flores"], "data.bleu_tokenize=flores: no tokenizer"),
    ):
        command = ["evaluate", "--hypotheses", "h", *([] if "data=demo_en_fr" in given else ["--reference", "r"])]
        refused([*command, *given], tmp_path, code=2, says=[says, "Choose 13a, intl, zh, char, ja-mecab, ko-mecab"])


@pytest.mark.parametrize("language", ["ja", "zh", "ko", "th"])
def test_text_that_13a_does_not_cut_is_told_with_what_suits_it(language: str, tmp_path: Path) -> None:
    suits = {"ja": "ja-mecab", "zh": "zh", "ko": "ko-mecab", "th": "char"}[language]
    ran = run(pair(tmp_path, language, "de"), tmp_path)  # whatever its name says
    assert ran.code == 0
    assert ran.err.decode() == (
        "tfm: warning: r.de: is in a script that BLEU's tokenizer 13a does not cut into words, so BLEU says little."
        f" --tokenize {suits} suits it\n"
    )
    assert [line.split()[0] for line in ran.out.decode().split("\n")[1:-1]] == ["BLEU", "chrF2", "TER", "length"]


def test_other_text_and_other_tokens_are_not_warned_about(heard: pytest.LogCaptureFixture) -> None:
    mixed = ["Das Wort 猫 heißt Katze.", "Γεια σου, κόσμε", "नमस्ते दुनिया", "", "123 %"]
    assert not warn_of_script([mixed], PLAIN, where="x", key="y")
    assert not warn_of_script([[""]], PLAIN, where="x", key="y")
    assert not warn_of_script([TEXT["ja"][1]], Tokenization("none"), where="x", key="y")
    assert heard.records == []


def test_a_model_is_scored_as_its_corpus_was_and_a_flag_wins(tmp_path: Path) -> None:
    content = (FOLDER / "joint-pre.safetensors").read_bytes()
    put(tmp_path / "text", ["a b c"])
    put(tmp_path / "reference", ["a b c"])
    command = ["evaluate", "--checkpoint", "m", "--device", "cpu", "--source", "text", "--reference", "reference"]
    for data, flags, name in (
        ({}, [], "13a"),
        ({"bleu_tokenize": "char"}, [], "char"),
        ({"bleu_tokenize": "char"}, ["--tokenize", "intl"], "intl"),
    ):
        (tmp_path / "m").write_bytes(signed(content, data={"name": "copy", **data}))
        assert f"|tok:{name}|" in run([*command, *flags], tmp_path).out.decode().split("\n")[1]
    (tmp_path / "m").write_bytes(signed(content, data={"bleu_tokenize": ["\x1b"]}))
    refused(command, tmp_path, code=4, says=["m: its data.bleu_tokenize is", "which this tfm does not know"])


# ---- tfm train


def toy(language: str, **data: object) -> TrainConfig:
    settings = toy_run.config(max_steps=4, eval_every=2, best_metric="bleu")
    return replace(settings, data=replace(settings.data, target_lang=language, **data))


def test_dev_scores_count_the_tokens_of_the_language(tmp_path: Path) -> None:
    for language, tokenizer in (("zh", "zh"), ("th", "char")):
        toy_run.run(tmp_path / language, toy(language))
        dev = [entry for entry in toy_run.metrics(tmp_path / language) if entry["kind"] == "dev"]
        assert all(f"|tok:{tokenizer}|" in entry["bleu_signature"] for entry in dev)


def test_without_a_library_chrf_decides_and_is_not_called_bleu(
    tmp_path: Path, without_mecab: None, heard: pytest.LogCaptureFixture
) -> None:
    result = toy_run.run(tmp_path, toy("ja"))
    logged = [record.getMessage() for record in heard.records if "pip install" in record.getMessage()]
    assert logged == [
        "BLEU of ja: the package MeCab cannot be imported (import of MeCab halted; None in sys.modules)."
        " Run `pip install '.[ja]'` in the checkout of tfm."
        " Dev scores are chrF until then, which also decides on the best checkpoint, patience and the average"
    ]
    entries = toy_run.metrics(tmp_path)
    dev = [entry for entry in entries if entry["kind"] == "dev"]
    assert all({"dev_chrf", "chrf_signature"} <= entry.keys() for entry in dev)
    outcome = json.loads((tmp_path / "result.json").read_bytes())
    assert outcome["dev_score"] == result.dev_score
    assert result.metric == outcome["dev_metric"] == "chrf", "or a table of runs would call it BLEU"
    shown = max(entry["dev_chrf"] for entry in [*dev, outcome["average"]])
    assert result.dev_score == shown > 0
    for file in ("metrics.jsonl", "result.json"):
        assert "bleu" not in (tmp_path / file).read_text()
    assert "chrF2 " in (tmp_path / "tfm.log").read_text()


def answering(found: Tokenization, asked: list[tuple[str, str | None, str | None]]) -> Callable[..., Tokenization]:
    """Stands for the choice of a tokenizer, and records what it is chosen by."""

    def tokenization(language: str, chosen: str | None = None, *, asked_by: str | None = None) -> Tokenization:
        asked.append((language, chosen, asked_by))
        return found

    return tokenization


def test_a_run_that_was_ranked_by_13a_is_ranked_anew(
    tmp_path: Path, without_mecab: None, monkeypatch: pytest.MonkeyPatch, heard: pytest.LogCaptureFixture
) -> None:
    asked: list[tuple[str, str | None, str | None]] = []
    with monkeypatch.context() as patch:
        patch.setattr(dev_metrics, "tokenization", answering(PLAIN, asked))  # as of Japanese, before
        score_as(patch, 99.0, 98.0)
        toy_run.run(tmp_path, toy("ja"))
    assert set(asked) == {("ja", None, None)}
    more = replace(toy("ja"), train=replace(toy("ja").train, max_steps=8))
    toy_run.run(tmp_path, more)
    (logged,) = [message for message in heard.messages if "do not compare" in message]
    assert logged.startswith("step 4: train.best_metric (bleu, now chrf) changed, so earlier dev scores do not compare")
    outcome = json.loads((tmp_path / "result.json").read_bytes())
    assert outcome["best"]["step"] >= 4, "99 was better, but of something else"
    assert "dev_chrf" in outcome["best"]
    assert outcome["dev_score"] < 98


def test_a_run_that_chrf_has_ranked_keeps_to_it_when_the_library_is_there(
    tmp_path: Path, without_mecab: None, monkeypatch: pytest.MonkeyPatch, heard: pytest.LogCaptureFixture
) -> None:
    toy_run.run(tmp_path, toy("ja"))
    more = replace(toy("ja"), train=replace(toy("ja").train, max_steps=8))
    asked: list[tuple[str, str | None, str | None]] = []
    monkeypatch.setattr(dev_metrics, "tokenization", answering(Tokenization("char"), asked))  # for the library
    toy_run.run(tmp_path, more)
    assert not [message for message in heard.messages if "do not compare" in message]
    assert heard.text.count("this run goes on with chrF, by which its checkpoints are ranked") == 1
    dev = [entry for entry in toy_run.metrics(tmp_path) if entry["kind"] == "dev"]
    assert [(entry["step"], "dev_chrf" in entry, "dev_bleu" in entry) for entry in dev] == [
        (step, True, False) for step in (2, 4, 6, 8)
    ]
    chosen = replace(more, data=replace(more.data, bleu_tokenize="char"), train=replace(more.train, max_steps=10))
    toy_run.run(tmp_path, chosen)
    assert "step 8: train.best_metric (chrf, now bleu in tokens of char) changed" in heard.text
    assert set(asked) == {("ja", None, None), ("ja", "char", "data.bleu_tokenize=char")}


def test_where_nll_decides_a_missing_library_says_no_more_than_it_changes(
    tmp_path: Path, without_mecab: None, heard: pytest.LogCaptureFixture
) -> None:
    settings = toy("ko")
    settings = replace(settings, train=replace(settings.train, best_metric="nll"))
    result = toy_run.run(tmp_path, settings)
    assert result.dev_score == json.loads((tmp_path / "result.json").read_bytes())["dev_score"] > 0
    assert [m for m in map(logging.LogRecord.getMessage, heard.records) if m.endswith("Dev scores are chrF until then")]


def test_dev_text_that_13a_does_not_cut_is_told_once(tmp_path: Path, heard: pytest.LogCaptureFixture) -> None:
    sources = toy_run.prepared().dev.sources
    japanese = replace(toy_run.prepared(), dev=ParallelText(sources, [TEXT["ja"][1][0]] * len(sources)))
    toy_run.train(toy("xx"), japanese, tmp_path, device=toy_run.CPU)
    logged = [record.getMessage() for record in heard.records if "suits it" in record.getMessage()]
    assert logged == [
        "data.dev: is in a script that BLEU's tokenizer 13a does not cut into words, so BLEU says little."
        " data.bleu_tokenize=ja-mecab suits it"
    ]


def test_the_tokenizer_of_scores_is_no_part_of_the_prepared_corpus_nor_of_a_name() -> None:
    plain = DataConfig(source_lang="en", target_lang="ja")
    chosen = replace(plain, bleu_tokenize="char")
    assert cache_key(plain, {}) == cache_key(chosen, {}) != cache_key(replace(plain, seed=2), {})
    assert run_name(TrainConfig(data=plain)) == run_name(TrainConfig(data=chosen))


def test_doctor_tells_what_dev_text_is_scored_by(without_mecab: None) -> None:
    report = CheckReport()
    check_dev_score(toy("ja"), toy_run.prepared(), report.section("training"))
    check_dev_score(toy("fr"), toy_run.prepared(), report.section("training"))
    dev = ParallelText(["a"], [TEXT["zh"][1][0]])
    check_dev_score(toy("xx"), replace(toy_run.prepared(), dev=dev), report.section("training"))
    assert [(finding.level, finding.todo) for finding in report.findings()] == [
        (
            Level.warning,
            "Dev scores are chrF until then, which also decides on the best checkpoint, patience and the average",
        ),
        (Level.warning, "Set data.bleu_tokenize=zh"),
    ]


def test_a_benchmark_has_no_bleu_without_the_library(without_mecab: None) -> None:
    model = replace(toy_run.model_file(), target_lang="ja")
    config = load_config("bench", ["subject=decode"])
    notes = summary(config, BenchmarkText(["a"], [[4]], TEXT["ja"][1][:1]), model, []).notes
    assert notes[-1].startswith("No BLEU: BLEU of ja: the package MeCab cannot be imported")


# ---- The tokenizers that sacrebleu downloads


@pytest.fixture
def flores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of sacrebleu's cache, with a SentencePiece model in the place of that of FLORES-200."""
    folder = tmp_path / "cache" / "models"
    folder.mkdir(parents=True)
    lines = [line for pair in TEXT.values() for side in pair for line in side]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 5),
        model_prefix=str(folder / "m"),
        vocab_size=150,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (folder / "m.model").rename(folder / SPM_MODELS["flores200"]["url"].rpartition("/")[2])
    for module in (tokenizer_spm, sacrebleu.utils):
        monkeypatch.setattr(module, "SACREBLEU_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("SACREBLEU", str(tmp_path / "cache"))
    return folder


def test_bleu_with_the_tokenizer_of_flores_equals_sacrebleus_own_command(flores: Path, tmp_path: Path) -> None:
    hypotheses, references = TEXT["fr"]
    printed = sacrebleu_command(tmp_path, hypotheses, [references], "-m", "bleu", "--tokenize", "flores200")
    translations = Translations(hypotheses, [references])
    (score,) = METRICS["spbleu"](translations, MetricSettings())
    assert score.name == "spBLEU"
    assert_equal_to_command([replace(score, name="BLEU")], printed)
    tokens = tokenization("fr", "flores200", asked_by="--tokenize flores200")
    assert_equal_to_command(METRICS["bleu"](translations, MetricSettings(tokens)), printed)


def test_a_tokenizer_that_cannot_be_downloaded_or_is_damaged_is_said_in_one_line(
    flores: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = flores.glob("flores*")
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(EnvironmentFault, match=r"flores200sacrebleuspm is not the .* Delete it"):
        tokenization("fr", "flores200", asked_by="--tokenize flores200")
    file.unlink()
    monkeypatch.setitem(SPM_MODELS["flores200"], "url", "http://127.0.0.1:9/flores200sacrebleuspm")
    with pytest.raises(EnvironmentFault, match=r"could not download http.*Put the file at .*flores200sacrebleuspm"):
        tokenization("fr", "flores200", asked_by="--tokenize flores200")
    with pytest.raises(MetricUnavailable, match="spBLEU: BLEU with flores200: sacrebleu could not download"):
        METRICS["spbleu"](Translations(["a"], [["a"]]), MetricSettings())
