"""Trees of what followed an n-gram before, beside a plain search and vLLM's own."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from vllm.v1.spec_decode import ngram_proposer as stock

from vllm_ascend_spec.methods.ngram.trie import MOST_MATCHES, continuations, tree_of


def searched(tokens: list[int], min_n: int, max_n: int, longest: int) -> list[list[int]]:
    """Return the same by comparing every place."""
    for n in range(min(max_n, len(tokens) - 1), min_n - 1, -1):
        ends = [end for end in range(n, len(tokens)) if tokens[end - n : end] == tokens[-n:]]
        if ends:
            return [tokens[end : end + longest] for end in ends[::-1][:MOST_MATCHES]]
    return []


TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=40)


@given(tokens=TEXTS, min_n=st.integers(1, 3), further=st.integers(0, 3), longest=st.integers(1, 6))
def test_all_that_followed_the_longest_n_gram(
    tokens: list[int], min_n: int, further: int, longest: int
) -> None:
    max_n = min_n + further
    found = continuations(np.array(tokens), min_n, max_n, longest)
    assert found == searched(tokens, min_n, max_n, longest)
    # vLLM's is one of them.
    theirs = stock._find_longest_matched_ngram_and_propose_tokens(
        origin_tokens=np.array(tokens, dtype=np.int32),
        min_ngram=min_n,
        max_ngram=max_n,
        max_model_len=1000,
        k=longest,
    ).tolist()
    assert (theirs in found) if theirs else not found


@given(texts=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4)), most=st.integers(1, 8))
def test_a_tree_of_the_most_frequent_beginnings(texts: list[list[int]], most: int) -> None:
    tokens, parents = tree_of(texts, most)
    paths = []
    for token, parent in zip(tokens, parents, strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    assert len(set(paths)) == len(paths)
    beginnings = {tuple(text[:end]) for text in texts for end in range(1, len(text) + 1)}
    assert set(paths) <= beginnings
    assert len(paths) == min(most, len(beginnings))

    def count(path: tuple[int, ...]) -> int:
        return sum(tuple(text[: len(path)]) == path for text in texts)

    left = beginnings - set(paths)
    if paths and left:
        assert max(map(count, left)) <= min(map(count, paths))


def test_the_principal_chain_is_the_most_frequent_one() -> None:
    tokens, parents = tree_of([[5, 6, 7], [8, 9], [5, 6], [8]], 4)
    assert tokens in ([5, 6, 8, 9], [5, 6, 7, 8])
    assert parents[:2] == [-1, 0]
