"""A request's result depends neither on the number of threads nor on its neighbours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.ops.batches import RULES
from tests.ops.cases import Numbers, make_case, one_request
from tests.ops.cpu.marks import requires_library
from vllm_ascend_spec.ops import grammar_mask, verify_greedy, verify_sample

THREADS = (1, 2, 4, 8)
GREEDY_ARGUMENTS = ("logits", "draft_token_ids", "cu_num_draft_tokens", "max_draft_len")

pytestmark = requires_library


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def many_requests(seed: int, rule: str, **fixed: object) -> dict[str, object]:
    """Return a case of 60 to 70 requests."""
    numbers = Numbers(seed)
    while True:
        case = make_case(numbers, 5000, 70, 4, {"rule": rule, "vocab_size": 3001, **fixed})
        if case["cu_num_draft_tokens"].shape[0] >= 60:
            return case


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("drafts", ["one-hot", "near"])
def test_results_do_not_depend_on_the_number_of_threads(rule: str, drafts: str) -> None:
    case = many_requests(1, rule, drafts=drafts, filters=("top_k", "top_p", "min_p"))
    results = []
    for count in THREADS:
        torch.set_num_threads(count)
        greedy = verify_greedy(*(case[name] for name in GREEDY_ARGUMENTS), backend="cpu")
        results.append((*greedy, *verify_sample(**case, backend="cpu")))
    for result in results[1:]:
        assert all(map(torch.equal, result, results[0]))


@pytest.mark.parametrize("rule", RULES)
def test_results_do_not_depend_on_the_batch(rule: str) -> None:
    case = many_requests(2, rule, drafts="near")
    torch.set_num_threads(4)
    tokens, counts = verify_sample(**case, backend="cpu")
    for index in range(counts.shape[0]):
        alone = verify_sample(**one_request(case, index), backend="cpu")
        assert torch.equal(alone[0][0], tokens[index])
        assert int(alone[1]) == int(counts[index])


def test_masks_do_not_depend_on_the_number_of_threads() -> None:
    logits = torch.randn(64, 3001)
    bitmask = torch.randint(-(2**31), 2**31, (40, 94)).int()
    rows = torch.randperm(64)[:40].int()
    masked = []
    for count in THREADS:
        torch.set_num_threads(count)
        masked.append(logits.clone())
        grammar_mask(masked[-1], bitmask, rows, backend="cpu")
    assert all(torch.equal(result, masked[0]) for result in masked[1:])
