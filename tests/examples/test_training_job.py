"""What the start script of a training job makes of what ModelArts hands over."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_ascend_spec.cli import train_options

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "modelarts" / "train.py"
PATHS = ("--model=/in/target", "--data_url=/in/prompts", "--train_url=/out")
# Stands for the command: writes down its arguments and the variables of a card.
FAKE = """#!{python}
import json, os, sys
cards = {{name: os.environ.get(name) for name in ("RANK_ID", "RANK_TABLE_FILE")}}
print(json.dumps([sys.argv[1:], cards]))
"""


def start(
    *words: str, program: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    folder = "/nowhere" if program is None else str(program)
    return subprocess.run(
        [sys.executable, SCRIPT, *words],
        env={"PATH": folder, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def printed(*words: str, **variables: str) -> str:
    done = start(*words, ASCEND_SPEC_PRINT_ONLY="true", **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_inputs_output_and_hyperparameters_are_options() -> None:
    assert printed(*PATHS, "--method=eagle3", "--max_tokens=256") == (
        "vllm-ascend-spec train /in/target --prompts /in/prompts --output /out "
        "--method eagle3 --max-tokens 256"
    )


def test_true_and_false_turn_a_switch_on_and_off() -> None:
    """The command's own parser reads them."""
    words = printed(*PATHS, "--enforce_eager=true", "--trust_remote_code=False", "--temperature=0")
    parser = argparse.ArgumentParser()
    train_options.add_arguments(parser)
    args = parser.parse_args(words.split()[2:])
    assert (args.enforce_eager, args.trust_remote_code, args.temperature) == (True, False, 0)
    assert args.enable_expert_parallel is None


def test_inputs_may_be_environment_variables() -> None:
    given = {"model": "/in/target", "data_url": "/in/prompts", "output": "/out", "from": "/in/head"}
    words = printed(**given).split()
    assert words[:3] == ["vllm-ascend-spec", "train", "/in/target"]
    assert sorted(words[3:]) == sorted(
        ["--prompts", "/in/prompts", "--output", "/out", "--from", "/in/head"]
    )
    assert "/other" in printed("--output=/other", **given).split()


def test_every_card_trains() -> None:
    assert printed(*PATHS, MA_NUM_GPUS="8").endswith("--nproc-per-node 8")
    assert printed(*PATHS, "--nproc_per_node=2", MA_NUM_GPUS="8").endswith("--nproc-per-node 2")


@pytest.mark.parametrize(
    ("words", "variables", "said"),
    [
        (PATHS[1:], {}, "--model: not set"),
        ((*PATHS, "seed"), {}, "seed: valid: --name=value"),
        ((*PATHS, "--seed", "3"), {}, "--seed: valid: --name=value"),
        (PATHS, {"MA_NUM_HOSTS": "2"}, "MA_NUM_HOSTS=2: valid: 1"),
        (PATHS, {"MA_NUM_GPUS": "all"}, "MA_NUM_GPUS=all: valid: a number"),
        (PATHS, {}, "vllm-ascend-spec is not on PATH"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    words: tuple[str, ...], variables: dict[str, str], said: str
) -> None:
    done = start(*words, **variables)
    assert done.returncode in (2, 127)
    (line,) = done.stderr.splitlines()
    assert line.startswith("train.py: error: ")
    assert said in line


def test_a_preset_image_starts_it_for_every_card_and_one_runs(tmp_path: Path) -> None:
    program = tmp_path / "vllm-ascend-spec"
    program.write_text(FAKE.format(python=sys.executable))
    program.chmod(0o755)
    cards = {"RANK_ID": "0", "RANK_SIZE": "2", "RANK_TABLE_FILE": "/user/config/jobstart.json"}
    first = start(*PATHS, program=tmp_path, ASCEND_DEVICE_ID="0", **cards)
    command, seen = first.stdout.splitlines()
    words, variables = json.loads(seen)
    assert command.split()[1:] == words
    assert set(variables.values()) == {None}
    second = start(*PATHS, program=tmp_path, ASCEND_DEVICE_ID="1", **cards)
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
