"""The n-gram search: what it finds, when it is compiled, and that it starts no threads."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from numba import njit
from vllm.v1.spec_decode import ngram_proposer as stock

from tests.docs.blocks import ROOT
from tests.docs.person import small, succeed
from tests.methods.engine import MAX_LENGTH, make_batch, make_config, make_engine, make_step
from vllm_ascend_spec.methods.ngram.drafter import NgramDrafter

LOOKUP = {"prompt_lookup_min": 2, "prompt_lookup_max": 4}


def create(batch: Any, num_drafts: int = 3) -> NgramDrafter:
    runner = SimpleNamespace(input_batch=batch)
    drafter = NgramDrafter.create(make_engine(make_config(num_drafts, **LOOKUP), runner))
    drafter.warm_up()
    return drafter


def draft(drafter: NgramDrafter, batch: Any, *sampled: list[int], num_drafts: int) -> Any:
    return drafter.draft(make_step(batch, *sampled, num_drafts=num_drafts))


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the search as it is in a new process: not compiled for anything."""
    name = "_find_longest_matched_ngram_and_propose_tokens"
    search = njit(getattr(stock, name).py_func)
    monkeypatch.setattr(stock, name, search)
    return search


def test_nothing_is_compiled_in_the_first_request(fresh: Any) -> None:
    batch = make_batch([1, 2, 3, 1, 2], [4, 5], [6])
    drafter = create(batch)
    assert len(fresh.signatures) == 1
    draft(drafter, batch, [2], [], [6], num_drafts=3)
    draft(drafter, batch, [2], num_drafts=1)
    assert len(fresh.signatures) == 1


def test_without_our_warm_up_it_would_be(fresh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NgramDrafter, "warm_up", lambda _: None)
    batch = make_batch([1, 2, 3, 1, 2])
    drafter = create(batch)
    assert len(fresh.signatures) == 0
    draft(drafter, batch, [2], num_drafts=3)
    assert len(fresh.signatures) == 1


def test_drafts_are_what_followed_the_longest_ngram() -> None:
    batch = make_batch(
        [7, 1, 2, 3, 4, 5, 9, 1, 2, 3],  # 1 2 3 was followed by 4 5 9
        [1, 2, 8, 8, 1, 2],
        [1, 2, 3, 4, 5, 6],  # nothing twice
        [1, 2, 1, 2],  # a prompt that goes on
    )
    drafter = create(batch)
    drafts = draft(drafter, batch, [3], [2], [6], [], num_drafts=3)
    assert drafts == [[4, 5, 9], [8, 8, 1], [], []]
    assert draft(drafter, batch, [3], [2], num_drafts=1) == [[4], [8]]
    assert draft(drafter, batch, [3], [2], num_drafts=0) == [[], []]


def test_drafts_end_with_the_context() -> None:
    text = [1, 2, 3, 4] * (MAX_LENGTH // 4)
    batch = make_batch(text[:-1], text)
    assert draft(create(batch), batch, [3], [4], num_drafts=3) == [[4], []]


SEARCHES = """
import json, random, sys
from types import SimpleNamespace
import numba.np.ufunc.parallel as pool
from vllm.v1.spec_decode.ngram_proposer import NgramProposer
from tests.methods.engine import MAX_LENGTH, make_batch, make_config, make_engine
from vllm_ascend_spec.methods.ngram.drafter import NgramDrafter

config = make_config(4, prompt_lookup_min=2, prompt_lookup_max=4)
if sys.argv[1] == "vllm":
    proposer = NgramProposer(config)
else:
    runner = SimpleNamespace(input_batch=make_batch())
    proposer = NgramDrafter.create(make_engine(config, runner))
    proposer.warm_up()
chance, drafts = random.Random(3), []
for _ in range(200):
    lengths = [chance.randint(1, MAX_LENGTH) for _ in range(6)]
    batch = make_batch(*([chance.randint(0, 3) for _ in range(n)] for n in lengths))
    sampled = [[0] * chance.randint(0, 2) for _ in lengths]
    arrays = (batch.num_tokens_no_spec, batch.token_ids_cpu)
    drafts.append(proposer.propose(chance.randint(0, 4), sampled, *arrays))
sys.stdout.write(json.dumps([drafts, pool._is_initialized]))
"""


def searches(script: Path, whose: str) -> tuple[list[Any], bool]:
    """Return the drafts for many random batches, and whether Numba's threads were started."""
    printed = succeed("python", str(script), whose, PYTHONPATH=str(ROOT), **small())
    return json.loads(printed.splitlines()[-1])


def test_drafts_are_vllms_without_its_threads(tmp_path: Path) -> None:
    """They would change the number of OpenMP threads of the whole process, so it is not this."""
    script = tmp_path / "searches.py"
    script.write_text(SEARCHES)
    ours, started = searches(script, "ours")
    theirs, theirs_started = searches(script, "vllm")
    assert ours == theirs
    assert sum(map(bool, (row for drafts in ours for row in drafts))) > 100
    assert (started, theirs_started) == (False, True)
