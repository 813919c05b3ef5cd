"""The library loads; where it cannot, the log says why once and the reference takes its place."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.ops.batches import Arguments, make_drafts, make_sampled
from tests.ops.cpu.marks import requires_library
from tests.ops.seeded import seeded_case
from tests.ops.trees import tree_case
from vllm_ascend_spec import log
from vllm_ascend_spec.errors import BackendUnavailableError
from vllm_ascend_spec.ops import (
    OPS,
    cpu_library,
    grammar_mask,
    registry,
    verify_greedy,
    verify_sample,
    verify_seeded,
    verify_tree,
)

CPU = torch.device("cpu")


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Let the library be looked for in an empty folder, by a process that has not tried yet."""
    caches = (cpu_library.library_problem, registry._load, log.log_once)
    monkeypatch.setattr(cpu_library, "LIBRARY", tmp_path / cpu_library.LIBRARY.name)
    monkeypatch.setattr(cpu_library, "PROBLEM", tmp_path / cpu_library.PROBLEM.name)
    for cache in caches:
        cache.cache_clear()
    yield tmp_path
    for cache in caches:
        cache.cache_clear()


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Collect what our loggers say: vLLM's do not propagate, and may be set to be quiet."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger(log.PARENT)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
    yield lines
    logger.setLevel(level)
    logger.removeHandler(handler)


def calls(**options: Any) -> list[Callable[[], object]]:
    """Return calls of every op, with right arguments."""
    logits = torch.zeros(2, 40)
    bitmask, rows = torch.full((1, 2), -1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    return [
        lambda: verify_greedy(**make_drafts([2, 1], 4, seed=0), **options),
        lambda: verify_sample(**make_sampled([2, 1], 4, seed=0), **options),
        lambda: verify_seeded(**seeded_case(make_sampled([2, 1], 4, seed=0), 0), **options),
        lambda: verify_tree(**tree_case(make_sampled([2, 1], 4, seed=0), 0), **options),
        lambda: grammar_mask(logits, bitmask, rows, **options),
    ]


@requires_library
def test_library_loads_and_names_its_instruction_set() -> None:
    assert cpu_library.library_problem() is None
    assert cpu_library.instruction_set() in ("portable", "x86_64_v3", "x86_64_v4")
    for op in OPS:
        assert op.status("cpu")["cpu"] == "ready"
        assert op.backend(None, CPU).__module__ == f"vllm_ascend_spec.ops.{op.name}.cpu"


def test_library_that_is_missing_without_a_reason_names_a_remedy(fresh: Path) -> None:
    assert cpu_library.library_problem() == (
        "the C++ backend was not built: remedy: install vllm-ascend-spec again, with pip's "
        "--no-deps --force-reinstall"
    )


def test_library_that_is_missing_gives_the_reason_of_its_installation(fresh: Path) -> None:
    cpu_library.PROBLEM.write_text("no compiler; remedy: install one\n")
    problem = "the C++ backend was not built: no compiler; remedy: install one"
    assert cpu_library.library_problem() == problem
    for op in OPS:
        status = op.status("cpu")
        assert (status["cpu"], status["reference"]) == (problem, "ready")


def test_reason_that_is_no_text_is_told_all_the_same(fresh: Path) -> None:
    cpu_library.PROBLEM.write_bytes(b"kein \xdcbersetzer\n")
    assert (
        cpu_library.library_problem()
        == "the C++ backend was not built: kein \N{REPLACEMENT CHARACTER}bersetzer"
    )


@pytest.mark.parametrize(
    "error", [OSError("no such\nfile"), RuntimeError("two of\nthem"), OSError()]
)
def test_whatever_the_loader_says_is_one_line(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def load(path: Path) -> None:
        raise error

    cpu_library.LIBRARY.write_bytes(b"")
    monkeypatch.setattr(cpu_library.torch.ops, "load_library", load)
    why = (str(error) or "OSError").splitlines()[0]
    assert cpu_library.library_problem() == (
        f"the C++ backend cannot be loaded: {why}; remedy: {cpu_library.REMEDY}"
    )


def test_file_that_is_no_library_says_so_and_names_a_remedy(fresh: Path) -> None:
    cpu_library.LIBRARY.write_bytes(b"not a library")
    problem = cpu_library.library_problem()
    assert problem is not None
    assert problem.startswith("the C++ backend cannot be loaded: ")
    assert "remedy: install vllm-ascend-spec again" in problem
    assert "\n" not in problem


def test_automatic_fall_back_is_logged_once_for_all_ops_and_calls(
    fresh: Path, logged: list[str]
) -> None:
    cpu_library.PROBLEM.write_text("no compiler\n")
    for call in 3 * calls():
        call()
    assert logged == ["the C++ backend was not built: no compiler; the next backend is used"]
    for op in OPS:
        assert op.backend(None, CPU).__module__.endswith(".reference")


def test_backend_asked_for_by_name_raises_with_the_remedy(fresh: Path, logged: list[str]) -> None:
    for call, op in zip(calls(backend="cpu"), OPS, strict=True):
        with pytest.raises(BackendUnavailableError) as raised:
            call()
        assert str(raised.value) == (
            f"{op.name}: backend 'cpu' cannot run here: the C++ backend was not built: remedy: "
            f"{cpu_library.REMEDY}"
        )
    assert logged == []


def test_nothing_is_logged_where_the_reference_is_asked_for(fresh: Path, logged: list[str]) -> None:
    for call in calls(backend="reference"):
        call()
    assert logged == []


def on_meta(arguments: Arguments) -> Arguments:
    return {
        name: value.to("meta") if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    }


def test_tensors_on_another_device_are_refused() -> None:
    message = "the C\\+\\+ backend runs on CPU tensors, these are on meta"
    with pytest.raises(BackendUnavailableError, match=message):
        verify_greedy(**on_meta(make_drafts([2, 1], 4, seed=0)), backend="cpu")
    with pytest.raises(BackendUnavailableError, match=message):
        verify_sample(**on_meta(make_sampled([2, 1], 4, seed=0)), backend="cpu")
    seeded = seeded_case(make_sampled([2, 1], 4, seed=0), 0)
    with pytest.raises(BackendUnavailableError, match=message):
        verify_seeded(**on_meta(seeded), backend="cpu")
    tree = tree_case(make_sampled([2, 1], 4, seed=0), 0)
    with pytest.raises(BackendUnavailableError, match=message):
        verify_tree(**on_meta(tree), backend="cpu")
    words = torch.empty(1, 1, dtype=torch.int32, device="meta")
    with pytest.raises(BackendUnavailableError, match=message):
        grammar_mask(torch.empty(2, 8, device="meta"), words, words[0], backend="cpu")


@requires_library
def test_nothing_but_the_logits_device_is_accepted() -> None:
    arguments = make_sampled([2, 1], 4, seed=0)
    with pytest.raises(ValueError, match="temperature: on meta, the logits are on cpu"):
        verify_sample(**{**arguments, "temperature": arguments["temperature"].to("meta")})


@requires_library
def test_library_itself_has_no_kernel_for_other_devices() -> None:
    empty = torch.empty(1, 8, device="meta")
    with pytest.raises(NotImplementedError, match="vllm_ascend_spec_cpu::grammar_mask"):
        torch.ops.vllm_ascend_spec_cpu.grammar_mask.default(empty, empty.int(), empty.int()[0])
