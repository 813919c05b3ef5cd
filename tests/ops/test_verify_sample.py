"""Contract of ``verify_sample``; that it is lossless is shown in ``test_enumeration.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ops import batches, oracle
from tests.ops.batches import (
    RULES,
    SAMPLE_BACKENDS,
    Arguments,
    as_lists,
    float64,
    int32,
    make_sampled,
)
from tests.ops.parity import Result, assert_right, judge
from vllm_ascend_spec.ops import verify_greedy, verify_sample

NAN, INF, NEG_INF = float("nan"), float("inf"), float("-inf")
JUST_BELOW_ONE = 1 - 2**-53


@dataclass(frozen=True)
class Variant:
    """The op with one backend and one rule."""

    backend: str
    rule: str

    def run(self, arguments: Arguments) -> Result:
        return verify_sample(**arguments, rule=self.rule, backend=self.backend)

    def output_of(self, arguments: Arguments) -> list[int]:
        """Return the tokens of the only request, without padding."""
        (tokens,), (count,) = as_lists(self.run(arguments))
        assert tokens[count:] == [-1] * (len(tokens) - count)
        return tokens[:count]

    def assert_right(self, arguments: Arguments) -> None:
        """Compare with the oracle; for backends in float32, up to rounding."""
        arguments = {**arguments, "rule": self.rule}
        result = verify_sample(**arguments, backend=self.backend)
        if self.backend == "reference":
            assert as_lists(result) == oracle.expected(arguments)
        else:
            assert_right([judge(arguments, result)], most_ties=1)


@pytest.fixture(scope="module", params=SAMPLE_BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module", params=RULES)
def op(request: pytest.FixtureRequest, backend: str) -> Variant:
    return Variant(backend, request.param)


@settings(max_examples=200)
@given(
    lengths=batches.lengths,
    vocab=batches.vocab_sizes,
    seed=batches.seeds,
    dtype=batches.dtypes,
    filters=st.sets(st.sampled_from(["top_k", "top_p", "min_p"])).map(sorted).map(tuple),
    with_draft_probs=st.booleans(),
)
def test_equals_the_oracle(
    op: Variant,
    lengths: list[int],
    vocab: int,
    seed: int,
    dtype: torch.dtype,
    filters: tuple[str, ...],
    with_draft_probs: bool,
) -> None:
    arguments = make_sampled(
        lengths, vocab, seed, dtype=dtype, filters=filters, with_draft_probs=with_draft_probs
    )
    op.assert_right(arguments)


@pytest.mark.parametrize("vocab", [127, 128, 1000, 1003])
@pytest.mark.parametrize("with_draft_probs", [False, True])
def test_equals_the_oracle_on_vocabularies_of_odd_sizes(
    op: Variant, vocab: int, with_draft_probs: bool
) -> None:
    arguments = make_sampled([3, 0, 5], vocab, seed=vocab, with_draft_probs=with_draft_probs)
    op.assert_right(arguments)


def one_request(logits: torch.Tensor, drafts: list[int], **changes: Any) -> dict[str, Any]:
    """Return the arguments for one request whose uniforms are all one half."""
    return {
        "logits": logits,
        "draft_token_ids": int32(drafts),
        "cu_num_draft_tokens": int32([len(drafts)]),
        "max_draft_len": len(drafts),
        "temperature": torch.ones(1),
        "accept_uniform": float64([0.5] * len(drafts)),
        "sample_uniform": float64([0.5]),
        **changes,
    }


def log(*probs: float) -> list[float]:
    return torch.tensor(probs).log().tolist()


@pytest.mark.parametrize(("uniform", "output"), [(0.29, [2, 0]), (0.31, [1])])
def test_certain_draft_is_accepted_with_the_targets_probability(
    op: Variant, uniform: float, output: list[int]
) -> None:
    logits = torch.tensor([log(0.2, 0.5, 0.3), log(0.9, 0.05, 0.05)])
    arguments = one_request(logits, [2], accept_uniform=float64([uniform]))
    assert op.output_of(arguments) == output


@pytest.mark.parametrize(("uniform", "output"), [(0.49, [2, 0]), (0.51, [1])])
def test_sampled_draft_is_accepted_with_the_ratio_of_probabilities(
    op: Variant, uniform: float, output: list[int]
) -> None:
    logits = torch.tensor([log(0.2, 0.5, 0.3), log(0.9, 0.05, 0.05)])
    q = torch.tensor([[0.2, 0.2, 0.6]])
    arguments = one_request(logits, [2], accept_uniform=float64([uniform]), draft_probs=q)
    assert op.output_of(arguments) == output


def test_draft_of_minus_one_is_replaced_by_a_sample_of_the_target(op: Variant) -> None:
    logits = torch.tensor([log(0.2, 0.5, 0.3), log(0.9, 0.05, 0.05)])
    q = torch.tensor([[0.9, 0.05, 0.05]])
    for draft_probs in (None, q):
        for uniform, token in ((0.19, 0), (0.21, 1), (0.69, 1), (0.71, 2)):
            arguments = one_request(
                logits,
                [-1],
                accept_uniform=float64([0.0]),
                sample_uniform=float64([uniform]),
                draft_probs=draft_probs,
            )
            assert op.output_of(arguments) == [token]


@pytest.mark.parametrize("others", [(NAN, NAN), (0.5, 0.5), (0.0, NEG_INF), (INF, -3.0)])
@pytest.mark.parametrize("accept", [0.0, JUST_BELOW_ONE])
def test_draft_of_nan_is_replaced_by_a_sample_of_the_target(
    op: Variant, others: tuple[float, float], accept: float
) -> None:
    rows = torch.tensor([log(0.2, 0.5, 0.3), log(0.9, 0.05, 0.05)])
    expected = {0.19: 0, 0.21: 1, 0.69: 1, 0.71: 2}
    # Twelve requests: each draft with each uniform.
    uniforms = [uniform for _ in range(3) for uniform in expected]
    drafts = [draft for draft in range(3) for _ in expected]
    arguments = {
        "logits": rows.repeat(12, 1),
        "draft_token_ids": int32(drafts),
        "cu_num_draft_tokens": torch.arange(1, 13, dtype=torch.int32),
        "max_draft_len": 1,
        "temperature": torch.ones(12),
        "accept_uniform": float64([accept] * 12),
        "sample_uniform": float64(uniforms),
        "draft_probs": torch.tensor([[*others[:x], NAN, *others[x:]] for x in drafts]),
    }
    tokens, counts = as_lists(op.run(arguments))
    assert counts == [1] * 12
    assert tokens == [[expected[uniform], -1] for uniform in uniforms]


@pytest.mark.parametrize(("uniform", "output"), [(0.49, [2, 1]), (0.51, [1])])
def test_draft_of_nan_ends_the_block(op: Variant, uniform: float, output: list[int]) -> None:
    rows = [log(0.2, 0.5, 0.3), log(0.3, 0.5, 0.2), log(0.9, 0.05, 0.05), log(0.9, 0.05, 0.05)]
    arguments = one_request(
        torch.tensor(rows),
        [2, 1, 0],
        # The last draft would be accepted for certain.
        accept_uniform=float64([uniform, 0.0, 0.0]),
        draft_probs=torch.tensor([[0.2, 0.2, 0.6], [NAN] * 3, [0.9, 0.05, 0.05]]),
    )
    assert op.output_of(arguments) == output


@pytest.mark.parametrize("entry", [NAN, -0.3, -0.0, NEG_INF])
def test_nan_and_negative_entries_of_other_tokens_count_as_0(op: Variant, entry: float) -> None:
    logits = torch.tensor([log(0.2, 0.5, 0.3), log(0.9, 0.05, 0.05)])
    for uniform, token in ((0.66, 0), (0.67, 1)):
        arguments = one_request(
            logits,
            [2],
            sample_uniform=float64([uniform]),
            draft_probs=torch.tensor([[entry, 0.4, 0.9]]),
        )
        assert op.output_of(arguments) == [token]


@pytest.mark.parametrize("entry", [-0.3, -0.0, 0.0, NEG_INF, 1e-45])
def test_draft_of_no_probability_is_accepted_as_the_quotient_says(
    op: Variant, entry: float
) -> None:
    logits = torch.tensor([log(0.2, 0.5, 0.3), log(0.9, 0.05, 0.05)])
    q = torch.tensor([[0.5, 0.5, entry]])
    arguments = one_request(logits, [2], accept_uniform=float64([JUST_BELOW_ONE]), draft_probs=q)
    assert op.output_of(arguments) == [2, 0]


def test_draft_of_infinite_probability_is_rejected(op: Variant) -> None:
    logits = torch.tensor([log(0.2, 0.5, 0.3), log(0.9, 0.05, 0.05)])
    for uniform, token in ((0.19, 0), (0.21, 1)):
        arguments = one_request(
            logits,
            [2],
            accept_uniform=float64([0.0]),
            sample_uniform=float64([uniform]),
            draft_probs=torch.tensor([[0.1, 0.1, INF]]),
        )
        assert op.output_of(arguments) == [token]


def test_greedy_requests_ignore_nan_in_draft_probs(op: Variant) -> None:
    logits = torch.tensor([log(0.2, 0.5, 0.3), log(0.9, 0.05, 0.05)])
    q = torch.full((1, 3), NAN)
    arguments = one_request(logits, [1], temperature=torch.zeros(1), draft_probs=q)
    assert op.output_of(arguments) == [1, 0]


@pytest.mark.parametrize("filters", [{}, {"top_k": int32([2])}, {"top_p": torch.tensor([0.7])}])
@pytest.mark.parametrize("uniform", [0.0, 0.5, JUST_BELOW_ONE])
def test_impossible_tokens_are_never_put_out(
    op: Variant, filters: dict[str, torch.Tensor], uniform: float
) -> None:
    row = [NEG_INF, 1.0, NEG_INF, 0.5, NEG_INF]
    for draft in (0, 2, 4):
        arguments = one_request(
            torch.tensor([row, row]),
            [draft],
            accept_uniform=float64([0.0]),
            sample_uniform=float64([uniform]),
            **filters,
        )
        (token,) = op.output_of(arguments)
        assert token in (1, 3)


def test_draft_that_the_filters_exclude_is_rejected(op: Variant) -> None:
    logits = torch.tensor([log(0.5, 0.3, 0.2)] * 2)
    for filters in (
        {"top_k": int32([2])},
        {"top_p": torch.tensor([0.7])},
        {"min_p": torch.tensor([0.5])},
    ):
        arguments = one_request(logits, [2], accept_uniform=float64([0.0]), **filters)
        assert len(op.output_of(arguments)) == 1


def test_draft_equal_to_the_target_is_always_accepted(op: Variant) -> None:
    probs = torch.tensor([[0.25, 0.25, 0.5]])
    arguments = one_request(
        probs.log().repeat(2, 1), [0], draft_probs=probs, accept_uniform=float64([1 - 2**-20])
    )
    assert len(op.output_of(arguments)) == 2


@pytest.mark.parametrize("row", [[NEG_INF] * 3, [NAN] * 3, [NAN, NEG_INF, NAN]])
@pytest.mark.parametrize("uniform", [0.0, JUST_BELOW_ONE])
def test_row_of_nothing_yields_token_0(op: Variant, row: list[float], uniform: float) -> None:
    filters = {
        "top_k": int32([2]),
        "top_p": torch.tensor([0.5]),
        "min_p": torch.tensor([0.5]),
        "sample_uniform": float64([uniform]),
        "accept_uniform": float64([uniform]),
    }
    for temperature in (0.0, 0.7):
        for drafts, output in (([1], [0]), ([0], [0, 0]), ([-1], [0])):
            arguments = one_request(
                torch.tensor([row, row]),
                drafts,
                temperature=torch.tensor([temperature]),
                **filters,
            )
            assert op.output_of(arguments) == output


def test_nan_counts_as_minus_infinity(op: Variant) -> None:
    row = [NAN, 0.0, NAN, 1.0]
    clean = [NEG_INF, 0.0, NEG_INF, 1.0]
    for uniform in (0.0, 0.2, 0.5, JUST_BELOW_ONE):
        changes = {"sample_uniform": float64([uniform])}
        with_nan = one_request(torch.tensor([row, row]), [0], **changes)
        without = one_request(torch.tensor([clean, clean]), [0], **changes)
        assert op.output_of(with_nan) == op.output_of(without)


@pytest.mark.parametrize("temperature", [0.1, 1.0, 50.0])
def test_tokens_at_infinity_share_all_of_the_mass(op: Variant, temperature: float) -> None:
    row = torch.tensor([[5.0, INF, NAN, INF, NEG_INF]])
    for uniform, token in ((0.0, 1), (0.49, 1), (0.51, 3), (JUST_BELOW_ONE, 3)):
        arguments = one_request(
            row,
            [],
            temperature=torch.tensor([temperature]),
            sample_uniform=float64([uniform]),
        )
        assert op.output_of(arguments) == [token]


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ({"top_k": int32([1])}, {1, 2}),
        ({"top_k": int32([3])}, {0, 1, 2, 3}),
        ({"top_k": int32([0])}, {0, 1, 2, 3, 4}),
        ({"top_k": int32([-1])}, {0, 1, 2, 3, 4}),
        ({"top_k": int32([99])}, {0, 1, 2, 3, 4}),
        ({"top_p": torch.tensor([0.01])}, {1, 2}),
        ({"top_p": torch.tensor([0.75])}, {0, 1, 2, 3}),
        ({"top_p": torch.tensor([1.0])}, {0, 1, 2, 3, 4}),
        ({"min_p": torch.tensor([1.0])}, {1, 2}),
        ({"min_p": torch.tensor([0.25])}, {0, 1, 2, 3}),
        ({"min_p": torch.tensor([0.0])}, {0, 1, 2, 3, 4}),
    ],
)
def test_filters_keep_ties_together(
    op: Variant, filters: dict[str, torch.Tensor], kept: set[int]
) -> None:
    # Probabilities .13 .35 .35 .13 .04: two pairs of equals.
    row = [1.0, 2.0, 2.0, 1.0, -0.2]
    seen = {
        op.output_of(
            one_request(torch.tensor([row]), [], sample_uniform=float64([step / 97]), **filters),
        )[0]
        for step in range(97)
    }
    assert seen == kept


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        # The second token has e^-1 = 0.36788 of the first one's probability, which is 0.73106.
        ({"min_p": torch.tensor([0.3678])}, {0, 1}),
        ({"min_p": torch.tensor([0.3679])}, {0}),
        ({"top_p": torch.tensor([0.7310])}, {0}),
        ({"top_p": torch.tensor([0.7311])}, {0, 1}),
    ],
)
def test_filters_cut_where_they_should(
    op: Variant, filters: dict[str, torch.Tensor], kept: set[int]
) -> None:
    seen = {
        op.output_of(
            one_request(
                torch.tensor([[1.0, 0.0]]), [], sample_uniform=float64([uniform]), **filters
            ),
        )[0]
        for uniform in (0.0, JUST_BELOW_ONE)
    }
    assert seen == kept


@pytest.mark.parametrize(("way", "kept"), [(0.7, {0}), (0.3, {0}), (1.3, {0, 1}), (1.7, {0, 1})])
def test_min_p_cuts_between_neighbouring_logits(op: Variant, way: float, kept: set[int]) -> None:
    # At -300 two floats are 3e-5 apart, and at a low temperature that is much: e^-6e-4. A limit
    # that is rounded to the nearest logit is rounded past the second one.
    best = torch.tensor(-300.0)
    second = torch.nextafter(best, torch.tensor(NEG_INF))
    step = (best - second).double().item() / 0.05
    filters = {"min_p": torch.tensor([-way * step]).double().exp().float()}
    seen = {
        op.output_of(
            one_request(
                torch.stack([best, second])[None],
                [],
                temperature=torch.tensor([0.05]),
                sample_uniform=float64([uniform]),
                **filters,
            ),
        )[0]
        for uniform in (0.0, JUST_BELOW_ONE)
    }
    assert seen == kept


def test_greedy_and_sampled_requests_share_a_batch(op: Variant) -> None:
    arguments = make_sampled([3, 2, 0, 4], 6, seed=11, with_draft_probs=True)
    arguments["temperature"] = torch.tensor([0.0, 0.8, 0.0, 0.0])
    tokens, counts = op.run(arguments)
    names = ("logits", "draft_token_ids", "cu_num_draft_tokens", "max_draft_len")
    greedy_tokens, greedy_counts = verify_greedy(*(arguments[name] for name in names))
    for request in (0, 2, 3):
        assert torch.equal(tokens[request], greedy_tokens[request])
        assert counts[request] == greedy_counts[request]


@pytest.mark.parametrize("with_draft_probs", [False, True])
def test_a_request_does_not_depend_on_its_batch(op: Variant, with_draft_probs: bool) -> None:
    lengths = [2, 0, 4, 1]
    arguments = make_sampled(lengths, 6, seed=13, with_draft_probs=with_draft_probs)
    together, _ = op.run(arguments)
    start = 0
    for index, count in enumerate(lengths):
        drafts, rows = slice(start, start + count), slice(start + index, start + index + count + 1)
        alone = {
            name: value[index : index + 1] if isinstance(value, torch.Tensor) else value
            for name, value in arguments.items()
        }
        alone["cu_num_draft_tokens"] = int32([count])
        alone["logits"] = arguments["logits"][rows]
        for name in ("draft_token_ids", "accept_uniform", "draft_probs"):
            if name in arguments:
                alone[name] = arguments[name][drafts]
        tokens, _ = op.run(alone)
        assert torch.equal(tokens[0], together[index])
        start += count


@pytest.mark.parametrize("with_draft_probs", [False, True])
@pytest.mark.parametrize("lengths", [[0], [0, 0, 0]])
def test_a_batch_without_any_drafts(
    op: Variant, lengths: list[int], with_draft_probs: bool
) -> None:
    arguments = make_sampled(lengths, 5, seed=1, with_draft_probs=with_draft_probs)
    op.assert_right(arguments)


def test_an_empty_batch(op: Variant) -> None:
    arguments = {
        "logits": torch.empty(0, 5),
        "draft_token_ids": int32([]),
        "cu_num_draft_tokens": int32([]),
        "max_draft_len": 2,
        "temperature": torch.empty(0),
        "accept_uniform": float64([]),
        "sample_uniform": float64([]),
    }
    tokens, counts = op.run(arguments)
    assert tokens.shape == (0, 3)
    assert counts.shape == (0,)


def test_row_stride_may_exceed_the_vocabulary(op: Variant) -> None:
    arguments = make_sampled([2, 0, 3], 7, seed=3, with_draft_probs=True)
    wide = batches.with_wide_stride(arguments["logits"])
    result = op.run({**arguments, "logits": wide})
    assert as_lists(result) == as_lists(op.run(arguments))


@pytest.mark.parametrize("dtype", batches.DTYPES)
def test_arguments_are_not_modified(op: Variant, dtype: torch.dtype) -> None:
    arguments = make_sampled([2, 0, 3], 7, seed=5, dtype=dtype, with_draft_probs=True)
    tensors = [value for value in arguments.values() if isinstance(value, torch.Tensor)]
    before = [tensor.clone() for tensor in tensors]
    op.run(arguments)
    for old, new in zip(before, tensors, strict=True):
        torch.testing.assert_close(new, old, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("garbage", [NAN, 1e30, INF, NEG_INF])
@pytest.mark.parametrize("seed", range(5))
def test_rows_that_are_not_needed_do_not_matter(op: Variant, garbage: float, seed: int) -> None:
    lengths = [4, 2, 0, 4]
    arguments = make_sampled(lengths, 5, seed=seed, broken=False, with_draft_probs=True)
    if op.rule == "block":
        # Any row of the block may decide, but a draft of -1 ends it.
        arguments["draft_token_ids"][[2, 5, 7]] = -1
        read = torch.tensor([3, 2, 1, 2])
        arguments["temperature"].fill_(1)
    else:
        _, read = op.run(arguments)
    tokens, _ = op.run(arguments)
    spoilt = {**arguments, "logits": batches.spoil_unread_rows(arguments, read, garbage)}
    assert not torch.equal(spoilt["logits"], arguments["logits"])
    assert torch.equal(op.run(spoilt)[0], tokens)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_logits_equal_the_same_values_in_float32(op: Variant, dtype: torch.dtype) -> None:
    arguments = make_sampled([3, 1, 4], 9, seed=17, dtype=dtype)
    widened = {**arguments, "logits": arguments["logits"].float()}
    narrow = op.run(arguments)
    assert as_lists(narrow) == as_lists(op.run(widened))


@pytest.mark.parametrize("with_draft_probs", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_registered_op_equals_the_function(rule: str, with_draft_probs: bool) -> None:
    arguments = make_sampled([2, 0, 3], 7, seed=7, with_draft_probs=with_draft_probs)
    result = torch.ops.vllm_ascend_spec.verify_sample(**arguments, rule=rule)
    assert as_lists(result) == as_lists(verify_sample(**arguments, rule=rule))


def test_registered_op_goes_by_the_token_rule_unless_told() -> None:
    arguments = make_sampled([2, 0, 3], 7, seed=7)
    result = torch.ops.vllm_ascend_spec.verify_sample(**arguments)
    assert as_lists(result) == as_lists(verify_sample(**arguments, rule="token"))


@pytest.mark.parametrize("filters", [(), ("top_k", "top_p", "min_p")])
@pytest.mark.parametrize("with_draft_probs", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_registered_op_passes_opcheck(
    rule: str, filters: tuple[str, ...], with_draft_probs: bool
) -> None:
    arguments = make_sampled(
        [2, 0, 3], 7, seed=9, filters=filters, with_draft_probs=with_draft_probs
    )
    positional = ("logits", "draft_token_ids", "cu_num_draft_tokens", "max_draft_len")
    torch.library.opcheck(
        torch.ops.vllm_ascend_spec.verify_sample.default,
        tuple(arguments.pop(name) for name in positional),
        {**arguments, "rule": rule},
    )
