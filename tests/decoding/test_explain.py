"""What `--explain` shows: the very search that gave the translation, and the distribution that is trained on.

Expected values come from tables whose probabilities are known, from force-decoding, and from the loss of training.
"""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import slow
from tests.decoding.test_search import CONTROL, Tables, random_tables
from tests.support.contract import refused, run
from tests.support.each import each
from tests.toy.run import model_file, packed
from tests.toy.run import sentences as letters
from tests.toy.translator import GREEDY, SAMPLE, engine_of, random_model, sentences, toy_tokenizer, translator_of
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.decoding.explain import explain_reference, explain_search
from transformer_cli.decoding.results import TranslateOptions
from transformer_cli.decoding.search import SEARCHES, SearchRequest, rows_per_sentence
from transformer_cli.decoding.search.trace import ROOT, Fate, SearchTrace, TraceRecorder
from transformer_cli.decoding.terminology import Term, Terminology
from transformer_cli.errors import ConfigError
from transformer_cli.evaluation.scoring import score_translations
from transformer_cli.models.file import read_model
from transformer_cli.training.loss import smoothed_nll

N_SENTENCES, LONGEST = 12, 4
TRANSLATE = ["translate", "--checkpoint", "m", "--device", "cpu", "decode.max_extra_length=3"]
EXPLAIN = TranslateOptions(n_likeliest=4)
TERMS = Terminology([Term("cat", ("milk",), 1), Term("sat", ("chair",), 2)], name="terms.tsv")


# ---- The search, over tables


def searched(tables: Tables, config: DecodeConfig, *, n_likeliest: int = 3) -> list[tuple[list[Any], SearchTrace]]:
    """Hypotheses and trace of each sentence."""
    cache, n = tables.start(rows_per_sentence(config)), len(tables.logits_BMV)
    seeds = [(1, b) for b in range(n)]
    recorder = TraceRecorder(n, n_likeliest)
    lengths = torch.tensor([LONGEST - b % 2 for b in range(n)])  # some leave the batch before others
    request = SearchRequest(tables.step, cache, CONTROL, lengths, config, seeds, recorder=recorder)
    plain = replace(request, cache=tables.start(rows_per_sentence(config)), recorder=None)
    found = SEARCHES[config.search](request)
    assert found == SEARCHES[config.search](plain)  # recording changes nothing
    assert all(one.trace is recorder.traces[b] for b, hypotheses in enumerate(found) for one in hypotheses)
    return list(zip(found, recorder.traces, strict=True))


def log_p_after(tables: Tables, sentence: int, ids: list[int]) -> torch.Tensor:
    """[V]: the model's log-probabilities after a prefix."""
    node = torch.tensor([0])
    for i in ids:
        node = tables.child(node, torch.tensor([i]))
    return tables.logits_BMV[sentence, node[0]].log_softmax(dim=-1)


@each(
    "config",
    [
        DecodeConfig(**GREEDY),
        DecodeConfig(beam_size=1),
        DecodeConfig(beam_size=2),
        DecodeConfig(beam_size=3, n_best=3, length_penalty=1.5),
        DecodeConfig(beam_size=2, no_repeat_ngram=1, min_length=2),
        DecodeConfig(beam_size=4, n_best=2, diversity_groups=2),
        DecodeConfig(search="sample", beam_size=1, n_best=3, temperature=0.7, top_k=3),
    ],
)
def test_every_number_of_a_trace_is_that_of_the_model(config: DecodeConfig) -> None:
    tables = random_tables(N_SENTENCES, seed=4)
    for b, (hypotheses, trace) in enumerate(searched(tables, config)):
        for index, node in list(enumerate(trace.nodes))[1:]:
            ids = [trace.nodes[i].token for i in trace.path(index)]
            each = [float(log_p_after(tables, b, ids[:n])[i]) for n, i in enumerate(ids)]
            assert node.token_log_prob == pytest.approx(each[-1])
            assert node.log_prob == pytest.approx(sum(each))
            assert node.score == pytest.approx(sum(each) / ((5 + len(ids)) / 6) ** config.alpha)
            assert trace.depths[index] == len(ids)
            assert (node.fate is Fate.finished) <= (node.token == CONTROL.eos)
            parent = trace.nodes[node.parent]
            assert parent.fate is Fate.kept
            assert node.parent < index
        for live, options in trace.options.items():
            log_p_V = log_p_after(tables, b, [trace.nodes[i].token for i in trace.path(live)])
            top = log_p_V.topk(3)
            assert [one.id for one in options] == top.indices.tolist()
            assert [one.log_prob for one in options] == pytest.approx(top.values.tolist())
            assert sum(math.exp(one.log_prob) for one in options) <= 1 + 1e-9
            assert all(one.allowed for one in options if one.id not in CONTROL.banned) or config.no_repeat_ngram
            assert not any(one.allowed for one in options if one.id in CONTROL.banned)
        best = hypotheses[0]
        ends = trace.path(trace.find(best.ids, finished=best.finished)[0])
        assert [trace.nodes[i].token for i in ends] == [*best.ids, *[CONTROL.eos] * best.finished]
        assert ends[-1] == trace.ranking()[0]
        assert [trace.nodes[i].score for i in trace.ranking()[:1]] == [best.score]


