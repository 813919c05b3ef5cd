"""A device of another package, from the text of ``docs/add_device.md``; no file of ours changes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.worked_examples import ROOT, files_of, install, run, with_path

PAGE = ROOT / "docs" / "add_device.md"
COMMAND = "import sys; from vllm_ascend_spec.cli.main import main; sys.exit(main(sys.argv[1:]))"
TARGET = "examples/zoo/target"
# One engine with speculation on the box, and what it said without.
ENGINE = """
import json, sys
from tests.engines import ENGINE
from vllm import LLM, SamplingParams
from vllm.platforms import current_platform

greedy = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
prompt = "def f(x):\\n    return x\\n\\ndef g(x):\\n    return"
spec = {"method": "ngram", "num_speculative_tokens": 2}
answers = []
for given in (None, spec):
    llm = LLM(**ENGINE, speculative_config=given)
    answers.append(list(llm.generate(prompt, greedy, use_tqdm=False)[0].outputs[0].token_ids))
    drafts = {m.name: getattr(m, "value", None) for m in llm.get_metrics()}
    llm.llm_engine.engine_core.shutdown()
found = [*answers, drafts["vllm:spec_decode_num_drafts"], type(current_platform).__name__]
open(sys.argv[1], "w").write(json.dumps(found))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = install(PAGE, tmp_path_factory.mktemp("site_packages"))
    found = with_path(folder, OUR_BOX="1")
    found.pop("VLLM_ASCEND_SPEC_DEVICE", None)
    return found


def command(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return run("-c", COMMAND, *words, environment=environment)


def check(environment: dict[str, str], **spec: object) -> subprocess.CompletedProcess[str]:
    given = json.dumps({"method": "ngram", **spec})
    return command(environment, "check", "--light", "--json", TARGET, "--speculative-config", given)


def test_the_page_writes_the_package() -> None:
    assert list(files_of(PAGE)) == [
        "box_device/__init__.py",
        "box_device/platform.py",
        "pyproject.toml",
    ]


def test_it_is_found(environment: dict[str, str]) -> None:
    report = json.loads(command(environment, "info", "--json").stdout)
    assert report["device"] == "box"
    assert report["platform"] == "box_device.platform.BoxPlatform"


def test_elsewhere_it_is_not_there(environment: dict[str, str]) -> None:
    elsewhere = {name: value for name, value in environment.items() if name != "OUR_BOX"}
    assert json.loads(command(elsewhere, "info", "--json").stdout)["device"] == "cpu"


def test_its_limit_on_drafts_counts(environment: dict[str, str]) -> None:
    assert check(environment, num_speculative_tokens=2).returncode == 0
    refused = check(environment, num_speculative_tokens=3)
    assert refused.returncode == 2
    assert "num_speculative_tokens" in refused.stderr
    assert "2" in refused.stderr


def test_its_own_rule_counts(environment: dict[str, str]) -> None:
    schedule = [[1, 4, 2], [5, 8, 1]]
    refused = check(
        environment, num_speculative_tokens=2, num_speculative_tokens_per_batch_size=schedule
    )
    assert refused.returncode == 2
    assert "has no effect on our box" in refused.stderr


@pytest.mark.e2e
def test_an_engine_runs_on_it(environment: dict[str, str], tmp_path: Path) -> None:
    output = tmp_path / "answers.json"
    done = run("-c", ENGINE, str(output), environment=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    without, with_drafts, drafts, platform = json.loads(output.read_text())
    assert with_drafts == without
    assert drafts > 0
    assert platform == "BoxPlatform"
