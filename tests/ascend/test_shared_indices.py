"""Draft steps 2 to K of sparse attention that attend to what step 1 has selected.

GLM-5's checkpoints ask for it by ``index_share_for_mtp_iteration``. Here the zoo's DeepSeek V3.2
does; it was not trained so, which makes its drafts worse, not its answers.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.ascend.environment import NPU
from tests.ascend.matrix import Case
from tests.ascend.processes import assert_same_drafts, tokens_of
from tests.ascend.targets.mla import MLA_ENVIRONMENT
from tests.ascend.targets.sparse import SPARSE_CASES, SPARSE_MODEL
from tests.engines import assert_same

pytestmark = pytest.mark.timeout(900)
ENVIRONMENT = {**NPU, **MLA_ENVIRONMENT}
MODES = ("full_decode_only", pytest.param("eager", marks=pytest.mark.nightly))


@pytest.fixture(scope="module")
def sharing(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder of a checkpoint that asks for it."""
    folder = tmp_path_factory.mktemp("sharing")
    for file in Path(SPARSE_MODEL).iterdir():
        (folder / file.name).symlink_to(file)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").unlink()
    # Layers keep what they select where a checkpoint has this, too.
    asked = {**config, "index_share_for_mtp_iteration": True, "use_index_cache": True}
    (folder / "config.json").write_text(json.dumps(asked))
    return str(folder)


def case_of(mode: str, model: str, loop: str) -> Case:
    """Return an engine with that draft loop; the option is refused where the loop cannot be."""
    case = SPARSE_CASES[f"sparse-{mode}"]
    return replace(
        case,
        requests=("greedy",),
        watched=False,
        engine={"additional_config": {"ascend_spec": {"draft_loop": loop}}},
        options={**case.options, "model": model},
    )


@pytest.mark.parametrize("mode", MODES)
def test_drafts_are_those_of_vllm_ascends_loop(mode: str, sharing: str, run_engine: Any) -> None:
    stock = run_engine(case_of("eager", sharing, "stock"), ENVIRONMENT)
    ours = run_engine(case_of(mode, sharing, "ours"), ENVIRONMENT)
    assert_same_drafts(ours, stock, "greedy")
    alone = run_engine(SPARSE_CASES["sparse-eager"], ENVIRONMENT)
    assert_same(tokens_of(ours, "greedy"), tokens_of(alone, "greedy"))
    # Of the same answers, others were drafted: later steps do not select their own.
    assert ours["drafts_of"]["greedy"] != alone["drafts_of"]["greedy"]
