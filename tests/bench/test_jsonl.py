"""Files of one JSON object a line: every error names the file, the line and what was expected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.zoo import ZOO
from vllm_ascend_spec.bench.jsonl import check_lengths, read_prompts
from vllm_ascend_spec.errors import ConfigError

ROWS = [("a", "one"), ("b", "two"), ("a", "three\u2028four")]


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    lines = [json.dumps({"category": c, "prompt": p}, ensure_ascii=False) for c, p in ROWS]
    path.write_text("\n\n".join(lines) + "\n")
    return path


def test_prompts_are_read_by_category(prompts: Path) -> None:
    assert read_prompts("--prompts", prompts) == {"a": ["one", "three\u2028four"], "b": ["two"]}
    assert read_prompts("--prompts", prompts, ["b", "a"], 1) == {"b": ["two"], "a": ["one"]}


def test_a_category_that_is_not_there(prompts: Path) -> None:
    with pytest.raises(ConfigError, match="--categories='c': valid: a, b"):
        read_prompts("--prompts", prompts, ["c"])


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{oops", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('["a", "b"]', "is not a JSON object"),
        ('{"prompt": "x"}', '"category" is missing'),
        ('{"category": "a", "prompt": 3}', '"prompt" has to be a text'),
        ('{"category": "a", "prompt": ""}', '"prompt" has to be a text'),
    ],
)
def test_a_line_that_cannot_be_used(line: str, problem: str, prompts: Path) -> None:
    with prompts.open("a") as file:
        file.write(f"\n{line}\n")
    with pytest.raises(ConfigError) as error:
        read_prompts("--prompts", prompts)
    message = str(error.value)
    assert f": line 7: {problem}" in message
    assert '{"category": "code", "prompt": "def f("}' in message
    assert "\n" not in message


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for name, content in (("missing", None), ("bytes", b"\xff"), ("empty", b"\n \n")):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigError, match=rf"--prompts=.*{name}.*lines like"):
            read_prompts("--prompts", path)


def test_what_is_too_long_is_told_before_an_engine_starts() -> None:
    check_lengths("--prompts", ["a b"], 4, 2, lambda text: len(text.split()))
    with pytest.raises(ConfigError, match=r"has 3 tokens, which with 2 .* more than .* 4"):
        check_lengths("--prompts", ["a b", "a b c"], 4, 2, lambda text: len(text.split()))


def test_a_prompt_may_have_a_limit_of_its_own() -> None:
    def check(limits: list[int | None]) -> None:
        check_lengths("--tasks", ["a b c", "a"], 4, 2, lambda text: len(text.split()), limits)

    check([1, None])
    with pytest.raises(ConfigError, match=r"with 2 \(--max-tokens\)"):
        check([None, 3])
    with pytest.raises(ConfigError, match=r"1 tokens, which with 4 \(its max_tokens\)"):
        check([1, 4])


def test_the_zoo_has_prompts_of_several_kinds() -> None:
    found = read_prompts("--prompts", ZOO / "sweep_prompts.jsonl")
    assert list(found) == ["code", "docstrings", "edits", "imports", "comments"]
    assert {len(set(texts)) for texts in found.values()} == {16}
