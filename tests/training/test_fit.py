"""Phase d of ``train``: the library trains a head, here of tiny data on a CPU."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.docs.person import COMPILES_ALL, ONE_THREAD, environment
from tests.training.fit_inputs import texts, write_inputs
from tests.warm.programs import Programs
from tests.zoo import SHALLOW, ZOO
from vllm_ascend_spec.training.library.checkpoints import mend
from vllm_ascend_spec.training.library.dataset import train_share
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.settings import Settings

pytestmark = pytest.mark.skipif(find_spec("speculators") is None, reason="needs speculators")

TARGET = SHALLOW / "target"
STEPS, TOKENS = 24, 256
TINY = Settings(
    model=TARGET,
    method="eagle3",
    prompts=(),
    output=Path(),
    layers=(1, 2, 3),
    steps=STEPS,
    learning_rate=3e-3,
    library=("--total-seq-len", str(TOKENS)),
)
# The phase with a recipe of one step.
ONE_STEP = """
import dataclasses, sys
from vllm_ascend_spec.training import methods
from vllm_ascend_spec.training.phases import run

methods.SCRATCH = dataclasses.replace(methods.SCRATCH, steps=1)
run.leave(run.main(sys.argv[1:]))
"""
PHASE = ("-m", "vllm_ascend_spec.training.phases.run")
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """Return what starts the phase in an output folder; phase and program may be others.

    Importing the library takes longer than all else here, so by day processes are copies of one
    that has; test_train_command.py starts the phase from nothing.
    """
    modules = ("speculators.train.cli", "speculators.train.trainer")
    with contextlib.ExitStack() as stack:
        variables = environment(**ONE_THREAD)
        if not COMPILES_ALL:
            programs = stack.enter_context(closing(Programs(variables, modules)))
            variables |= programs.variables

        def start(output: Path, *program: str, phase: str = "fit") -> subprocess.Popen[str]:
            return subprocess.Popen(
                ["python", *(program or PHASE), phase, str(output)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=variables,
            )

        yield start


Train = Callable[..., str]


@pytest.fixture(scope="module")
def train(start: Start) -> Train:
    """Return what runs the phase to its end, and returns what it has shown."""

    def train(output: Path, *program: str, phase: str = "fit") -> str:
        process = start(output, *program, phase=phase)
        told = process.communicate(timeout=300)[0]
        assert process.returncode == 0, told
        return told

    return train


def logged(output: Path, part: str) -> list[dict[str, Any]]:
    lines = map(json.loads, Output(output).metrics.read_text().splitlines())
    return [line[part] for line in lines if part in line]


def digest(head: Path) -> str:
    return hashlib.sha256((head / "model.safetensors").read_bytes()).hexdigest()


def batches(output: Path) -> list[list[int]]:
    """Return the numbers of tokens of the samples in each batch of the first epoch."""
    from datasets import load_from_disk
    from speculators.train.distributed_batch_sampler import MultipackDistributedBatchSamplerV2

    lengths = list(load_from_disk(Output(output).dataset).with_format(None)["seq_len"])
    trained = lengths[: int(len(lengths) * train_share(len(lengths), 1))]
    sampler = MultipackDistributedBatchSamplerV2(TOKENS, trained, 1, 0, seed=TINY.seed)
    return [[lengths[sample] for sample in batch] for batch in sampler]


@pytest.fixture(scope="module")
def trained(train: Train, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A trained head's output folder, and what was shown."""
    output = tmp_path_factory.mktemp("fit") / "output"
    write_inputs(replace(TINY, output=output), texts(24))
    return output, train(output)


def test_a_head_learns(trained: tuple[Path, str]) -> None:
    output, told = trained
    losses = [each["loss"] for each in logged(output, "train")]
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4])
    assert f"fit: step {STEPS} of {STEPS}, loss " in told
    assert "left" in told
    assert "it/s" not in told
    assert Output(output).curves.read_bytes().startswith(b"\x89PNG")
    assert len(list(Output(output).checkpoints.glob("[0-9]*"))) <= 3


