"""Every argument that cannot be used is refused with a ``ValueError`` that names it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.ops.batches import (
    RULES,
    SAMPLE_BACKENDS,
    Arguments,
    float64,
    int32,
    make_drafts,
    make_sampled,
)
from tests.ops.parity import judge
from vllm_ascend_spec.errors import AscendSpecError, BackendUnavailableError
from vllm_ascend_spec.ops import grammar_mask, verify_greedy, verify_sample
from vllm_ascend_spec.ops.checks import FEW

NAN, INF = float("nan"), float("inf")


@pytest.fixture
def greedy() -> Arguments:
    """Right arguments of ``verify_greedy``: two requests with two drafts and one, vocabulary 4."""
    return make_drafts([2, 1], 4, seed=0)


@pytest.fixture
def sampled() -> Arguments:
    """Right arguments of ``verify_sample`` for the same shapes."""
    return make_sampled([2, 1], 4, seed=0, with_draft_probs=True)


BOTH: list[tuple[str, Any]] = [
    ("logits", torch.zeros(5, 4, dtype=torch.float64)),
    ("logits", torch.zeros(5, 4, dtype=torch.int32)),
    ("logits", torch.zeros(20)),
    ("logits", torch.zeros(1, 5, 4)),
    ("logits", torch.zeros(4, 4)),
    ("logits", torch.zeros(6, 4)),
    ("logits", torch.zeros(5, 0)),
    ("logits", torch.zeros(4, 5).T),
    ("logits", torch.zeros(5, 8)[:, ::2]),
    ("draft_token_ids", torch.zeros(3, dtype=torch.int64)),
    ("draft_token_ids", torch.zeros(3)),
    ("draft_token_ids", torch.zeros(3, 1, dtype=torch.int32)),
    ("draft_token_ids", torch.tensor(1, dtype=torch.int32)),
    ("draft_token_ids", torch.zeros(3, dtype=torch.int32, device="meta")),
    ("draft_token_ids", int32([0, 1, 4])),
    ("draft_token_ids", int32([0, -2, 1])),
    ("draft_token_ids", int32([0, 1, 2**31 - 1])),
    ("draft_token_ids", int32([-(2**31), 1, 2])),
    ("cu_num_draft_tokens", torch.tensor([2, 3])),
    ("cu_num_draft_tokens", int32([2, 3])[:, None]),
    ("cu_num_draft_tokens", torch.tensor(3, dtype=torch.int32)),
    ("cu_num_draft_tokens", torch.zeros(2, dtype=torch.int32, device="meta")),
    ("cu_num_draft_tokens", int32([2, 1])),
    ("cu_num_draft_tokens", int32([-1, 3])),
    ("cu_num_draft_tokens", int32([1, 2])),
    ("cu_num_draft_tokens", int32([2, 4])),
    ("cu_num_draft_tokens", int32([0, 0])),
    ("max_draft_len", 1),
    ("max_draft_len", -1),
]

SAMPLE: list[tuple[str, Any]] = [
    ("temperature", torch.ones(2, dtype=torch.float64)),
    ("temperature", torch.ones(3)),
    ("temperature", torch.ones(2, 1)),
    ("temperature", torch.ones(2, device="meta")),
    ("temperature", torch.tensor([1.0, -0.1])),
    ("temperature", torch.tensor([NAN, 1.0])),
    ("temperature", torch.tensor([INF, 1.0])),
    ("temperature", torch.tensor([-INF, 1.0])),
    ("temperature", torch.tensor(1.0)),
    ("top_k", torch.ones(2, dtype=torch.int64)),
    ("top_k", torch.ones(1, dtype=torch.int32)),
    ("top_k", torch.ones(2, dtype=torch.int32, device="meta")),
    ("top_p", torch.ones(2, dtype=torch.float64)),
    ("top_p", torch.ones(3)),
    ("top_p", torch.ones(2, device="meta")),
    ("top_p", torch.tensor([0.0, 1.0])),
    ("top_p", torch.tensor([1.0, 1.01])),
    ("top_p", torch.tensor([NAN, 1.0])),
    ("top_p", torch.tensor([-0.5, 1.0])),
    ("top_p", torch.tensor([1.0, INF])),
    ("min_p", torch.ones(2, dtype=torch.float16)),
    ("min_p", torch.ones(3)),
    ("min_p", torch.ones(2, device="meta")),
    ("min_p", torch.tensor([-0.1, 0.5])),
    ("min_p", torch.tensor([0.5, 1.1])),
    ("min_p", torch.tensor([NAN, 0.5])),
    ("draft_probs", torch.ones(3, 4, dtype=torch.float64)),
    ("draft_probs", torch.ones(2, 4)),
    ("draft_probs", torch.ones(3, 5)),
    ("draft_probs", torch.ones(12)),
    ("draft_probs", torch.ones(3, 4, dtype=torch.bfloat16)),
    ("draft_probs", torch.ones(3, 4, device="meta")),
    ("accept_uniform", torch.zeros(3)),
    ("accept_uniform", float64([0.0] * 5)),
    ("accept_uniform", torch.zeros(3, dtype=torch.float64, device="meta")),
    ("accept_uniform", float64([0.5, 1.0, 0.5])),
    ("accept_uniform", float64([0.5, -0.1, 0.5])),
    ("accept_uniform", float64([0.5, NAN, 0.5])),
    ("accept_uniform", float64([0.5, INF, 0.5])),
    ("sample_uniform", torch.zeros(2)),
    ("sample_uniform", float64([0.0] * 3)),
    ("sample_uniform", torch.zeros(2, dtype=torch.float64, device="meta")),
    ("sample_uniform", float64([0.5, 1.0])),
    ("sample_uniform", float64([-0.5, 0.5])),
    ("sample_uniform", float64([NAN, 0.5])),
    ("rule", "tokens"),
    ("rule", ""),
    ("rule", "Block"),
    ("rule", None),
]

# Values that are checked, in a batch so large that they are not looked at one by one.
MANY = 100
IN_MANY: list[tuple[str, float]] = [
    ("draft_token_ids", 4),
    ("draft_token_ids", -2),
    *[("temperature", value) for value in (-0.1, NAN, INF, -INF)],
    *[("top_p", value) for value in (0.0, -0.1, 1.01, NAN)],
    *[("min_p", value) for value in (-0.1, 1.01, NAN)],
    *[("accept_uniform", value) for value in (-0.1, 1.0, NAN, INF)],
    *[("sample_uniform", value) for value in (-0.1, 1.0, NAN, INF)],
]


def describe(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    content = "" if value.is_meta or value.numel() > 3 else str(value.tolist())
    return f"{value.device}-{str(value.dtype)[6:]}{list(value.shape)}{content}"


def test_the_arguments_used_here_are_right(greedy: Arguments, sampled: Arguments) -> None:
    verify_greedy(**greedy)
    verify_sample(**sampled)


@pytest.mark.parametrize(("name", "value"), BOTH, ids=describe)
def test_verify_greedy_names_the_wrong_argument(greedy: Arguments, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name}: "):
        verify_greedy(**{**greedy, name: value})


@pytest.mark.parametrize(("name", "value"), [*BOTH, *SAMPLE], ids=describe)
def test_verify_sample_names_the_wrong_argument(sampled: Arguments, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name}: "):
        verify_sample(**{**sampled, name: value})


@pytest.mark.parametrize("place", [0, 57, MANY - 1])
@pytest.mark.parametrize(("name", "value"), IN_MANY)
def test_one_wrong_value_of_many_is_shown(name: str, value: float, place: int) -> None:
    arguments = make_sampled([1] * MANY, 4, seed=0, with_draft_probs=True)
    verify_sample(**arguments)
    arguments[name][place] = value
    shown = str(arguments[name][place].item()).replace("+", r"\+")
    with pytest.raises(ValueError, match=f"^{name}: {shown} is (not|neither)"):
        verify_sample(**arguments)


def test_wrong_counts_of_many_are_shown() -> None:
    arguments = make_sampled([1] * MANY, 4, seed=0)
    ends = arguments["cu_num_draft_tokens"]
    ends[57] = 59
    with pytest.raises(ValueError, match=r"^max_draft_len: 1 is less than the 2 drafts"):
        verify_sample(**arguments)
    ends[58] = 58
    with pytest.raises(ValueError, match=r"^cu_num_draft_tokens: not monotonic: 58 follows 59"):
        verify_sample(**{**arguments, "max_draft_len": 2})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", [0.0, 3e38]),
        ("temperature", [-0.0, 1e-45]),
        ("top_k", [-(2**31), 2**31 - 1]),
        ("top_p", [1e-45, 1.0]),
        ("min_p", [0.0, 1.0]),
        ("accept_uniform", [0.0, -0.0, 1 - 2**-53]),
        ("sample_uniform", [0.0, 1 - 2**-53]),
    ],
)
@pytest.mark.parametrize("backend", SAMPLE_BACKENDS)
@pytest.mark.parametrize("rule", RULES)
def test_values_at_the_ends_are_right(
    sampled: Arguments, backend: str, rule: str, name: str, value: list[float]
) -> None:
    edge = torch.tensor(value, dtype=sampled[name].dtype)
    arguments = {**sampled, name: edge, "rule": rule}
    assert judge(arguments, verify_sample(**arguments, backend=backend)).is_right


def test_filters_and_draft_probs_may_be_absent(sampled: Arguments) -> None:
    for name in ("top_k", "top_p", "min_p", "draft_probs"):
        verify_sample(**{**sampled, name: None})


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("logits", torch.zeros(5, 4, dtype=torch.float64), "torch.float64"),
        ("logits", torch.zeros(4, 4), r"\(4, 4\), expected \(5, 4\)"),
        ("draft_token_ids", int32([0, 1, 4]), "4 is neither -1 nor in \\[0, 4\\)"),
        ("cu_num_draft_tokens", int32([2, 1]), "1 follows 2"),
        ("max_draft_len", 1, "1 is less than the 2 drafts"),
        ("top_p", torch.tensor([0.0, 1.0]), r"0.0 is not in \(0, 1\]"),
        ("min_p", torch.ones(2, device="meta"), "on meta, the logits are on cpu"),
        ("rule", "tokens", "'tokens' is not one of .*'token'"),
    ],
)
def test_message_shows_the_value_and_what_is_valid(
    sampled: Arguments, name: str, value: Any, shown: str
) -> None:
    with pytest.raises(ValueError, match=shown):
        verify_sample(**{**sampled, name: value})


def test_unknown_backend_raises_and_lists_those_there_are(
    greedy: Arguments, sampled: Arguments
) -> None:
    for call in (
        lambda: verify_greedy(**greedy, backend="abacus"),
        lambda: verify_sample(**sampled, backend="abacus"),
    ):
        with pytest.raises(BackendUnavailableError, match=r"'abacus'.*reference") as raised:
            call()
        assert isinstance(raised.value, AscendSpecError)
        assert isinstance(raised.value, RuntimeError)


# Of more values than a loop looks at: the first, the last, and one whose neighbours are right.
@pytest.mark.parametrize("place", [0, 17, FEW, 2 * FEW - 1])
@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("draft_token_ids", 4, r"4 is neither -1 nor in \[0, 4\)"),
        ("draft_token_ids", -2, r"-2 is neither -1 nor in \[0, 4\)"),
        ("temperature", NAN, "nan is not a number of 0 or more"),
        ("temperature", INF, "inf is not a number of 0 or more"),
        ("top_p", 0.0, r"0.0 is not in \(0, 1\]"),
        ("top_p", NAN, r"nan is not in \(0, 1\]"),
        ("min_p", 1.5, r"1.5 is not in \[0, 1\]"),
        ("min_p", -INF, r"-inf is not in \[0, 1\]"),
        ("accept_uniform", 1.0, r"1.0 is not in \[0, 1\)"),
        ("sample_uniform", NAN, r"nan is not in \[0, 1\)"),
    ],
)
def test_one_wrong_value_of_many_is_found(name: str, value: float, shown: str, place: int) -> None:
    arguments = make_sampled([1] * (2 * FEW), 4, seed=0)
    verify_sample(**arguments)
    arguments[name][place] = value
    with pytest.raises(ValueError, match=f"^{name}: {shown}$"):
        verify_sample(**arguments)


def test_ends_of_the_ranges_are_valid() -> None:
    arguments = make_sampled([1] * (2 * FEW), 4, seed=0)
    ends = {
        "draft_token_ids": (-1, 3),
        "temperature": (0.0, torch.finfo(torch.float32).max),
        "top_p": (1e-45, 1.0),
        "min_p": (0.0, 1.0),
        "accept_uniform": (0.0, 1 - 2**-53),
        "sample_uniform": (0.0, 1 - 2**-53),
    }
    for name, (least, most) in ends.items():
        arguments[name][::2] = least
        arguments[name][1::2] = most
    verify_sample(**arguments)


def test_vocabulary_must_fit_int32() -> None:
    logits = torch.empty(1, 2**31, dtype=torch.bfloat16, device="meta")
    none = torch.empty(0, dtype=torch.int32, device="meta")
    with pytest.raises(ValueError, match=r"^logits: a vocabulary of 2147483648, valid: 1 to 2147"):
        verify_greedy(logits, none, torch.empty(1, dtype=torch.int32, device="meta"), 0)


def test_rows_that_are_masked_must_not_overlap() -> None:
    logits = torch.zeros(8).expand(2, 8)
    with pytest.raises(ValueError, match=r"^logits: the rows overlap"):
        grammar_mask(logits, int32([0])[None], int32([0]))