def test_beam_search_keeps_the_likeliest_continuations_and_drops_the_others() -> None:
    tables, n_beams = random_tables(N_SENTENCES, seed=7), 3
    for b, (_, trace) in enumerate(searched(tables, DecodeConfig(beam_size=n_beams))):
        live = [ROOT]
        for step in range(1, max(trace.depths) + 1):
            # By force: all continuations of the live hypotheses, without PAD and BOS.
            every = []
            for node in live:
                log_p_V = log_p_after(tables, b, [trace.nodes[i].token for i in trace.path(node)])
                allowed = (v for v in range(len(log_p_V)) if v not in CONTROL.banned)
                every += [(trace.nodes[node].log_prob + float(log_p_V[v]), node, v) for v in allowed]
            taken = sorted(every, reverse=True)[: 2 * n_beams]
            of_step = [node for node, depth in zip(trace.nodes, trace.depths, strict=True) if depth == step]
            assert [(node.parent, node.token) for node in of_step] == [(parent, v) for _, parent, v in taken]
            fates = {(node.parent, node.token): node.fate for node in of_step}
            for place, (_, parent, v) in enumerate(taken):
                is_end = v == CONTROL.eos
                assert (fates[parent, v] is Fate.finished) == (is_end and place < n_beams)
            kept = [(parent, v) for _, parent, v in taken if v != CONTROL.eos][:n_beams]
            assert [pair for pair in ((p, v) for _, p, v in taken) if fates[pair] is Fate.kept] == kept
            live = [i for i, node in enumerate(trace.nodes) if trace.depths[i] == step and i and node.fate is Fate.kept]
        assert trace.live == live or not live


def test_greedy_search_and_a_beam_of_one_have_the_same_trace() -> None:
    tables = random_tables(N_SENTENCES, seed=5)
    greedy, beam = (searched(tables, DecodeConfig(**one)) for one in (GREEDY, {"beam_size": 1}))
    for (_, one), (_, other) in zip(greedy, beam, strict=True):
        assert one == other
        assert all(len(children) == 1 for children in one.children.values())  # one chosen token a step


def test_a_sample_has_the_probability_that_it_was_drawn_with() -> None:
    config = DecodeConfig(search="sample", beam_size=1, temperature=0.5, top_k=2)
    tables = random_tables(N_SENTENCES, seed=6)
    for b, (_, trace) in enumerate(searched(tables, config, n_likeliest=7)):
        for node, options in trace.options.items():
            log_p_V = log_p_after(tables, b, [trace.nodes[i].token for i in trace.path(node)])
            log_p_V[CONTROL.banned] = -math.inf
            p_V = (log_p_V / 0.5).softmax(dim=-1)
            p_V[p_V < p_V.topk(2).values[-1]] = 0
            p_V /= p_V.sum()
            assert {one.id: one.drawn for one in options} == pytest.approx(dict(enumerate(p_V.tolist())))
            for child in trace.children[node]:
                assert trace.nodes[child].drawn == pytest.approx(float(p_V[trace.nodes[child].token]))


