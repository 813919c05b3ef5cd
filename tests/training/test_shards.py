"""The store of hidden states: size, refusals, kills at any time, and a fixed order."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.training.killed_writer import LAYOUT, SAMPLES, SHARD_BYTES, WIDTH, check, fill, sample
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training.shard_layout import Layout, require_room
from vllm_ascend_spec.training.shards import INDEX, ShardReader, open_writer


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store") / "states"
    fill(folder)
    return folder


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> Path:
    """A copy of a full store, to be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "states"))


def told(do: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as raised:
        do()
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_what_was_written_is_read(whole: Path) -> None:
    assert check(whole) == SAMPLES
    assert len(list(whole.glob("shard-*"))) > 10
    assert not list(whole.glob("*.tmp"))
    found = ShardReader(whole).read(sample(7).id)
    assert found.token_ids.dtype == torch.int64
    assert found.loss_mask.dtype == torch.bool


def test_the_announced_size_is_the_true_one(whole: Path) -> None:
    tokens = sum(ShardReader(whole).lengths.values())
    taken = sum(each.stat().st_size for each in whole.glob("shard-*"))
    states = tokens * 3 * WIDTH * 2
    assert states < taken <= LAYOUT.bytes_of(tokens)
    large = Layout("target", (2, 18, 33, 36), 4096, "bfloat16")
    assert large.describe(10_000_000) == (
        "hidden states: 10,000,000 tokens x 4 layers x 4096 x 2 bytes = 331.0 GB"
    )


def test_a_disk_that_is_too_small_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there"
    free = shutil.disk_usage(tmp_path).free
    require_room("--output", folder, LAYOUT, int(free * 0.9 / LAYOUT.bytes_per_token))
    most = int(free * 1.1 / LAYOUT.bytes_per_token)
    message = told(lambda: require_room("--output", folder, LAYOUT, most))
    assert f"hidden states: {most:,} tokens x 3 layers x 1024 x 2 bytes = " in message
    assert "are free" in message
    assert "valid: another disk, or up to " in message
    assert not folder.parent.exists()


def test_the_order_is_that_of_the_ids(whole: Path, tmp_path: Path) -> None:
    backwards = tmp_path / "backwards"
    with open_writer("--output", backwards, LAYOUT, 3 * SHARD_BYTES) as writer:
        for number in reversed(range(SAMPLES)):
            writer.add(sample(number))
    assert list(ShardReader(backwards).lengths) == list(ShardReader(whole).lengths)


# A kill can come between any two of these steps: the random kills below hit them by chance.
def torn_index_line(store: Path) -> None:
    text = (store / INDEX).read_text()
    (store / INDEX).write_text(text[: text.rindex('"ids"')])


def no_index_line(store: Path) -> None:
    lines = (store / INDEX).read_text().splitlines(keepends=True)
    (store / INDEX).write_text("".join(lines[:-1]))


def no_index(store: Path) -> None:
    (store / INDEX).unlink()


def half_a_shard(store: Path) -> None:
    last = sorted(store.glob("shard-*"))[-1]
    last.with_name("shard-99999.safetensors.tmp").write_bytes(last.read_bytes()[:1000])


@pytest.mark.parametrize("leave", [torn_index_line, no_index_line, no_index, half_a_shard])
def test_what_a_killed_process_leaves_is_mended(store: Path, leave: Callable[[Path], None]) -> None:
    leave(store)
    before = check(store)
    assert before == SAMPLES or leave is not half_a_shard
    shards = sorted(store.glob("shard-?????.safetensors"))
    fill(store)
    assert check(store) == SAMPLES
    # Nothing was computed again.
    assert sorted(store.glob("shard-*")) == shards


def test_processes_killed_at_random_times_leave_nothing_damaged(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.training.killed_writer", str(tmp_path), "20", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    killed, *stored = map(int, done.stdout.split())
    assert stored[-1] == SAMPLES
    assert killed >= 3, stored
    # They were killed in the middle of it, not only before the first shard.
    assert len({count for count in stored if 0 < count < SAMPLES}) >= 2, stored


def test_two_processes_do_not_write_to_one_folder(store: Path) -> None:
    with open_writer("--output", store, LAYOUT):
        # The lock belongs to an open file, so a second one in this process is another's, too.
        assert "another process writes hidden states there" in told(lambda: fill(store))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"layers": (1, 2)}, "with layers (1, 2, 4), not (1, 2)"),
        ({"target": "other"}, "with target 'target', not 'other'"),
        ({"dtype": "float32"}, "with dtype 'bfloat16', not 'float32'"),
    ],
)
def test_other_states_are_not_mixed_in(
    whole: Path, change: dict[str, object], problem: str
) -> None:
    layout = dataclasses.replace(LAYOUT, **change)

    def write() -> None:
        with open_writer("--output", whole, layout):
            pass

    assert f"holds hidden states {problem}" in told(write)


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert "holds something else; valid: a new folder" in told(lambda: fill(tmp_path))
    assert os.listdir(tmp_path) == ["notes.txt"]
    assert "has no layout.json that can be read" in told(lambda: ShardReader(tmp_path))


def test_a_damaged_shard_is_named(store: Path) -> None:
    first = sorted(store.glob("shard-*"))[0]
    first.write_bytes(first.read_bytes()[:-1])
    assert "shard shard-00000.safetensors (" in told(lambda: ShardReader(store))
    assert "is damaged" in told(lambda: fill(store))
    first.unlink()
    assert "(missing) is damaged" in told(lambda: ShardReader(store))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"hidden_states": torch.zeros(27, 2, WIDTH, dtype=torch.bfloat16)}, r"\[27, 2, 1024\]"),
        ({"hidden_states": torch.zeros(27, 3, WIDTH)}, "are float32"),
        ({"loss_mask": torch.zeros(3, dtype=torch.bool)}, r"loss mask is \[3\]"),
        (
            {"hidden_states": torch.full((27, 3, WIDTH), torch.nan, dtype=torch.bfloat16)},
            "not a number",
        ),
    ],
)
def test_a_sample_that_does_not_fit_is_refused(
    tmp_path: Path, change: dict[str, torch.Tensor], problem: str
) -> None:
    wrong = dataclasses.replace(sample(7), **change)
    with (
        open_writer("--output", tmp_path / "s", LAYOUT) as writer,
        pytest.raises(ValueError, match=problem),
    ):
        writer.add(wrong)


def test_what_is_whole_is_kept_when_the_program_fails(tmp_path: Path) -> None:
    def fail() -> None:
        with open_writer("--output", tmp_path / "s", LAYOUT, SHARD_BYTES) as writer:
            for number in range(62):
                writer.add(sample(number))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert 0 < check(tmp_path / "s") < 62
