"""What the suffix trees draft, for whom, and what they keep."""

from __future__ import annotations

import pytest

from tests.methods.engine import MAX_LENGTH
from tests.methods.suffix.followed import SEEDED, Requests

PHRASE = [3, 4, 5, 6, 7, 8, 9, 10]


@pytest.fixture
def requests() -> Requests:
    return Requests()


def test_drafts_are_what_followed_in_the_prompt_and_as_long_as_the_match(
    requests: Requests,
) -> None:
    requests.start("a", [*PHRASE, 1, 3, 4])
    assert requests.draft(a=[5]) == [[6, 7, 8]]
    assert requests.draft(a=[6]) == [[7, 8, 9, 10]]
    assert requests.draft(a=[7, 8]) == [[9, 10, 1, 3, 4]]
    assert requests.draft(a=[30]) == [[]]


def test_the_number_of_drafts_depends_on_the_text(requests: Requests) -> None:
    requests.start("a", [*PHRASE, 1, 3, 4])
    requests.start("b", [*PHRASE, 1])
    requests.start("c", [11, 12])
    requests.start("d", PHRASE)
    assert requests.draft(a=[5], b=[3], c=[13], d=[]) == [[6, 7, 8], [4], [], []]


def test_k_may_change_from_step_to_step(requests: Requests) -> None:
    """Nothing is missed in a step without drafts."""
    requests.start("a", [*PHRASE, 1, 3])
    assert requests.draft(1, a=[4]) == [[5]]
    assert requests.draft(0, a=[5]) == [[]]
    assert requests.draft(3, a=[6]) == [[7, 8, 9]]


def test_tokens_that_the_batch_lacks_are_taken_from_the_step(requests: Requests) -> None:
    requests.start("a", [*PHRASE, 1, 3, 4])
    assert requests.draft(a=[5], in_batch=False) == [[6, 7, 8]]
    assert requests.draft(a=[6, 7], in_batch=False) == [[8, 9, 10, 1, 3]]


def test_steps_that_nothing_drafted_in_are_dummy_for(requests: Requests) -> None:
    requests.start("a", [1, 2])
    requests.draft(a=[3])
    requests.texts["a"] += [4, 5, 6]
    requests.draft(a=[20])
    assert requests.draft(a=[3, 4]) == [[5, 6]]


def test_no_draft_leaves_the_context(requests: Requests) -> None:
    """The last token is the target's own."""
    requests.start("a", [*PHRASE] * 7)
    assert requests.draft(a=PHRASE[:4]) == [[7, 8, 9]]  # 60 of 64 tokens
    assert requests.draft(a=[7, 8, 9]) == [[]]
    assert len(requests.texts["a"]) == MAX_LENGTH - 1


def test_answers_are_remembered_across_requests(requests: Requests) -> None:
    requests.start("a", [1, 2])
    requests.draft(a=PHRASE)
    requests.finish("a")
    requests.start("b", [20, 21])
    assert requests.draft(b=[3, 4, 5]) == [[6, 7, 8]]


def test_prompts_are_not(requests: Requests) -> None:
    requests.start("a", PHRASE)
    requests.draft(a=[20])
    requests.start("b", [21])
    assert requests.draft(b=[3, 4, 5]) == [[]]


def test_with_no_cached_requests_there_is_only_the_requests_own_text() -> None:
    requests = Requests(suffix_decoding_max_cached_requests=0)
    requests.start("a", [1, 2])
    requests.draft(a=PHRASE)
    requests.start("b", [20, 21])
    assert requests.draft(b=[3, 4, 5]) == [[]]
    assert requests.draft(b=[3, 4]) == [[5, 3]]
    assert len(requests.drafter.suffix_cache.cached_requests) == 0


