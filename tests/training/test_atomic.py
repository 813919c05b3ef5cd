"""Files are whole or not there, and a torn last line is cut off."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_ascend_spec.training.atomic import append_line, cut_torn_line, write_whole


def test_a_file_that_was_not_finished_has_not_its_name(tmp_path: Path) -> None:
    def stop(path: Path) -> None:
        path.write_text("half of the new")
        raise KeyboardInterrupt

    path = tmp_path / "file"
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, stop)
    assert not path.exists()
    write_whole(path, lambda temporary: temporary.write_text("old"))
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, stop)
    assert path.read_text() == "old"
    write_whole(path, lambda temporary: temporary.write_text("new"))
    assert path.read_text() == "new"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        ("", ""),
        ("torn", ""),
        ("a\n", "a\n"),
        ("a\ntorn", "a\n"),
        ("a\n\n" + "t" * 200_000, "a\n\n"),
        ("a" * 65_536 + "\n" + "t" * 65_536, "a" * 65_536 + "\n"),
    ],
)
def test_a_torn_line_is_cut_off(tmp_path: Path, found: str, kept: str) -> None:
    path = tmp_path / "lines"
    cut_torn_line(path)
    assert not path.exists()
    path.write_text(found)
    cut_torn_line(path)
    append_line(path, "next")
    assert path.read_text() == kept + "next\n"
