"""Prompts are read from files and folders one by one; a wrong line is named."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.zoo import TARGET
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training.prompt_files import check_prompts, has_chat_template, read_prompts

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
LINES = [{"prompt": "a\u2028b"}, CHAT, {"prompt": "c"}, {"prompt": "a\u2028b"}]
WRITTEN = "\ufeff" + "\n\n".join(json.dumps(each, ensure_ascii=False) for each in LINES)


def texts(path: Path) -> list[str]:
    return [each.text for each in read_prompts("--prompts", path)]


def told(path: Path, has_template: bool = True) -> str:
    with pytest.raises(ConfigError) as raised:
        check_prompts("--prompts", path, has_template)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_lines_are_read_once_each(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(WRITTEN)
    assert texts(path) == ["a\u2028b", "", "c"]
    assert [each.place.number for each in read_prompts("--prompts", path)] == [1, 3, 5]
    check_prompts("--prompts", path, True)


def test_plain_text_has_a_prompt_a_line(tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    path.write_text("one\r\n \n  two \n{3}")
    assert texts(path) == ["one", "two", "{3}"]


def test_a_file_is_read_as_far_as_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": "b"}\nno JSON\n')
    assert [p.text for p in itertools.islice(read_prompts("--prompts", path), 2)] == ["a", "b"]


def test_a_folder_of_lines_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"prompt": name}))
    (tmp_path / "README.md").write_text("not read")
    assert texts(tmp_path) == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"prompt": "a"}\n{"prompt"\n', "line 2: is not JSON"),
        (b'{"prompt": "a"}\n[1]\n', "line 2: is not a JSON object"),
        (b'{"prompt": "a"}\n\n{"prompt": "\xff"}', "line 3: is not UTF-8; valid: UTF-8, "),
        (b"[" * 100_000, "line 1: is not JSON"),
        (b"", "has no prompts"),
        (b"\n \n", "has no prompts"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(content)
    assert f"p.jsonl': {problem}" in told(path)


def test_paths_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    assert "does not exist; valid: a file *.jsonl" in told(tmp_path / "p")
    assert "cannot be read: No such file" in told(tmp_path / "p.jsonl")
    assert "has no file that can be read" in told(tmp_path)
    (tmp_path / "p.csv").write_text("a")
    assert "has none of the known endings" in told(tmp_path / "p.csv")


def test_a_conversation_needs_a_chat_template(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(WRITTEN)
    assert "line 3: is a conversation, and the target's tokenizer has no chat" in told(path, False)


def test_a_chat_template_is_found_wherever_it_may_be(tmp_path: Path) -> None:
    assert has_chat_template(Path(TARGET))
    assert not has_chat_template(tmp_path)
    config = tmp_path / "tokenizer_config.json"
    config.write_text("{}")
    assert not has_chat_template(tmp_path)
    config.write_text('{"chat_template": "{{ messages }}"}')
    assert has_chat_template(tmp_path)


@pytest.mark.parametrize("name", ["train.parquet", "data.arrow", "state.json"])
def test_a_data_set_without_its_library_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).write_bytes(b"")
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "needs the datasets library, which is not installed" in told(tmp_path)


def as_parquet(rows: list[dict[str, object]], folder: Path) -> Path:
    from datasets import Dataset

    Dataset.from_list(rows).to_parquet(folder / "train-00000-of-00001.parquet")
    Dataset.from_list([{"prompt": "of another split"}]).to_parquet(folder / "test-0.parquet")
    return folder


def as_one_file(rows: list[dict[str, object]], folder: Path) -> Path:
    return as_parquet(rows, folder) / "train-00000-of-00001.parquet"


def saved(rows: list[dict[str, object]], folder: Path) -> Path:
    from datasets import Dataset

    Dataset.from_list(rows).save_to_disk(folder)
    return folder


def saved_splits(rows: list[dict[str, object]], folder: Path) -> Path:
    from datasets import Dataset, DatasetDict

    found = Dataset.from_list(rows)
    DatasetDict({"test": found.select([0]), "train": found}).save_to_disk(folder)
    return folder


def as_arrow(rows: list[dict[str, object]], folder: Path) -> Path:
    saved(rows, folder)
    (folder / "state.json").unlink()
    return folder


@pytest.mark.parametrize("write", [as_parquet, as_one_file, saved, saved_splits, as_arrow])
def test_a_data_set_gives_what_lines_give(
    tmp_path: Path, write: Callable[[list[dict[str, object]], Path], Path]
) -> None:
    pytest.importorskip("datasets", reason="the datasets library is not installed")
    # A data set has every column in each row.
    path = write([{"prompt": None, "messages": None, **row} for row in LINES], tmp_path / "set")
    lines = tmp_path / "p.jsonl"
    lines.write_text(WRITTEN)
    found = list(read_prompts("--prompts", path))
    assert found == list(read_prompts("--prompts", lines))
    assert [each.place.unit for each in found] == ["row"] * 3


def test_several_splits_and_damaged_tables_are_told(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the datasets library is not installed")
    found = datasets.Dataset.from_list([{"prompt": "a"}])
    datasets.DatasetDict({"a": found, "b": found}).save_to_disk(tmp_path / "set")
    assert "has several splits; valid: the folder of one of a, b" in told(tmp_path / "set")
    (tmp_path / "x.parquet").write_bytes(b"no table")
    assert "x.parquet': cannot be read as a data set" in told(tmp_path / "x.parquet")
    path = as_parquet([{"prompt": os.urandom(99).hex()} for _ in range(999)], tmp_path / "torn")
    (file,) = path.glob("train-*")
    content = bytearray(file.read_bytes())
    content[50:-2000] = b"x" * (len(content) - 2050)
    file.write_bytes(content)
    assert "torn': cannot be read as a data set" in told(path)
    found = datasets.Dataset.from_list([{"prompt": "a"}, {"prompt": ""}])
    found.save_to_disk(tmp_path / "wrong")
    assert 'row 2: "prompt" has to be a text' in told(tmp_path / "wrong")
