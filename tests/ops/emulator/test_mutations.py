"""Seeded errors in the real kernels: the emulator must report each of them by its kind."""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from ops.emulator.library import Emulator
from ops.emulator.report import EmulatorError
from tests.ops.emulator.build import (
    AUTO_NONE,
    AUTO_SCALAR,
    NAN_IGNORE,
    NAN_PROPAGATE,
    ROOT,
    build,
    requires_compiler,
)
from tests.ops.emulator.mutations import MUTATIONS, Mutation
from vllm_ascend_spec.ops import verify_sample
from vllm_ascend_spec.ops.grammar_mask.reference import grammar_mask
from vllm_ascend_spec.ops.verify_greedy.reference import verify_greedy
from vllm_ascend_spec.ops.verify_seeded import verify_seeded
from vllm_ascend_spec.ops.verify_tree import verify_tree

pytestmark = requires_compiler

# The rows of trees are sampled by verify_seeded's code, which is compiled and broken by day.
BY_NIGHT = pytest.mark.nightly
Mutants = dict[Mutation, Callable[[], Path]]

KERNELS = ROOT / "ops" / "ascendc"
OPS = ("verify_greedy", "verify_sample", "verify_seeded", "verify_tree", "grammar_mask")
# Odd, so that rows have tails; rows are further apart than they are long.
VOCAB, STRIDE, TILE = 1003, 1024, 256
DRAFTS = [2, 0, 3, 1]
# Of several tiles, the last of which ends in the first half of a group of noise.
SEEDED_VOCAB = 3 * 1024 + 130


def rows(dtype: torch.dtype, num_rows: int, seed: int = 0, vocab: int = VOCAB) -> torch.Tensor:
    """Return logits, [num_rows, vocab], with gaps between the rows."""
    generator = torch.Generator().manual_seed(seed)
    wide = torch.randn(num_rows, vocab + STRIDE - VOCAB, generator=generator).to(dtype)
    return wide[:, :vocab]


def batch(vocab: int = VOCAB) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """Return the first arguments of both verification ops; every other draft is the argmax."""
    logits = rows(torch.float32, sum(DRAFTS) + len(DRAFTS), vocab=vocab)
    ends = torch.tensor(DRAFTS).cumsum(0).int()
    starts = [0, *ends.tolist()]
    best = [logits[starts[b] + b + i].argmax() for b, n in enumerate(DRAFTS) for i in range(n)]
    drafts = torch.tensor([int(t) if i % 2 == 0 else 5 for i, t in enumerate(best)])
    return logits, drafts.int(), ends, max(DRAFTS)


def greedy(emulator: Emulator) -> None:
    arguments = batch()
    for got, expected in zip(
        emulator.verify_greedy(*arguments), verify_greedy(*arguments), strict=True
    ):
        assert torch.equal(got, expected)


def sample(
    emulator: Emulator, *, with_probs: bool = False, vocab: int = VOCAB, **filters: float
) -> None:
    arguments = batch(vocab)
    num_reqs, num_drafts = len(DRAFTS), sum(DRAFTS)
    generator = torch.Generator().manual_seed(1)
    probs = rows(torch.float32, num_drafts, 2, vocab).softmax(-1) if with_probs else None
    if probs is not None:
        probs = torch.nn.functional.pad(probs, (0, 21))[:, :vocab]
    dtypes = {"top_k": torch.int32}
    parameters = {
        name: torch.full((num_reqs,), value, dtype=dtypes.get(name, torch.float32))
        for name, value in filters.items()
    }
    options = {name: parameters.get(name) for name in ("top_k", "top_p", "min_p")} | {
        "temperature": torch.tensor([0.8, 1.0, 0.0, 1.3]),
        "draft_probs": probs,
        "accept_uniform": torch.rand(num_drafts, generator=generator, dtype=torch.float64),
        "sample_uniform": torch.rand(num_reqs, generator=generator, dtype=torch.float64),
    }
    got = emulator.verify_sample(*arguments, rule="token", **options)
    expected = verify_sample(*arguments, **options, backend="reference")
    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[1], expected[1])


def seeded_options() -> dict[str, torch.Tensor | None]:
    """Return the keyword arguments of ``verify_seeded`` for :func:`batch`."""
    return {
        "temperature": torch.tensor([0.8, 1.0, 0.0, 1.3]),
        "top_k": None,
        "top_p": None,
        "min_p": None,
        "seeds": torch.arange(len(DRAFTS)),
        "positions": torch.arange(len(DRAFTS)) + 2**32,
    }


def seeded(emulator: Emulator) -> None:
    arguments, options = batch(SEEDED_VOCAB), seeded_options()
    got = emulator.verify_seeded(*arguments, **options)
    expected = verify_seeded(*arguments, **options, backend="reference")
    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[1], expected[1])


def tree(emulator: Emulator) -> None:
    arguments, options = batch(SEEDED_VOCAB), seeded_options()
    options["parents"] = torch.tensor([-1, -1, -1, 0, 0, -1], dtype=torch.int32)
    got = emulator.verify_tree(*arguments, **options)
    expected = verify_tree(*arguments, **options, backend="reference")
    assert all(map(torch.equal, got, expected))