def test_the_memory_is_bounded_and_the_oldest_answer_goes_first() -> None:
    requests = Requests(suffix_decoding_max_cached_requests=3)
    cache = requests.drafter.suffix_cache
    for number in range(20):
        req_id = f"r{number}"
        requests.start(req_id, [1, 2])
        requests.draft(**{req_id: [10 + number, 11 + number, 30 + number % 7]})
        if number % 2:
            requests.finish(req_id)
        assert len(cache.cached_requests) <= 3
    assert set(cache.cached_requests) == {"r17", "r18", "r19"}
    requests.start("new", [40])
    assert requests.draft(new=[15, 16]) == [[]]
    assert requests.draft(new=[28, 29]) == [[30 + 18 % 7]]


def test_memory_use_is_bounded_however_many_requests_come() -> None:
    """Texts differ, so nothing but leaving the tree keeps it from growing."""
    requests = Requests(suffix_decoding_max_cached_requests=4)
    tree, sizes = requests.drafter.suffix_cache._global_tree, []
    for number in range(120):
        requests.start("a", [1])
        requests.draft(a=[(number * step) % 47 for step in range(3, 33)])
        requests.finish("a")
        sizes.append(tree.estimate_memory())
    assert max(sizes[20:]) < 2 * max(sizes[:20])
    assert requests.drafter.followed.keys() == {"a"}


def test_aborted_requests_are_let_go_and_others_draft_on(requests: Requests) -> None:
    for req_id in ("a", "b"):
        requests.start(req_id, [*PHRASE, 1, 3, 4])
    requests.draft(a=[5], b=[5])
    requests.finish("a")
    assert requests.draft(b=[6]) == [[7, 8, 9, 10]]
    assert requests.drafter.followed.keys() == {"b"}
    assert set(requests.drafter.suffix_cache.active_requests) == {"b"}


def test_a_request_of_an_aborted_ones_id_is_another(requests: Requests) -> None:
    """Also where it comes in the very next step: vLLM hands over the same id in the same batch."""
    requests.start("a", [*PHRASE, 1, 3, 4])
    requests.draft(a=[5])
    requests.finish("a")
    requests.start("a", [20, 21, 22, 20])
    assert requests.draft(a=[21]) == [[22, 20]]
    assert requests.draft(a=[3, 4]) == [[]]
    assert set(requests.drafter.suffix_cache.cached_requests) == {"a"}


def test_a_request_that_was_thrown_out_goes_on_where_it_was(requests: Requests) -> None:
    """Preempted, or not in a step's batch: what it wrote is not forgotten."""
    requests.start("a", [1, 2])
    requests.start("b", [30, 31])
    requests.draft(a=PHRASE, b=[32])
    requests.draft(b=[33])
    assert requests.drafter.followed.keys() == {"a", "b"}
    assert requests.draft(a=[3, 4, 5], b=[34]) == [[6, 7, 8], []]


def test_requests_with_a_seed_share_the_trees(requests: Requests) -> None:
    """Their text does not depend on their drafts."""
    requests.start("a", [1, 2])
    requests.draft(a=PHRASE)
    requests.start("s", [20, 21], SEEDED)
    assert requests.draft(s=[3, 4, 5]) == [[6, 7, 8]]
    requests.draft(s=[40, 41, 42])
    requests.start("b", [22])
    assert requests.draft(b=[40, 41]) == [[42]]
    requests.finish("a", "s")
    requests.start("t", [23], SEEDED)
    assert requests.draft(t=[40, 41]) == [[42]]
    requests.finish("b", "t")
    requests.draft()
    assert not requests.drafter.followed
    assert not requests.drafter.suffix_cache.active_requests


def test_rare_continuations_are_cut_off() -> None:
    """Of three that followed, one is likelier than one in two."""
    texts = [[5, 6, 7], [5, 6, 7], [5, 6, 8]]
    lengths = {}
    for least in (0.1, 0.7):
        requests = Requests(suffix_decoding_min_token_prob=least)
        for number, text in enumerate(texts):
            requests.start(f"r{number}", [1])
            requests.draft(**{f"r{number}": [*text, 20 + number]})
        requests.start("a", [2])
        lengths[least] = len(requests.draft(a=[5, 6])[0])
    assert lengths == {0.1: 2, 0.7: 0}