# ---- Translations


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        (GREEDY, {}),
        slow({"beam_size": 1}, {}),
        ({"beam_size": 4}, {}),
        ({"beam_size": 4, "n_best": 3, "no_repeat_ngram": 2, "min_length": 3}, {}),
        ({"beam_size": 4, "coverage_penalty": 0.3, "length_normalization": "average"}, {}),
        slow({"beam_size": 4, "diversity_groups": 2, "n_best": 2}, {}),
        ({"beam_size": 4}, {"terminology": TERMS, "warns": False}),
        ({"beam_size": 2}, {"retry": True}),
        ({"beam_size": 2, "split_sentences": True, "max_source_length": 5}, {"warns": False}),
        (SAMPLE, {}),
        slow({"beam_size": 3, "batch_invariant": True}, {}),
    ],
    ids=[
        *("greedy", "beam 1", "beam 4", "n-best", "coverage", "groups", "terms", "retry", "parts", "sample"),
        "invariant",
    ],
)
def test_what_is_explained_is_what_is_translated(settings: dict[str, Any], options: dict[str, Any]) -> None:
    if "length_normalization" in settings:
        settings = {**settings, "length_normalization": DecodeConfig(length_penalty=0.6).length_normalization}
    lines = ["", *sentences(6, seed=3), "the cat sat ."]
    given = TranslateOptions(**options)
    plain = translator_of(toy_tokenizer(), options=given, **settings).translate(lines)
    translator = translator_of(toy_tokenizer(), options=replace(given, n_likeliest=4), **settings)
    explained = translator.translate(lines)
    assert [replace(one, searched=None) for one in explained] == plain
    for result in explained:
        assert result.searched is not None
        records = [explain_search(one, translator.tokenizers) for one in result.searched]
        text = " ".join(filter(None, (record["translation"] for record in records)))
        assert text == result.text
        for one, record in zip(result.searched, records, strict=True):
            (forced,) = translator.engine.score([(one.source_ids, one.hypotheses[0].ids)], batch_tokens=4096)
            shown = [step["token_log_prob"] for step in record["steps"]]
            assert shown == pytest.approx(forced.log_probs[: len(shown)], abs=2e-5)
            assert sum(shown) == pytest.approx(one.hypotheses[0].log_prob, abs=2e-5)
            assert len(shown) == len(one.hypotheses[0].ids) + one.hypotheses[0].finished
            assert sorted(row["returned"] for row in record["ranking"] if row["returned"])[:1] == [1]


def test_every_group_of_a_diverse_beam_has_the_coverage_of_its_own_hypotheses() -> None:
    settings: dict[str, Any] = {"beam_size": 4, "diversity_groups": 2, "n_best": 2, "coverage_penalty": 0.8}
    tokenizer, model = toy_tokenizer(), random_model(toy_tokenizer())
    translator = translator_of(tokenizer, model=model, options=EXPLAIN, **settings)
    n_finished = 0
    for result in translator.translate(sentences(12, seed=9)):
        for searched in result.searched or []:
            source_BS = torch.tensor([[*searched.source_ids, tokenizer.eos_id]])
            for one in searched.hypotheses:
                target_in_BT = torch.tensor([[tokenizer.bos_id, *one.ids]])
                with torch.no_grad():
                    last_BHTS = model.attention_weights(source_BS, target_in_BT)["cross"][-1]
                # Wu et al. 2016, equation 14; the attention of the last layer, averaged over heads.
                coverage_S = last_BHTS[0].double().mean(dim=0).sum(dim=0)
                penalty = 0.8 * float(coverage_S.clamp(max=1).log().sum())
                expected = one.log_prob / ((5 + len(one.ids) + 1) / 6) ** 0.6 + penalty
                if one.finished:
                    n_finished += 1
                    assert one.score == pytest.approx(expected, abs=1e-4)
    assert n_finished > 5


def test_a_near_tie_is_explained_by_the_search_that_decided_it() -> None:
    translator = translator_of(toy_tokenizer(), options=EXPLAIN, beam_size=2)
    engine = engine_of(translator)
    engine.near_tie = 1e9  # every sentence is decoded again, alone
    n_sentences, search = [], engine._run

    def counted(request: SearchRequest[Any]) -> Any:
        n_sentences.append(len(request.max_lengths_B))
        return search(request)

    engine._run = counted  # type: ignore[method-assign]
    lines = sentences(4, seed=3)
    results = translator.translate(lines)
    assert n_sentences == [4, 1, 1, 1, 1]
    alone = [translator.translate([line])[0] for line in lines]
    for result, other in zip(results, alone, strict=True):
        assert result.searched is not None
        assert other.searched is not None
        assert result.searched[0].hypotheses[0].trace == other.searched[0].hypotheses[0].trace


def test_a_forced_prefix_is_shown_with_what_it_bans() -> None:
    tokenizer = toy_tokenizer()
    translator = translator_of(tokenizer, options=replace(EXPLAIN, prefixes=True), beam_size=2)
    (ids,) = tokenizer.encode(["milk chair"])
    (result,) = translator.translate(["the cat ."], prefixes=[tuple(ids)])
    assert result.searched is not None
    record = explain_search(result.searched[0], translator.tokenizers)
    for step, i in zip(record["steps"], ids, strict=False):
        assert step["token"] == tokenizer.pieces([i])[0]
        allowed = [one["token"] for one in step["likeliest"] if one.get("allowed", True)]
        assert set(allowed) <= {step["token"]}