def mask(emulator: Emulator) -> None:
    logits = rows(torch.float32, 5)
    expected = logits.clone()
    bitmask = torch.randint(-(2**31), 2**31, (4, 32), dtype=torch.int64).int()
    row_indices = torch.tensor([3, -1, 0, 4], dtype=torch.int32)
    emulator.grammar_mask(logits, bitmask, row_indices)
    grammar_mask(expected, bitmask, row_indices)
    assert torch.equal(logits, expected)


# name: (how the emulator is set up, what is run)
CASES: dict[str, tuple[dict[str, object], Callable[[Emulator], None]]] = {
    "split": ({"num_cores": 3, "mode": "split", "tile": TILE}, greedy),
    "one core": ({"num_cores": 1, "mode": "by request"}, greedy),
    "filters": (
        {"num_cores": 3, "mode": "split", "tile": TILE},
        functools.partial(sample, top_k=50, top_p=0.9),
    ),
    "draft probs": (
        {"num_cores": 3, "mode": "split", "tile": TILE},
        functools.partial(sample, with_probs=True),
    ),
    "many tiles": (
        {"num_cores": 1, "mode": "by request", "tile": 64},
        functools.partial(sample, vocab=64 * 40 + 3, top_k=50),
    ),
    "seeded": ({"num_cores": 3, "mode": "split", "tile": 1024}, seeded),
    "seeded in no order": ({"num_cores": 1, "mode": "by request", "auto_sync": AUTO_NONE}, seeded),
    "tree": ({"num_cores": 3, "mode": "split", "tile": 1024}, tree),
    "masks": ({"num_cores": 3, "tile": TILE}, mask),
}


def folder_with(destination: Path, library: Path, op: str) -> Path:
    """Return a folder in which a kernel's library has the name that the backend looks for."""
    destination.mkdir(parents=True, exist_ok=True)
    (destination / f"{op}.so").symlink_to(library)
    return destination


def mutate(mutation: Mutation, sources: Path) -> Path:
    """Copy the kernels to ``sources``, put the error in, and compile."""
    shutil.copytree(KERNELS, sources)
    path = sources / mutation.file
    text = path.read_text()
    assert text.count(mutation.old) == 1, f"{mutation.file}: {mutation.old!r} has to occur once"
    path.write_text(text.replace(mutation.old, mutation.new))
    return build(sources / mutation.op / "emulator_host.cpp", optimise=False)


@pytest.fixture(scope="module")
def mutants(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mutants]:
    """Compile the mutants that are asked for, two at a time; each value waits for its library."""
    folder = tmp_path_factory.mktemp("mutants")
    calls = (getattr(item, "callspec", None) for item in request.session.items)
    wanted = [call.params["mutation"] for call in calls if call and "mutation" in call.params]
    with ThreadPoolExecutor(2) as pool:
        started = {m: pool.submit(mutate, m, folder / str(i)) for i, m in enumerate(wanted)}
        yield {m: future.result for m, future in started.items()}


@pytest.mark.parametrize("nan_mode", [NAN_PROPAGATE, NAN_IGNORE])
@pytest.mark.parametrize("auto_sync", [AUTO_NONE, AUTO_SCALAR])
@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=BY_NIGHT if name == "tree" else ()) for name in CASES]
)
def test_without_an_error_nothing_is_reported(
    case: str, auto_sync: int, nan_mode: int, tmp_path: Path
):
    settings, run = CASES[case]
    for op in {mutation.op for mutation in MUTATIONS if mutation.case == case}:
        folder_with(tmp_path, build(KERNELS / op / "emulator_host.cpp", optimise=False), op)
    run(Emulator(tmp_path, **{**settings, "auto_sync": auto_sync, "nan_mode": nan_mode}))


@pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(
            mutation,
            marks=BY_NIGHT if mutation.op == "verify_tree" else (),
            id=f"{mutation.op}-{mutation.name.replace(' ', '_')}",
        )
        for mutation in MUTATIONS
    ],
)
def test_an_error_is_reported(mutation: Mutation, mutants: Mutants, tmp_path: Path):
    folder = folder_with(tmp_path, mutants[mutation](), mutation.op)
    settings, run = CASES[mutation.case]
    with pytest.raises(EmulatorError) as broken:
        run(Emulator(folder, **settings))
    kind = re.search(r"\[([a-z-]+)\]$", str(broken.value))
    assert kind is not None
    assert kind[1] in mutation.kinds, str(broken.value)


def test_there_are_enough_and_each_has_its_place():
    assert len(MUTATIONS) >= 14
    assert {m.op for m in MUTATIONS} == set(OPS)
    assert len({(m.op, m.name) for m in MUTATIONS}) == len(MUTATIONS)
    for m in MUTATIONS:
        assert (KERNELS / m.file).read_text().count(m.old) == 1, f"{m.file}: {m.old!r}"
