"""The sources alone, without PyTorch: under sanitizers, in counted memory, for other processors."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from ops.build import COMMON, OLDEST_TORCH, find_torch
from tests.ops import seeded, trees
from tests.ops.batches import DTYPES, RULES, with_wide_stride
from tests.ops.broken_drafts import assert_in_range
from tests.ops.cases import FILTERS, KINDS, parity_cases
from tests.ops.cpu import driver
from tests.ops.cpu.driver import mask, memory_of, verification
from tests.ops.cpu.run_cases import GREEDY_ARGUMENTS
from tests.ops.parity import assert_right, judge, judge_greedy
from vllm_ascend_spec.ops import grammar_mask

ON_X86 = platform.machine() == "x86_64"
SANITIZE = (
    *("-O1", "-g", "-fsanitize=address,undefined,float-cast-overflow"),
    "-fno-sanitize-recover=all",
)
AARCH64 = "/usr/aarch64-linux-gnu"
KIBI = 1024


def requires(*programs: str) -> pytest.MarkDecorator:
    missing = [name for name in programs if not shutil.which(name)]
    return pytest.mark.skipif(bool(missing), reason=f"needs {' and '.join(missing)}")


def masks(dtype: torch.dtype) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Return arguments of ``grammar_mask`` with vocabularies that end anywhere in a word."""
    generator = torch.Generator().manual_seed(5)
    cases = []
    for vocab in (1, 31, 32, 33, 64, 100, 2049):
        words = torch.randint(-(2**31), 2**31, (3, -(-vocab // 32)), generator=generator)
        words[0] = torch.tensor([0, -1])[torch.arange(words.shape[1]) % 2]
        logits = torch.randn(4, vocab, generator=generator).to(dtype)
        cases.append((with_wide_stride(logits), words.int(), torch.tensor([3, -1, 0]).int()))
    return cases


def check_all_ops(command: list[str], folder: Path, count: int, **environment: str) -> None:
    """Run random cases of every op on a driver and compare them with the reference."""
    cases = list(parity_cases(count, seed=41))
    jobs = [verification(case, greedily=greedily) for case in cases for greedily in (False, True)]
    outputs = driver.run(command, folder, jobs, **environment).outputs
    sampled = zip(cases, outputs[::2], strict=True)
    assert_right([judge(case, (tokens, counts)) for case, (tokens, counts) in sampled])
    for case, (tokens, counts) in zip(cases, outputs[1::2], strict=True):
        arguments = {name: case[name] for name in GREEDY_ARGUMENTS}
        assert_right([judge_greedy(arguments, (tokens, counts))], most_ties=0)
    for dtype in DTYPES:
        masked = driver.run(command, folder, [mask(*case) for case in masks(dtype)], **environment)
        for (logits, *rest), (memory,) in zip(masks(dtype), masked.outputs, strict=True):
            grammar_mask(logits, *rest, backend="reference")
            assert torch.equal(memory, memory_of(logits))


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sanitized")
    try:
        return driver.build(folder, "g++", *SANITIZE, x86_levels=ON_X86)
    except RuntimeError as error:
        if "cannot find" in str(error):
            pytest.skip(f"g++ has no sanitizers: {error}")
        raise


@requires("g++")
def test_sanitizers_find_nothing(sanitized: Path, tmp_path: Path) -> None:
    check_all_ops([str(sanitized)], tmp_path, 1500)


@requires("g++")
@pytest.mark.parametrize("rule", RULES)
def test_sanitizers_find_nothing_in_broken_drafts(
    sanitized: Path, tmp_path: Path, rule: str
) -> None:
    cases = list(parity_cases(600, seed=44, drafts="broken", rule=rule))
    results = driver.run([str(sanitized)], tmp_path, map(verification, cases)).outputs
    verdicts = []
    for case, (tokens, counts) in zip(cases, results, strict=True):
        assert_in_range(case, (tokens, counts))
        verdicts.append(judge(case, (tokens, counts)))
    assert_right(verdicts)


@requires("g++")
@pytest.mark.parametrize("level", ["portable", "x86_64_v3", "x86_64_v4"])
def test_sanitizers_find_nothing_in_seeded_samples(
    sanitized: Path, tmp_path: Path, level: str
) -> None:
    """With each build of the arithmetic; on a machine without it, with the best that is there."""
    cases = [case for kind in KINDS[1:] for case in parity_cases(12, seed=45, kind=kind)]
    cases += parity_cases(2, seed=46, vocab_size=151936, max_requests=2, max_drafts=2)
    jobs = [seeded.seeded_case(case, index) for index, case in enumerate(cases)]
    environment = {"VLLM_ASCEND_SPEC_CPU_ISA": level}
    results = driver.run([str(sanitized)], tmp_path, map(verification, jobs), **environment).outputs
    ties = sum(
        seeded.ties_of_result(job, (tokens, counts))
        for job, (tokens, counts) in zip(jobs, results, strict=True)
    )
    assert ties <= 0.01 * len(jobs)


@requires("g++")
def test_sanitizers_find_nothing_in_trees(sanitized: Path, tmp_path: Path) -> None:
    cases = [case for kind in KINDS[1:] for case in trees.tree_cases(20, seed=48, kind=kind)]
    results = driver.run([str(sanitized)], tmp_path, map(verification, cases)).outputs
    ties = sum(
        trees.ties_of_result(case, (tokens, counts, rows))
        for case, (tokens, counts, rows) in zip(cases, results, strict=True)
    )
    assert ties <= 0.01 * len(cases)


@requires("g++")
def test_sanitizers_would_find_a_row_that_is_not_there(sanitized: Path, tmp_path: Path) -> None:
    """Of a tree's rows those on its path are read, so the last may lack where it is not."""
    case = trees.path_to_the_last_node(num_nodes=3, vocab_size=100)
    case["logits"] = case["logits"][:-1]
    off = {**case, "draft_token_ids": case["draft_token_ids"].clone()}
    off["draft_token_ids"][-1] = -1
    driver.run([str(sanitized)], tmp_path, [verification(off)])
    with pytest.raises(AssertionError, match="AddressSanitizer: heap-buffer-overflow"):
        driver.run([str(sanitized)], tmp_path, [verification(case)])


@requires("g++")
def test_sanitizers_would_find_a_read_past_the_end(sanitized: Path, tmp_path: Path) -> None:
    (case,) = parity_cases(1, seed=42, vocab_size=100)
    case["cu_num_draft_tokens"] = case["cu_num_draft_tokens"] + 1
    case["max_draft_len"] += 1
    with pytest.raises(AssertionError, match="AddressSanitizer: heap-buffer-overflow"):
        driver.run([str(sanitized)], tmp_path, [verification(case)])


@requires("clang++")
def test_clang_gives_the_references_results(tmp_path: Path) -> None:
    program = driver.build(tmp_path, "clang++", x86_levels=ON_X86)
    check_all_ops([str(program)], tmp_path, 500)


@requires("aarch64-linux-gnu-g++", "qemu-aarch64")
def test_aarch64_gives_the_references_results(tmp_path: Path) -> None:
    program = driver.build(tmp_path, "aarch64-linux-gnu-g++", x86_levels=False)
    check_all_ops(["qemu-aarch64", "-L", AARCH64, str(program)], tmp_path, 300)


@requires("aarch64-linux-gnu-g++")
def test_bindings_compile_for_aarch64() -> None:
    """PyTorch's headers are the same for every processor."""
    headers = find_torch() / "include"
    done = subprocess.run(
        [
            "aarch64-linux-gnu-g++",
            *COMMON,
            *("-Wall", "-Werror", "-fsyntax-only", f"-isystem{headers}"),
            f"-DTORCH_TARGET_VERSION={OLDEST_TORCH}",
            str(driver.ROOT / "ops" / "cpu" / "library.cpp"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return driver.build(tmp_path_factory.mktemp("counted"), "g++", x86_levels=ON_X86)


# What is held is the same for any vocabulary; by day each rule and each vocabulary once.
@requires("g++")
@pytest.mark.parametrize(
    ("vocab", "rule"),
    [
        (151936, "token"),
        pytest.param(151936, "block", marks=pytest.mark.nightly),
        pytest.param(500000, "token", marks=pytest.mark.nightly),
        (500000, "block"),
    ],
)
def test_a_call_holds_no_more_than_64_kib(
    counted: Path, tmp_path: Path, rule: str, vocab: int
) -> None:
    held = []
    for drafts in ("one-hot", "near"):
        for filters in ((), FILTERS):
            (case,) = parity_cases(
                1,
                seed=43,
                vocab_size=vocab,
                rule=rule,
                drafts=drafts,
                filters=filters,
                max_requests=8,
                max_drafts=4,
            )
            results = driver.run([str(counted)], tmp_path, [verification(case)])
            held.append(results.most_held)
    print(f"{rule} rule, vocabulary of {vocab}: at most {max(held):,} bytes")
    assert 20 * KIBI < max(held) <= 64 * KIBI


@requires("g++")
@pytest.mark.parametrize(("vocab", "most"), [(151936, 64), (500000, 128)])
def test_a_seeded_call_holds_a_word_for_each_chunk(
    counted: Path, tmp_path: Path, vocab: int, most: int
) -> None:
    held = []
    for filters in ((), FILTERS):
        (case,) = parity_cases(1, seed=47, vocab_size=vocab, filters=filters, max_requests=4)
        job = verification(seeded.seeded_case(case, 0))
        held.append(driver.run([str(counted)], tmp_path, [job]).most_held)
    assert 20 * KIBI < max(held) <= most * KIBI