def test_a_search_of_a_plugin_that_records_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"decode.search=mbr: records no steps.*Choose decode.search=beam"):
        translator_of(toy_tokenizer(), options=EXPLAIN, search="mbr", beam_size=1)


# ---- References


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_the_smoothed_target_is_what_the_loss_trains_on(smoothing: float) -> None:
    tokenizer, model = toy_tokenizer(), random_model(toy_tokenizer())
    engine = engine_of(translator_of(tokenizer, model=model))
    source, target = tokenizer.encode(["the cat drank milk .", "a pretty woman sat ."])
    record = explain_reference(engine, source, target, n_likeliest=len(tokenizer), smoothing=smoothing)
    ids = [*target, tokenizer.eos_id]
    with torch.no_grad():
        logits_TV = model(torch.tensor([[*source, tokenizer.eos_id]]), torch.tensor([[tokenizer.bos_id, *target]]))[0]
    assert record["log_prob"] == pytest.approx(float(logits_TV.log_softmax(-1)[range(len(ids)), ids].sum()), abs=1e-4)
    # The gradient of the loss is the prediction less the target distribution.
    leaf_TV = logits_TV.double().requires_grad_()
    loss, _ = smoothed_nll(leaf_TV.clone(), torch.tensor(ids), smoothing=smoothing)
    loss.backward()  # type: ignore[no-untyped-call]
    assert leaf_TV.grad is not None
    trained_TV = logits_TV.double().softmax(-1) - leaf_TV.grad
    for step, trained_V, i in zip(record["steps"], trained_TV, ids, strict=True):
        shown = {one["token"]: one["smoothed"] for one in step["likeliest"]}
        pieces = tokenizer.pieces(range(len(tokenizer)))
        assert [shown[piece] for piece in pieces] == pytest.approx(trained_V.tolist(), abs=1e-9)
        assert sum(shown.values()) == pytest.approx(1)
        assert [one["token"] for one in step["likeliest"] if one["target"]] == [pieces[i]]
        assert sum(one["probability"] for one in step["likeliest"]) == pytest.approx(1, abs=1e-4)
        likelier = [one for one in step["likeliest"] if one["probability"] > step["probability"]]
        assert step["rank"] == 1 + len(likelier)
    assert sum(step["loss"] for step in record["steps"]) == pytest.approx(loss.item(), abs=1e-4)


def test_a_target_that_is_not_among_the_likeliest_is_shown_beside_them() -> None:
    tokenizer = toy_tokenizer()
    engine = engine_of(translator_of(tokenizer))
    (source,) = tokenizer.encode(["the cat ."])
    record = explain_reference(engine, source, source, n_likeliest=2, smoothing=None)
    for step in record["steps"]:
        assert len(step["likeliest"]) == 2 + (step["rank"] > 2)
        assert [one["token"] for one in step["likeliest"] if one["target"]] == [step["token"]]
        assert "smoothed" not in step
    assert explain_reference(engine, [], [], n_likeliest=2, smoothing=None)["steps"] == []


def test_the_label_smoothing_is_that_of_the_model_file() -> None:
    assert model_file().label_smoothing is None
    for found, expected in ((0.3, 0.3), (0, 0.0), (1.5, None), ("much", None)):
        assert replace(model_file(), provenance={"label_smoothing": found}).label_smoothing == expected


# ---- The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("explain")
    (place / "m").write_bytes(packed(replace(model_file(seed=1), provenance={"label_smoothing": 0.1})))
    for name, seed in (("en", 5), ("fr", 6)):
        text = "".join(f"{line}\n" for line in ["", *letters(5, seed=seed)])
        (place / name).write_text(text, encoding="utf-8")
    return place


