"""The automaton of lexical constraints: what it counts, and that it grows no faster than the terms do."""

import random
from collections import Counter
from collections.abc import Sequence

import torch

from tests.support.each import each
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.decoding.search import Constraints, ControlIds, SearchRequest
from transformer_cli.decoding.search.automaton import Automaton, automaton
from transformer_cli.decoding.search.constraints import LexicalConstraints, unsatisfied_terms

EOS = 9
Terms = tuple[tuple[int, ...], ...]


class Counted(int):
    """A token that counts how often a table is asked for it: each such operation hashes it."""

    n_hashed = 0

    def __hash__(self) -> int:
        Counted.n_hashed += 1
        return int.__hash__(self)


SHAPES = {
    "a long term of one token": lambda n: [[1] * n],
    "a long term of changing tokens": lambda n: [[1 + (i * i // 7) % 3 for i in range(n)]],
    "a term that nearly repeats itself": lambda n: [[1, 2] * (n // 2 - 1) + [3, 4]],
    "many terms with one beginning": lambda n: [[1, 1, 2 + i] for i in range(n // 3)],
    "many terms with one end": lambda n: [[2 + i, 1, 1] for i in range(n // 3)],
    "many different terms": lambda n: [[3 * i, 3 * i + 1, 3 * i + 2] for i in range(n // 3)],
}


def operations(rows: Sequence[Sequence[int]]) -> tuple[int, Automaton]:
    terms = [tuple(map(Counted, row)) for row in rows]
    Counted.n_hashed = 0
    built = automaton(terms)
    return Counted.n_hashed, built


@each("name", SHAPES)
def test_building_takes_a_few_operations_for_each_token(name: str) -> None:
    for n in (300, 3000):
        n_operations, built = operations(SHAPES[name](n))
        assert n_operations <= 12 * n
        assert len(built.depth_Q) <= n + 1
        assert len(built.edges) == len(built.depth_Q) - 1


def test_a_state_of_one_repeated_token_has_short_chains() -> None:
    built = automaton([(1,) * 500])
    assert (built.most_retries, built.most_found, built.most_begun) == (1, 1, 1)


def brute_force_progress(terms: Terms, text: Sequence[int]) -> int:
    """The progress by definition: tokens of the terms found, and the longest prefix of one that is still required."""
    counts, progress, begun = Counter(terms), 0, 0
    for term, required in counts.items():
        n_found = sum(tuple(text[i : i + len(term)]) == term for i in range(len(text)))
        progress += min(n_found, required) * len(term)
        if n_found < required:
            begun = max(begun, *(n for n in range(len(term)) if tuple(text[len(text) - n :]) == term[:n]))
    return progress + begun


def drawn_terms(draw: random.Random) -> Terms:
    return tuple(tuple(draw.choices(range(1, 4), k=draw.randint(1, 5))) for _ in range(draw.randint(0, 6)))


def test_progress_is_that_of_its_definition() -> None:
    draw = random.Random(4)
    for _ in range(40):
        sentences = [drawn_terms(draw) for _ in range(3)]
        if not any(sentences):
            continue
        request: SearchRequest[None] = SearchRequest(
            lambda ids_R, cache: torch.zeros(len(ids_R), 12),
            None,  # type: ignore[arg-type]
            ControlIds(pad=0, bos=8, eos=EOS, unk=None),
            torch.tensor([20] * 3),
            DecodeConfig(beam_size=2, search="beam"),
            constraints=[Constraints(terms=terms) for terms in sentences],
        )
        followed = LexicalConstraints(request)
        texts: list[list[list[int]]] = [[[], []] for _ in sentences]
        own = torch.tensor([[0, 1]] * 3)
        for _ in range(12):
            ids = torch.tensor([[draw.choice([1, 2, 3, 5, 11]) for _ in range(2)] for _ in sentences])
            progress = followed.progress(ids, own).tolist()
            penalty = followed.penalty(own)
            for b, terms in enumerate(sentences):
                for n in range(2):
                    lacks = bool(unsatisfied_terms(texts[b][n], Constraints(terms=terms)))
                    assert bool(penalty[b, n] > 0) == lacks
                    texts[b][n].append(int(ids[b, n]))
                    assert progress[b][n] == brute_force_progress(terms, texts[b][n]), (terms, texts[b][n])
            followed.after(own, ids)


def test_a_whole_term_is_not_made_a_longer_word() -> None:
    """Tokens 5 and 11 continue a word; the third sentence may make a longer word of its term."""
    continuing_V = torch.tensor([i in (5, 11) for i in range(12)])
    sentences = [
        Constraints(terms=((1, 2), (2,)), whole=frozenset({(1, 2)})),
        Constraints(),
        Constraints(terms=((1, 2),)),
    ]
    request: SearchRequest[None] = SearchRequest(
        lambda ids_R, cache: torch.zeros(len(ids_R), 14),
        None,  # type: ignore[arg-type]
        ControlIds(pad=0, bos=8, eos=EOS, unk=None),
        torch.tensor([20] * 3),
        DecodeConfig(beam_size=2, search="beam"),
        constraints=sentences,
        continuing_V=continuing_V,
    )
    followed = LexicalConstraints(request)
    own = torch.tensor([[0, 1]] * 3)

    def banned() -> list[list[int]]:
        log_p_RV = torch.zeros(followed.state_BN.numel(), 14)  # two rows of the output layer more than there are tokens
        followed.before(log_p_RV, 1)
        return [[i for i, value in enumerate(row) if value < 0] for row in log_p_RV.tolist()]

    assert banned() == [[]] * 6
    followed.after(own, torch.tensor([[1, 2]] * 3))
    assert banned() == [[]] * 6
    followed.after(own, torch.tensor([[2, 1]] * 3))
    assert banned() == [[5, 11], [], [], [], [], []]
    followed.after(own, torch.tensor([[3, 2]] * 3))
    assert banned() == [[], [5, 11], [], [], [], []]
    followed.select(torch.tensor([2, 0]))
    followed.after(own[:2], torch.tensor([[3, 3]] * 2))
    assert banned() == [[]] * 4
