"""The automaton that finds the terms in a text (Aho and Corasick 1975), in tables that grow as the terms' tokens do."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

TermRange = tuple[int, int]  # of the terms in lexicographic order: the first, and the one behind the last


@dataclass(frozen=True)
class Automaton:
    """A state is a prefix of a term, and stands for every text whose longest end that is such a prefix it is.

    State 0 is the empty prefix. A chain of links leads to ever shorter ends of a text, and to state 0 at last; it
    leaves out states that add nothing to those before them.
    """

    terms: list[tuple[int, ...]]  # in lexicographic order, each once: those that begin with a prefix are a range
    edges: dict[tuple[int, int], int]  # state and token → the prefix that is longer by this token
    depth_Q: list[int]  # tokens of each prefix
    retry_Q: list[int]  # where to look for an edge that a state lacks
    term_Q: list[int]  # the term that a state is, -1 where it is none
    found_Q: list[int]  # the longest end that is a term, the text itself included; 0: none
    next_found_Q: list[int]  # the next shorter one
    longer_Q: list[TermRange]  # the terms that begin with a prefix and are longer
    begun_Q: list[int]  # the longest end that a longer term begins with
    next_begun_Q: list[int]  # a shorter one, with which other terms begin

    @property
    def most_retries(self) -> int:
        return longest_chain(self.retry_Q, self.retry_Q)

    @property
    def most_found(self) -> int:
        return longest_chain(self.found_Q, self.next_found_Q)

    @property
    def most_begun(self) -> int:
        return longest_chain(self.begun_Q, self.next_begun_Q)

    def counts(self, ids: Sequence[int]) -> list[int]:
        """How often each term occurs in `ids`."""
        counts, state = [0] * len(self.terms), 0
        for token in ids:
            while state and (state, token) not in self.edges:
                state = self.retry_Q[state]
            state = self.edges.get((state, token), 0)
            found = self.found_Q[state]
            while found:
                counts[self.term_Q[found]] += 1
                found = self.next_found_Q[found]
        return counts


def automaton(terms: Sequence[tuple[int, ...]]) -> Automaton:
    """The automaton of different terms; their order does not matter."""
    terms = sorted(terms)
    edges: dict[tuple[int, int], int] = {}
    reached: list[tuple[int, int]] = [(0, -1)]  # by which edge
    depth_Q, term_Q, first_Q, end_Q = [0], [-1], [0], [len(terms)]
    for j, term in enumerate(terms):
        q = 0
        for token in term:
            if (edge := (q, token)) not in edges:
                edges[edge] = len(reached)
                reached.append(edge)
                depth_Q.append(depth_Q[q] + 1)
                term_Q.append(-1)
                first_Q.append(j)
                end_Q.append(j)
            q = edges[edge]
            end_Q[q] = j + 1
        term_Q[q] = j
    longer_Q = [(first + (term >= 0), end) for first, end, term in zip(first_Q, end_Q, term_Q, strict=True)]
    tokens_Q: list[list[int]] = [[] for _ in depth_Q]
    for q, token in reached[1:]:
        tokens_Q[q].append(token)

    suffix_Q, retry_Q, found_Q, next_found_Q, begun_Q, next_begun_Q = ([0] * len(depth_Q) for _ in range(6))
    for q in by_depth(depth_Q)[1:]:
        parent, token = reached[q]
        if parent:
            shorter = suffix_Q[parent]
            while shorter and (shorter, token) not in edges:
                shorter = suffix_Q[shorter]
            suffix_Q[q] = edges.get((shorter, token), 0)
        s = suffix_Q[q]
        # A shorter end that has no edge beside those of the longer one is left out.
        adds_edges = len(tokens_Q[s]) > len(tokens_Q[q]) or any((q, other) not in edges for other in tokens_Q[s])
        retry_Q[q] = s if adds_edges else retry_Q[s]
        next_found_Q[q] = found_Q[s]
        found_Q[q] = q if term_Q[q] >= 0 else found_Q[s]
        next_begun_Q[q] = begun_Q[s]
        if begun_Q[s] and _is_within(longer_Q[begun_Q[s]], longer_Q[q]):
            next_begun_Q[q] = next_begun_Q[begun_Q[s]]
        begun_Q[q] = q if longer_Q[q][0] < longer_Q[q][1] else begun_Q[s]
    return Automaton(terms, edges, depth_Q, retry_Q, term_Q, found_Q, next_found_Q, longer_Q, begun_Q, next_begun_Q)


def by_depth(depth_Q: Sequence[int]) -> list[int]:
    """States, those of the shortest prefixes first."""
    counts = [0] * (max(depth_Q) + 2)
    for depth in depth_Q:
        counts[depth + 1] += 1
    place = list(accumulate(counts))
    order = [0] * len(depth_Q)
    for q, depth in enumerate(depth_Q):
        order[place[depth]] = q
        place[depth] += 1
    return order


def longest_chain(first_Q: Sequence[int], next_Q: Sequence[int]) -> int:
    """How many states other than 0 a chain has at most; the links of a state lead to states of shorter prefixes."""
    length_Q: dict[int, int] = {0: 0}
    for q in set(first_Q):
        chain = []
        while q not in length_Q:
            chain.append(q)
            q = next_Q[q]
        for n, state in enumerate(reversed(chain), start=length_Q[q] + 1):
            length_Q[state] = n
    return max(length_Q.values())


def _is_within(inner: TermRange, outer: TermRange) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]
