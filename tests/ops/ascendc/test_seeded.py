"""``verify_seeded``'s AscendC kernels under the emulator, all of its checks on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch

from ops.emulator.library import Emulator
from tests.ops.ascendc.kernels import CORES, bytes_read, make_emulator
from tests.ops.batches import Arguments, spoil_unread_rows
from tests.ops.cases import KINDS, parity_cases
from tests.ops.emulator.build import requires_compiler
from tests.ops.seeded import assert_as_the_reference, seeded_case
from tests.ops.test_verify_seeded import BOUND, joint_deviation
from vllm_ascend_spec.ops.ascendc_check import noise_problem
from vllm_ascend_spec.ops.ascendc_library import Outputs, use
from vllm_ascend_spec.ops.verify_seeded import verify_seeded

pytestmark = requires_compiler
QWEN = 151_936
MODES = ("auto", "split", "by request")


def emulators() -> Iterator[Emulator]:
    """Make emulators without end: cores, ways to cut the batch, tiles and NaN modes in turn."""
    index = 0
    while True:
        yield make_emulator(
            num_cores=CORES[index % 4],
            mode=MODES[index // 4 % 3],
            tile=(0, 1024, 3072)[index // 12 % 3],
            nan_mode=index // 2 % 2,
        )
        index += 1


def ties_of(cases: Iterable[Arguments]) -> int:
    """Compare each case with the reference; return the number of requests that rounding decided."""
    ties = 0
    for index, (case, emulator) in enumerate(zip(cases, emulators(), strict=False)):
        arguments = seeded_case(case, index)
        with use(emulator):
            ties += assert_as_the_reference(arguments, "ascendc")
    return ties


def test_the_kernels_equal_the_reference() -> None:
    assert ties_of(parity_cases(180, seed=12)) <= 2


@pytest.mark.parametrize("kind", KINDS[1:])
def test_every_kind_of_logits_equals_the_reference(kind: str) -> None:
    assert ties_of(parity_cases(36, seed=21, kind=kind)) <= 1


@pytest.mark.parametrize("filters", [(), ("top_k",), ("top_p",), ("min_p",)])
def test_each_filter_alone_equals_the_reference(filters: tuple[str, ...]) -> None:
    assert ties_of(parity_cases(36, seed=22, filters=filters)) <= 1


@pytest.mark.parametrize("vocab_size", [QWEN, 210_000])
def test_large_vocabularies_equal_the_reference(vocab_size: int) -> None:
    """The larger one's least numbers are made in two spans."""
    cases = parity_cases(4, seed=13, vocab_size=vocab_size, max_requests=2, max_drafts=2)
    for index, case in enumerate(cases):
        emulator = make_emulator(
            num_cores=(48, 1)[index % 2], mode=("split", "by request")[index % 2]
        )
        arguments = seeded_case(case, index)
        with use(emulator):
            assert_as_the_reference(arguments, "ascendc")


@pytest.mark.parametrize("mode", ["split", "by request"])
def test_drafts_decide_only_how_many_tokens_there_are(mode: str) -> None:
    for index, case in enumerate(parity_cases(24, seed=11, max_vocab=3001)):
        arguments = seeded_case(case, index)
        with use(make_emulator(num_cores=5, mode=mode, tile=1024)):
            tokens, counts = verify_seeded(**arguments, backend="ascendc")
            spoilt = spoil_unread_rows(arguments, counts, float("nan"))
            again, _ = verify_seeded(**{**arguments, "logits": spoilt}, backend="ascendc")
        assert torch.equal(again, tokens)
        ends = [0, *arguments["cu_num_draft_tokens"].tolist()]
        for request, count in enumerate(counts.tolist()):
            drafts = arguments["draft_token_ids"][ends[request] : ends[request + 1]]
            assert torch.equal(tokens[request, : count - 1], drafts[: count - 1])
            assert count == len(drafts) + 1 or tokens[request, count - 1] != drafts[count - 1]
            assert (tokens[request, count:] == -1).all()


def test_three_tokens_together_have_the_targets_law() -> None:
    seeds = torch.arange(3_000)
    with use(make_emulator(num_cores=40, checks=False)):
        places = [torch.full_like(seeds, 40 + i) for i in range(3)]
        assert joint_deviation("ascendc", seeds, places) < BOUND


def peaked(num_reqs: int, **filters: float) -> Arguments:
    """Make rows with a model's few likely tokens, without drafts."""
    generator = torch.Generator().manual_seed(num_reqs)
    logits = torch.randn(num_reqs, QWEN, generator=generator) * 2.5
    likely = torch.randint(0, QWEN, (num_reqs, 30), generator=generator)
    logits.scatter_add_(1, likely, torch.linspace(6, 16, 30).expand(num_reqs, -1))
    kinds = {"top_k": torch.int32}
    return {
        "logits": logits,
        "draft_token_ids": torch.zeros(0, dtype=torch.int32),
        "cu_num_draft_tokens": torch.zeros(num_reqs, dtype=torch.int32),
        "max_draft_len": 0,
        "temperature": torch.full((num_reqs,), 0.8),
        "seeds": torch.randint(-(2**63), 2**63 - 1, (num_reqs,), generator=generator),
        "positions": torch.randint(0, 2**33, (num_reqs,), generator=generator),
        **{
            name: torch.full((num_reqs,), value, dtype=kinds.get(name, torch.float32))
            for name, value in filters.items()
        },
    }


@pytest.mark.parametrize(
    ("filters", "most", "meetings"), [({}, 1.5, 2), ({"top_k": 50, "top_p": 0.9}, 2.5, 5)]
)
def test_logits_are_read_once_and_few_tiles_again(
    filters: dict[str, float], most: float, meetings: int
) -> None:
    arguments = peaked(8, **filters)
    emulator = make_emulator(num_cores=48, mode="split")
    with use(emulator):
        assert assert_as_the_reference(arguments, "ascendc") == 0
    assert bytes_read(emulator) / (arguments["logits"].numel() * 4) < most
    assert emulator.stats.sync_alls == meetings
    assert max(emulator.stats.peak_ub) <= 184 * 1024


def test_most_of_the_noise_is_not_made() -> None:
    """Of a row's 151,936 tokens the scalar unit looks at a few, on a core that has it whole."""
    emulator = make_emulator(num_cores=1, mode="by request")
    with use(emulator):
        verify_seeded(**peaked(1), backend="ascendc")
    # A token that is looked at takes seven; all of them would be a million.
    assert emulator.stats.pipes("instructions")["S"] < 5_000


def test_wrong_random_numbers_are_noticed_when_the_kernels_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emulator = make_emulator(num_cores=2)
    right = emulator.verify_seeded
    assert noise_problem(emulator, "cpu") is None

    def saturating(*arguments: Any, seeds: torch.Tensor, **options: Any) -> Outputs:
        return right(*arguments, seeds=seeds.clamp(-(2**31), 2**31 - 1), **options)

    monkeypatch.setattr(emulator, "verify_seeded", saturating)
    assert noise_problem(emulator, "cpu") == (
        "verify_seeded makes wrong random numbers on this NPU"
    )


def test_tiles_have_whole_groups_of_noise() -> None:
    with (
        use(make_emulator(num_cores=1, tile=320)),
        pytest.raises(ValueError, match="tile: 320 is not a multiple of 1024"),
    ):
        verify_seeded(**peaked(1), backend="ascendc")
