"""What our trees find is what arctic-inference's find, with less work."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from arctic_inference.suffix_decoding import SuffixDecodingCache

from vllm_ascend_spec.methods.suffix import trees
from vllm_ascend_spec.methods.suffix.trees import PIECE, Trees

DEPTH, LONGEST, FACTOR, LEAST = 12, 4, 1.0, 0.1
OTHER = list(range(100, 100 + 3 * PIECE))


def text(rng: random.Random, num_words: int) -> list[int]:
    """Words that return, and some tokens between them that do not."""
    words = [[10 * word + place for place in range(3 + word % 4)] for word in range(8)]
    tokens: list[int] = []
    for _ in range(num_words):
        tokens += rng.choice(words) if rng.random() < 0.8 else [rng.randrange(500)]
    return tokens


def both_drafts(stock: SuffixDecodingCache, ours: Trees, seed: int) -> Iterator[tuple]:
    """Let requests come, write side by side and go; yield the drafts of both after each step."""
    rng = random.Random(seed)
    for number in range(6):
        names = [f"{number}{side}" for side in "abc"]
        texts = {name: text(rng, 12) for name in names}
        for name in names:
            for cache in (stock, ours):
                cache.start_request(name, texts[name])
        for _ in range(12):
            for name in names:
                new = text(rng, 1)[: rng.randint(1, 4)]
                texts[name] += new
                for cache in (stock, ours):
                    cache.add_active_response(name, new)
            for name in names:
                context = texts[name][-DEPTH:]
                theirs = stock.speculate(name, context, LONGEST, FACTOR, 0.0, LEAST)
                yield theirs, ours.look_up(name, context, LONGEST, FACTOR, LEAST)
        for name in names:
            for cache in (stock, ours):
                cache.stop_request(name)


@pytest.mark.parametrize("num_cached", [-1, 0, 2, 4])
@pytest.mark.parametrize("seed", range(4))
def test_nothing_delayed_every_draft_is_that_of_the_library(
    seed: int, num_cached: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the common tree is not asked, it has no better draft."""
    monkeypatch.setattr(trees, "PIECE", 1)
    stock, ours = SuffixDecodingCache(DEPTH, num_cached), Trees(DEPTH, num_cached)
    lengths = set()
    for theirs, found in both_drafts(stock, ours, seed):
        assert found.token_ids == theirs.token_ids
        assert found.score == theirs.score
        assert found.match_len == theirs.match_len
        lengths.add(len(found.token_ids))
    assert lengths == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("seed", range(4))
def test_delayed_few_drafts_differ(seed: int) -> None:
    stock, ours = SuffixDecodingCache(DEPTH, -1), Trees(DEPTH, -1)
    pairs = [
        (theirs.token_ids, found.token_ids) for theirs, found in both_drafts(stock, ours, seed)
    ]
    assert 0 < sum(one != other for one, other in pairs) < 0.25 * len(pairs)
    lengths = [sum(map(len, drafts)) for drafts in zip(*pairs, strict=True)]
    assert lengths[1] > 0.95 * lengths[0]


def found_by_another(cache: Trees, after: int) -> list[int]:
    """Return what request "b" drafts after that place of the other's text."""
    context = [99, *OTHER[after - 3 : after]]  # a match is shorter than the context
    return cache.look_up("b", context, LONGEST, FACTOR, LEAST).token_ids


def test_other_requests_see_an_answer_piece_by_piece() -> None:
    cache = Trees(DEPTH, -1)
    for name in "ab":
        cache.start_request(name, [1])
    cache.add_active_response("a", OTHER[: PIECE - 1])
    assert found_by_another(cache, 5) == []
    cache.add_active_response("a", OTHER[PIECE - 1 : PIECE])
    assert found_by_another(cache, 5) == OTHER[5:8]
    cache.add_active_response("a", OTHER[PIECE : PIECE + 5])
    assert found_by_another(cache, PIECE + 2) == []
    cache.stop_request("a")
    assert found_by_another(cache, PIECE + 2) == OTHER[PIECE + 2 : PIECE + 5]


def test_a_new_request_sees_all() -> None:
    cache = Trees(DEPTH, -1)
    cache.start_request("a", [1])
    cache.add_active_response("a", OTHER[:8])
    cache.start_request("b", [2])
    assert found_by_another(cache, 5) == OTHER[5:8]


def test_an_answer_that_left_the_memory_does_not_come_back() -> None:
    cache = Trees(DEPTH, 1)
    cache.start_request("a", [1])
    cache.add_active_response("a", OTHER[:4])
    cache.start_request("b", [2])
    cache.add_active_response("a", OTHER[4 : 2 * PIECE])
    cache.stop_request("a")
    assert set(cache.cached_requests) == {"b"}
    assert found_by_another(cache, 8) == []


def test_forgotten_answers_are_not_found_and_running_requests_draft_on() -> None:
    cache = Trees(DEPTH, -1)
    cache.start_request("a", [1])
    cache.add_active_response("a", OTHER[:PIECE])
    cache.start_request("b", [2])
    assert found_by_another(cache, 5) != []
    cache.forget()
    assert found_by_another(cache, 5) == []
    cache.add_active_response("a", OTHER[:5])
    assert cache.look_up("a", [99, *OTHER[:5]], LONGEST, FACTOR, LEAST).token_ids != []
    cache.stop_request("a")
    assert not cache.cached_requests
