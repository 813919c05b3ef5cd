"""The documents' blocks, run as a person runs them."""

from __future__ import annotations

from pathlib import Path

import openai
import pytest

from tests.docs import table
from tests.docs.blocks import ROOT, Block, Command, all_blocks, all_commands
from tests.docs.person import COMPILES_ALL, ONE_THREAD, run, server, shell, small, succeed
from vllm_ascend_spec.metrics.acceptance import from_prometheus

pytestmark = pytest.mark.e2e

PYTHON = [b for b in all_blocks() if b.language == "python" and table.row_of(b) is None]
(WITH_AN_ENGINE,) = (
    block for block in PYTHON if "LLM(" in block.text and block.where.startswith("README")
)
CLASSES = [block for block in PYTHON if "def propose(" in block.text]
COMMANDS = all_commands()
GUARD = 'if __name__ == "__main__":'
LOG = ("INFO", "WARNING", "(EngineCore", "(Worker")


def where(thing: Command | Block) -> str:
    return thing.where


def given(where: str) -> dict[str, str]:
    """Return what is set for an example: by night nothing for the README's, which stand for all."""
    return {} if COMPILES_ALL and where.startswith("README") else small()


def save(text: str, folder: Path) -> str:
    path = folder / "example.py"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("block", PYTHON, ids=where)
def test_python(block: Block, tmp_path: Path) -> None:
    printed = succeed("python", save(block.text, tmp_path), **given(block.where))
    if "print(" in block.text:
        assert [line for line in printed.splitlines() if line and not line.startswith(LOG)]


# By day tests/patches/test_unguarded_script.py has what makes it work.
@pytest.mark.nightly
def test_a_script_without_the_guard_works(tmp_path: Path) -> None:
    """Guides are written so; for what Python makes of it see tests/patches."""
    text = WITH_AN_ENGINE.text.replace(GUARD, "if True:")
    assert text != WITH_AN_ENGINE.text
    # Compiled, it would take a minute and show nothing more.
    script = save(text.replace("LLM(\n", "LLM(\n        enforce_eager=True,\n"), tmp_path)
    result = run("python", script, **ONE_THREAD)
    assert result.returncode == 0, result.stderr[-4000:]
    assert "vllm-ascend-spec: error" not in result.stderr


@pytest.mark.parametrize("block", CLASSES, ids=where)
def test_check_takes_the_class_of_a_block(block: Block, tmp_path: Path) -> None:
    save(block.text, tmp_path)
    name = block.text.partition("class ")[2].partition(":")[0]
    spec = f'{{"method": "custom_class", "model": "example.{name}", "num_speculative_tokens": 3}}'
    words = ("check", "--light", "examples/zoo/target", "--speculative-config", spec)
    succeed("vllm-ascend-spec", *words, PYTHONPATH=f"{ROOT}:{tmp_path}", **ONE_THREAD)


@pytest.mark.parametrize(
    "command", [c for c in COMMANDS if isinstance(table.how(c), table.Run)], ids=where
)
def test_command(command: Command) -> None:
    row = table.how(command)
    assert isinstance(row, table.Run)
    assert row.says in shell(command.text, **given(command.where))


@pytest.mark.parametrize(
    "command", [c for c in COMMANDS if isinstance(table.how(c), table.Serve)], ids=where
)
def test_server(command: Command) -> None:
    """By day none is compiled but the demo's: tests/e2e/test_examples.py."""
    with (
        server(command.text, **small()) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="EMPTY", max_retries=0) as client,
    ):
        (model,) = client.models.list().data
        answer = client.completions.create(
            model=model.id, prompt="import os\n\ndef ", temperature=0
        )
        assert answer.choices[0].text
        assert from_prometheus(running.metrics()).num_drafts > 0
    assert not running.is_healthy()
