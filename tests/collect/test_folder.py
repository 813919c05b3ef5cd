"""The folder of collected requests: bounded, whole lines, for its owner alone."""

from __future__ import annotations

import errno
import multiprocessing
import os
from pathlib import Path

import pytest

from vllm_ascend_spec.collect import folder as module
from vllm_ascend_spec.collect.folder import CollectedFolder, collected_files, size_of

LINE = b"x" * 99 + b"\n"


def opened(path: Path, max_bytes: int = 10**6) -> CollectedFolder:
    folder = CollectedFolder(path, max_bytes)
    folder.open()
    return folder


def read(path: Path) -> bytes:
    return b"".join(each.read_bytes() for each in sorted(collected_files(path)))


def test_folder_and_files_are_their_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "above" / "prompts"
    opened(path).append([LINE])
    assert path.stat().st_mode & 0o777 == 0o700
    assert {each.stat().st_mode & 0o777 for each in path.iterdir()} == {0o600}


def test_a_folder_that_is_there_keeps_its_mode_and_its_other_files(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    other = tmp_path / "collected-mine.jsonl"
    other.write_bytes(b"no newline at its end")
    opened(tmp_path).append([LINE])
    assert tmp_path.stat().st_mode & 0o777 == 0o750
    assert other.read_bytes() == b"no newline at its end"
    assert size_of(tmp_path) == len(LINE)


def test_what_does_not_fit_is_not_written(tmp_path: Path) -> None:
    folder = opened(tmp_path, 5 * len(LINE) + 50)
    assert folder.append([LINE] * 3) == 3
    assert folder.append([LINE] * 3) == 2
    assert folder.append([LINE]) == 0
    assert read(tmp_path) == LINE * 5


def test_the_bound_counts_what_was_there_before(tmp_path: Path) -> None:
    opened(tmp_path, 2 * len(LINE)).append([LINE])
    later = opened(tmp_path, 2 * len(LINE))
    assert later.append([LINE, LINE]) == 1
    for path in collected_files(tmp_path):
        path.unlink()
    assert later.append([LINE, LINE]) == 2, "there is room again when files are taken away"


def test_another_file_is_begun_when_one_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FILE_BYTES", 2 * len(LINE))
    folder = opened(tmp_path)
    for _ in range(5):
        folder.append([LINE])
    sizes = [path.stat().st_size // len(LINE) for path in sorted(collected_files(tmp_path))]
    assert sizes == [2, 2, 1]


def test_files_that_are_moved_do_not_replace_each_other(tmp_path: Path) -> None:
    """The last one, too, which is still written to."""
    folder, away = opened(tmp_path / "prompts"), tmp_path / "away"
    away.mkdir()
    for _ in range(3):
        folder.append([LINE])
        for path in collected_files(tmp_path / "prompts"):
            path.rename(away / path.name)
    assert read(away) == LINE * 3


def test_files_may_be_taken_away_at_any_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the listing of a folder and a look at its files."""
    gone = tmp_path / "collected-01234567-0001.jsonl"
    listed = module.collected_files
    monkeypatch.setattr(module, "collected_files", lambda folder: [gone, *listed(folder)])
    folder = opened(tmp_path)
    assert folder.append([LINE]) == 1
    assert size_of(tmp_path) == len(LINE)


def write_many(path: Path, max_bytes: int) -> None:
    folder = opened(path, max_bytes)
    for _ in range(200):
        folder.append([LINE] * 3)


def test_processes_together_keep_the_bound(tmp_path: Path) -> None:
    context, most = multiprocessing.get_context("fork"), 1000 * len(LINE)
    writers = [context.Process(target=write_many, args=(tmp_path, most)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    assert read(tmp_path) == LINE * 1000
    assert len(collected_files(tmp_path)) > 1


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = opened(tmp_path)
    folder.append([LINE])
    write, room = os.write, 250

    def limited(file: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = write(file, data[:room])
        room -= done
        return done

    monkeypatch.setattr(os, "write", limited)
    with pytest.raises(OSError, match="No space left"):
        folder.append([LINE] * 5)
    assert read(tmp_path) == LINE
    monkeypatch.undo()
    assert folder.append([LINE]) == 1
    assert read(tmp_path) == LINE * 2


def test_a_line_that_a_killed_process_began_is_cut_off(tmp_path: Path) -> None:
    opened(tmp_path).append([LINE])
    (torn,) = collected_files(tmp_path)
    with torn.open("ab") as file:
        file.write(b'{"target": "a')
    opened(tmp_path).append([LINE])
    assert read(tmp_path) == LINE * 2


def test_links_are_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "another's"
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / module.LOCK).symlink_to(target)
    with pytest.raises(OSError, match="symbolic link"):
        opened(tmp_path / "prompts")
    assert not target.exists()


def test_a_folder_that_is_taken_away_is_not_made_again(tmp_path: Path) -> None:
    """So that collecting can be stopped at once."""
    folder = opened(tmp_path / "prompts")
    (tmp_path / "prompts").rename(tmp_path / "away")
    with pytest.raises(FileNotFoundError):
        folder.append([LINE])
    assert not (tmp_path / "prompts").exists()