def test_it_is_measured_within_an_epoch_and_the_best_is_kept(trained: tuple[Path, str]) -> None:
    output = trained[0]
    lines = map(json.loads, Output(output).metrics.read_text().splitlines())
    found = {line["step"]: line["watched"]["loss"] for line in lines if "watched" in line}
    # Ten times in all, after every tenth of the steps.
    assert list(found) == [math.ceil(STEPS * tenth / 10) for tenth in range(1, 11)]
    best = Output(output).checkpoints / "checkpoint_best"
    assert int(best.readlink().name) == min(found, key=lambda step: found[step])


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output folder with more samples than fit a few batches."""
    output = tmp_path_factory.mktemp("large") / "output"
    write_inputs(replace(TINY, output=output), texts(24))
    return output


def test_from_scratch_all_samples_are_trained_on(train: Train, large: Path, tmp_path: Path) -> None:
    """The recipe has fewer steps than an epoch here."""
    output = Path(shutil.copytree(large, tmp_path / "output"))
    replace(TINY, output=output, steps=None).save(Output(output).settings)
    program = tmp_path / "one_step.py"
    program.write_text(ONE_STEP)
    told = train(output, str(program))
    epoch = len(batches(output))
    assert epoch > 2
    assert f"fit: step {epoch} of {epoch}, loss " in told
    assert "--steps" not in told
    measured = [line for line in told.splitlines() if "that are not trained on" in line]
    assert len(measured) == min(epoch, 10)


@pytest.mark.parametrize(("count", "watched"), [(2, 1), (400, 20), (100_000, 512)])
def test_as_many_samples_are_watched_as_tell_something(count: int, watched: int) -> None:
    """They are measured ten times, so of many samples a share would take long."""
    assert count - int(count * train_share(count, 1)) == watched


def test_samples_that_are_left_out_are_told(train: Train, large: Path, tmp_path: Path) -> None:
    output = Path(shutil.copytree(large, tmp_path / "output"))
    replace(TINY, output=output, steps=2).save(Output(output).settings)
    told = train(output)
    lengths = [sum(each) for each in batches(output)]
    all_of_them = sum(lengths)
    assert (
        f"fit: about {all_of_them * 2 // len(lengths):,} of {all_of_them:,} tokens of states are "
        f"trained on; --steps {len(lengths)} trains on all\n"
    ) in told


def test_the_head_is_what_vllm_reads(trained: tuple[Path, str]) -> None:
    from vllm_ascend_spec.checkpoint.config_json import read_config
    from vllm_ascend_spec.checkpoint.files import read_checkpoint

    head = Output(trained[0]).head
    config, tensors = read_config(head), read_checkpoint(head)
    assert config["eagle_aux_hidden_state_layer_ids"] == [1, 2, 3]
    assert tensors["fc.weight"].dtype == "BF16"
    assert not [name for name in tensors if name.startswith("verifier")]


def test_a_second_start_has_nothing_to_do(train: Train, trained: tuple[Path, str]) -> None:
    assert train(trained[0]) == ""


def test_states_of_other_tokens_teach_less(
    train: Train, trained: tuple[Path, str], tmp_path: Path
) -> None:
    """Negative control: what is learned comes from the hidden states."""
    write_inputs(replace(TINY, output=tmp_path / "shuffled"), texts(24), shuffled=True)
    train(tmp_path / "shuffled")
    # By the first draft: the later ones see states of the head's own.
    whole, shuffled = (
        sum(each["full_acc_0"] for each in logged(output, "train")[-6:])
        for output in (trained[0], tmp_path / "shuffled")
    )
    assert shuffled < 0.7 * whole


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.nightly)])
def test_killed_training_ends_with_the_same_head(
    start: Start, trained: tuple[Path, str], tmp_path: Path, kills: int
) -> None:
    output = tmp_path / "output"
    # A checkpoint after every step, and in the middle of epochs.
    write_inputs(replace(TINY, output=output, checkpoint_minutes=0), texts(24))
    draw, killed = random.Random(kills), 0
    while not Output(output).head.is_dir():
        process = start(output)
        if killed < kills:
            await_first_step(process)
            time.sleep(draw.uniform(0, 1))
            process.send_signal(signal.SIGKILL)
        told = process.communicate(timeout=300)[0]
        assert process.returncode in (0, -signal.SIGKILL), told
        killed += process.returncode != 0
        whole = [each for each in Output(output).checkpoints.glob("[0-9]*") if each.is_dir()]
        assert len(whole) <= 5
    assert killed == kills or kills > 2
    assert killed >= 2
    assert digest(Output(output).head) == digest(Output(trained[0]).head)
    lines = Output(output).metrics.read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert steps == sorted(steps)
    assert logged(output, "train") == logged(trained[0], "train")


def await_first_step(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("fit: step"):
            return


def test_ctrl_c_keeps_the_last_checkpoint(start: Start, tmp_path: Path) -> None:
    output = tmp_path / "output"
    write_inputs(replace(TINY, output=output, checkpoint_minutes=0, steps=500), texts(24))
    process = start(output)
    checkpoints = Output(output).checkpoints
    while not list(checkpoints.glob("[0-9]*/training_state.json")) and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    told = process.communicate(timeout=60)[0]
    assert process.returncode == 130
    assert "goes on from the last checkpoint" in told
    assert "Traceback" not in told
    assert mend(checkpoints) is not None


def test_a_head_of_another_form_goes_on_from_where_it_was(train: Train, tmp_path: Path) -> None:
    """The zoo's head is right before it is trained on, so nothing of it is lost."""
    settings = replace(
        TINY,
        output=tmp_path / "output",
        model=ZOO / "target",
        begin_with=ZOO / "eagle3",
        layers=(3, 7, 12),
        steps=4,
        learning_rate=1e-6,
    )
    write_inputs(settings, texts(8))
    train(settings.output, phase="vocabulary")
    train(settings.output)
    assert logged(settings.output, "train")[0]["full_acc_0"] > 0.5
    config = json.loads((Output(settings.output).head / "config.json").read_text())
    assert config["draft_vocab_size"] == 3072
    assert config["eagle_aux_hidden_state_layer_ids"] == [3, 7, 12]


@pytest.mark.nightly
@pytest.mark.parametrize("method", ["peagle", "dflash", "dspark"])
def test_other_methods_learn(train: Train, method: str, tmp_path: Path) -> None:
    settings = replace(TINY, method=method, output=tmp_path / "output")
    write_inputs(settings, texts(24))
    train(settings.output)
    losses = [each["loss"] for each in logged(settings.output, "train")]
    assert sum(losses[-4:]) < 0.9 * sum(losses[:4])


@pytest.mark.nightly
def test_two_processes_train_together(train: Train, tmp_path: Path) -> None:
    output = tmp_path / "output"
    write_inputs(replace(TINY, output=output), texts(24))
    told = train(output, "-m", "torch.distributed.run", "--nproc-per-node", "2", *PHASE)
    losses = [each["loss"] for each in logged(output, "train")]
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4])
    assert told.count(f"fit: step {STEPS} of {STEPS}") == 1
