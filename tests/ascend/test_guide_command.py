"""The guide's command for DeepSeek V3.2 on sixteen NPUs, with the zoo's model, on two."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from examples.zoo.training import modelslim
from tests.ascend.environment import CPU, NPU, ROOT
from tests.ascend.matrix import GREEDY
from tests.ascend.prompts import NUM_PROMPTS, prompts
from tests.ascend.targets.mla import MLA_ENVIRONMENT
from tests.ascend.targets.sparse import SPARSE_MODEL
from tests.e2e.guides import MTP_ON_NPUS
from tests.engines import assert_same
from vllm_ascend_spec.bench.client import ClientLoad, run_load
from vllm_ascend_spec.bench.server import Server
from vllm_ascend_spec.metrics.acceptance import from_prometheus

NAME = "dsv3"
PROGRAM = Path(sys.executable).with_name("vllm-ascend-spec")
# Without what the guide says of speculation, and where the server listens.
_, _, _, *FLAGS = shlex.split(MTP_ON_NPUS.replace("\\\n", ""))
HEADS = ("num_attention_heads", "num_key_value_heads")


def without(flags: Sequence[str], *names: str) -> list[str]:
    """Return flags with a value each without some of them."""
    left = list(flags)
    for name in names:
        place = left.index(name)
        del left[place : place + 2]
    return left


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zoo's DeepSeek V3.2 in ModelSlim's W8A8."""
    folder = tmp_path_factory.mktemp("quantized") / "target-deepseek-v32"
    modelslim.quantize_dynamic(Path(SPARSE_MODEL), folder)
    return folder


def test_check_takes_the_command_as_it_is(model: Path) -> None:
    """For sixteen devices, with as many heads."""
    config = json.loads((model / "config.json").read_text())
    wide = model.with_name("sixteen-heads")
    wide.mkdir()
    for file in model.iterdir():
        (wide / file.name).symlink_to(file)
    (wide / "config.json").unlink()
    (wide / "config.json").write_text(json.dumps(config | dict.fromkeys(HEADS, 16)))
    done = subprocess.run(
        [PROGRAM, "check", "--json", "--device", "npu", "--", "vllm", "serve", str(wide), *FLAGS],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["speculation"]["method"]["value"] == "mtp"


def served(model: Path, flags: Sequence[str]) -> tuple[list[list[int]], int, int]:
    """Return the answers of a server on two devices, and how many drafts were made and accepted."""
    flags = without(flags, "--port")
    flags[flags.index("--tensor-parallel-size") + 1] = "2"
    environment: dict[str, Any] = dict.fromkeys(("VLLM_PLUGINS", *CPU)) | NPU | MLA_ENVIRONMENT
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "PYTHONPATH": paths}
    # The caches take nine tenths of it.
    environment |= {"NPU_SIM_DEVICES": "2", "NPU_SIM_MEMORY_GB": "1"}
    server = Server(str(model), arguments=flags, environment=environment)
    server.command[0] = str(PROGRAM)
    with server as running:
        load = ClientLoad(prompts(), GREEDY["max_tokens"], concurrency=NUM_PROMPTS)
        found = run_load(running.url, NAME, load).answers
        counted = from_prometheus(running.metrics())
    return [list(a.token_ids) for a in found], counted.num_drafts, counted.num_accepted_tokens


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_command_answers_as_without_speculation(model: Path) -> None:
    speculating, num_drafts, num_accepted = served(model, FLAGS)
    plain, *_ = served(model, without(FLAGS, "--speculative-config"))
    assert_same(speculating, plain)
    assert num_drafts > 0
    assert num_accepted > 0
