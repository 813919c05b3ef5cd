"""Training reads what was collected."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.collect.test_collector import DONE, collect, collecting
from vllm_ascend_spec.collect.folder import collected_files
from vllm_ascend_spec.collect.record import Finished
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training import prompt_files
from vllm_ascend_spec.training.prompt_files import check_prompts, read_prompts
from vllm_ascend_spec.training.prompts import Recorded


@pytest.mark.parametrize("has_text", [True, False])
def test_a_folder_of_several_processes_is_a_folder_of_prompts(
    has_text: bool, tmp_path: Path
) -> None:
    """A text beside the token ids does not make another prompt of them."""
    what = collecting(tmp_path, has_text=has_text)
    collect(what, DONE, Finished((7, 8), (9,), "length", "问\u2028", "答"))
    collect(what, DONE)
    collect(what, Finished((6,), (5,), "stop"), target=None)
    found = {prompt.token_ids: prompt for prompt in read_prompts("--prompts", tmp_path)}
    assert found.keys() == {(1, 2, 3), (7, 8), (6,)}
    assert found[1, 2, 3].recorded == Recorded("abc", (4, 5), "stop")
    assert found[7, 8].recorded == Recorded("abc", (9,), "length")
    assert found[6,].recorded is None, "nobody knows which target answered"
    assert not any(prompt.text or prompt.messages for prompt in found.values())
    check_prompts("--prompts", tmp_path, has_template=False)


def test_a_line_that_a_server_still_writes_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or one that was killed. The end of another's file may have no newline."""
    said: list[tuple[int, str]] = []
    monkeypatch.setattr(prompt_files, "log_once", lambda *line: said.append(line))
    collect(collecting(tmp_path), DONE)
    (path,) = collected_files(tmp_path)
    with path.open("ab") as file:
        file.write('{"prompt": "问'.encode()[:-1])
    (tmp_path / "mine.jsonl").write_text('{"prompt": "mine"}')
    check_prompts("--prompts", tmp_path, has_template=False)
    found = [prompt.token_ids or prompt.text for prompt in read_prompts("--prompts", tmp_path)]
    assert found == [(1, 2, 3), "mine"]
    line = (logging.WARNING, f"{path}: line 2 has no end and is left out")
    assert said == [line, line]  # by the check, and by the reader


def test_a_wrong_line_of_a_server_is_told(tmp_path: Path) -> None:
    collect(collecting(tmp_path), DONE)
    (path,) = collected_files(tmp_path)
    with path.open("ab") as file:
        file.write(b'{"prompt"\n')
    with pytest.raises(ConfigError, match="line 2: is not JSON"):
        check_prompts("--prompts", tmp_path, has_template=False)