def records(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    ran = run([*TRANSLATE, "--output-format", "jsonl", "--input", "en", *arguments], folder)
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


def test_jsonl_has_the_steps_of_every_line_and_its_reference(folder: Path) -> None:
    explained = records(folder, "--explain", "--reference", "fr", "likeliest=3")
    assert [{key: one[key] for key in one if key != "explanation"} for one in explained] == records(folder)
    file = read_model(folder / "m")
    pairs = list(zip(*((folder / name).read_text().split("\n")[:-1] for name in ("en", "fr")), strict=True))
    scored = score_translations(file.build(torch.device("cpu")), [file], DecodeConfig(), torch.device("cpu"), pairs)
    for line, expected in zip(explained, scored, strict=True):
        segments, reference = line["explanation"]["segments"], line["explanation"]["reference"]
        assert len(segments) == (line["source"] != "")
        assert [step["token"] for step in reference["steps"]] == expected.pieces
        assert reference["log_prob"] == pytest.approx(expected.log_prob, abs=1e-5)
        assert (reference["label_smoothing"], reference["vocabulary"]) == (0.1, len(file.tokenizers.target))
        for segment in segments:
            assert segment["translation"] == line["translation"]
            assert all(len(step["likeliest"]) == 3 for step in segment["steps"])
            assert sum(step["token_log_prob"] for step in segment["steps"]) == pytest.approx(line["log_prob"], abs=1e-3)
            of_id = {one["id"]: one for one in segment["hypotheses"]}
            assert segment["ranking"][0]["hypothesis"] == segment["path"][-1]
            assert segment["ranking"][0]["score"] == pytest.approx(line["score"], abs=1e-4)
            assert [of_id[i]["token"] for i in segment["path"]] == [step["token"] for step in segment["steps"]]
            assert [of_id[i]["parent"] for i in segment["path"]] == [0, *segment["path"][:-1]]


def test_equal_samples_are_each_marked_as_returned(folder: Path) -> None:
    (_, record, *_) = records(folder, "--explain", "decode=sample", "decode.temperature=0.01", "--n-best", "3")
    ranking = record["explanation"]["segments"][0]["ranking"]
    assert len({one["translation"] for one in ranking}) == 1
    assert sorted(one["returned"] for one in ranking) == [1, 2, 3]


def test_a_table_has_nothing_that_a_terminal_would_obey(folder: Path) -> None:
    ran = run([*TRANSLATE, "--explain"], folder, stdin="a \x1b[31m b\u202e c\n".encode())
    assert ran.code == 0
    assert all(character.isprintable() or character == "\n" for character in ran.out.decode())
    assert "line 1: a \\x1b[31m b\\u202e c" in ran.out.decode()


def test_the_table_of_a_line_shows_its_steps_its_beam_and_its_reference(folder: Path) -> None:
    (folder / "one").write_text("a b c\n")
    ran = run([*TRANSLATE, "--beam", "2", "--explain", "--reference", "one", "likeliest=2", "a b c"], folder)
    (record,) = (
        json.loads(one)
        for one in run(
            [
                *TRANSLATE,
                "--beam",
                "2",
                "--explain",
                "--reference",
                "one",
                "likeliest=2",
                "--output-format",
                "jsonl",
                "a b c",
            ],
            folder,
        ).out.splitlines()
    )
    text, segment = ran.out.decode(), record["explanation"]["segments"][0]
    head, *rows = text.split("\n")
    assert (head, rows[0]) == ("line 1: a b c", f"translation: {record['translation']}")
    assert rows[2].split() == ["step", "token", "p", "log", "p", "likeliest", "tokens"]
    for n, step in enumerate(segment["steps"], start=1):
        assert rows[2 + n].split()[:2] == [str(n), step["token"]]
    for one in segment["hypotheses"]:
        (row,) = [row for row in rows if f"#{one['id']} " in row and any(mark in row[:6] for mark in "+=-")]
        assert {"kept": "+", "finished": "=", "dropped": "-"}[one["fate"]] in row[:6]
        assert (one["id"] in segment["path"]) == ("*" in row[:3])
        assert row.split()[-1] == f"{one['score']:.3f}"
    log_prob = record["explanation"]["reference"]["log_prob"]
    assert f"log-probability of the reference, as `tfm score` gives it: {log_prob:.4f}" in rows
    assert "(train.label_smoothing=0.1)" in text


@each(
    "arguments, says",
    [
        (["--explain", "decode=mbr", "a"], "decode.search=mbr: records no steps, which --explain needs"),
        (["--explain", "--format", "html", "<p>a</p>"], "--explain: is for lines, and format=html is one document"),
        (["--explain", "--output-format", "moses", "a"], "--explain: output_format=moses has no place for it"),
        (["--reference", "fr", "a"], "--reference fr: is for --explain"),
        (["likeliest=3", "a"], "likeliest=3: is for --explain"),
        (["--explain", "likeliest=0", "a"], "likeliest=0: out of range"),
    ],
)
def test_what_cannot_be_explained_is_refused(folder: Path, arguments: list[str], says: str) -> None:
    refused([*TRANSLATE, *arguments], folder, code=2, says=[says])


def test_another_number_of_references_and_too_many_tables_are_refused(folder: Path) -> None:
    says = "fr: has 6 lines, standard input 1, so nothing is translated"
    refused([*TRANSLATE, "--explain", "--reference", "fr"], folder, stdin=b"a b\n", code=3, says=[says])
    says = "prints the tables of 20 lines at most"
    refused([*TRANSLATE, "--explain"], folder, stdin=b"a\n" * 21, code=2, says=[says])
