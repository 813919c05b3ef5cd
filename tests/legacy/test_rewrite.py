"""Commands and scripts get the new option; everything else stays, letter by letter."""

from __future__ import annotations

import json
import shlex
import subprocess

import pytest

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.legacy.rewrite import BROKEN_NOTE, rewrite
from vllm_ascend_spec.legacy.shell import commands

SERVE = "vllm serve org/target"
NGRAM = """--speculative-config '{"method": "ngram", "num_speculative_tokens": 5}'"""


def words(text: str) -> list[list[str]]:
    return [[word.text for word in command] for command in commands(text) if command]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a b 'c d' \"e f\" g\\ h", [["a", "b", "c d", "e f", "g h"]]),
        ("a \\\n  b # no word\nc", [["a", "b"], ["c"]]),
        ("x=1 y='2 3' run --flag=a'b'c", [["x=1", "y=2 3", "run", "--flag=abc"]]),
        ("a && b || c; d | e & f", [["a"], ["b"], ["c"], ["d"], ["e", "f"]]),
        ("echo '#' a#b \"#\" # c d", [["echo", "#", "a#b", "#"]]),
        ('a "b \\" c" d', [["a", 'b " c', "d"]]),
        ("run > log 2>&1", [["run", "log"]]),
        ("a $(b 'c d') `e f` ${g}", [["a", "$(b 'c d')", "`e f`", "${g}"]]),
    ],
)
def test_words_are_those_of_a_shell(text: str, found: list[list[str]]) -> None:
    assert words(text) == found
    if len(found) == 1 and not any(mark in text for mark in "=$>"):
        show = "show() { printf '%s\\0' \"$@\"; }; "
        shown = subprocess.run(
            ["bash", "-c", f"{show}show {text}"], capture_output=True, text=True, check=True
        )
        assert shown.stdout.split("\0")[:-1] == found[0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (f"{SERVE} --speculative-model [ngram] --num-speculative-tokens 5", f"{SERVE} {NGRAM}"),
        (f"{SERVE} --speculative_model='[ngram]' --num_speculative_tokens=5", f"{SERVE} {NGRAM}"),
        (
            f"{SERVE} --num-speculative-tokens 5 --port 80 --speculative-model [ngram] -tp 2",
            f"{SERVE} {NGRAM} --port 80 -tp 2",
        ),
        (f"{SERVE} --use-v2-block-manager --port 80", f"{SERVE} --port 80"),
        (f"{SERVE} --speculative-model '' --port 80", f"{SERVE} --port 80"),
        (f"{SERVE} --disable-logprobs-during-spec-decoding --port 80", f"{SERVE} --port 80"),
        (f"{SERVE} --disable-logprobs-during-spec-decoding False -tp 2", f"{SERVE} -tp 2"),
        (f"{SERVE} --disable-logprobs-during-spec-decoding", SERVE),
        (
            "docker run --rm -it --device /dev/davinci0 -v /m:/m quay.io/ascend/vllm-ascend "
            "vllm serve /m/t --speculative-model [ngram] --num-speculative-tokens 5 --port 1",
            "docker run --rm -it --device /dev/davinci0 -v /m:/m quay.io/ascend/vllm-ascend "
            f"vllm serve /m/t {NGRAM} --port 1",
        ),
        (
            "docker run image --model t --speculative-model [ngram] --num-speculative-tokens 5",
            f"docker run image --model t {NGRAM}",
        ),
        (
            f"# first\nA=1 nohup {SERVE} \\\n  --speculative-model [ngram] \\\n"
            "  --num-speculative-tokens 5 \\\n  --port 80 > log 2>&1 &  # last\necho done\n",
            f"# first\nA=1 nohup {SERVE} \\\n  {NGRAM} \\\n"
            "  --port 80 > log 2>&1 &  # last\necho done\n",
        ),
    ],
)
def test_commands_are_written_anew(old: str, new: str) -> None:
    result = rewrite(old)
    assert result.text == new
    assert result.count == 1
    # Nothing is left to do.
    assert rewrite(new).text == new
    assert rewrite(new).count == 0


def test_a_script_in_a_script() -> None:
    inner = f"{SERVE} --speculative-model [ngram] --num-speculative-tokens 5"
    old = f"docker run image bash -c {shlex.quote('cd /m && ' + inner)}"
    new = rewrite(old).text
    script = shlex.split(new)[-1]
    assert script == f"cd /m && {SERVE} {NGRAM}"
    expanding = rewrite(f'docker run image bash -c "{inner} --port $PORT"').text
    assert expanding.endswith(' --port $PORT"')
    shown = subprocess.run(
        ["bash", "-c", f"PORT=80; docker() {{ printf '%s' \"$5\"; }}; {expanding}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown == f"{SERVE} {NGRAM} --port 80"


VARIABLES = """\
base_model=/path/to/base
spec_model=org/EAGLE-head
spec_step=3
python -m vllm.entrypoints.openai.api_server \\
--model=${base_model} \\   # 大模型权重地址
--speculative-model=${spec_model} \\   # 投机小模型权重地址
--num-speculative-tokens=${spec_step} \\ #投机步数
--port 9999
"""


def test_variables_stay_and_comments_behind_backslashes_go() -> None:
    result = rewrite(VARIABLES)
    assert result.text == (
        "base_model=/path/to/base\nspec_model=org/EAGLE-head\nspec_step=3\n"
        "python -m vllm.entrypoints.openai.api_server \\\n--model=${base_model} \\\n"
        '--speculative-config "{\\"method\\": \\"eagle\\", \\"model\\": \\"${spec_model}\\", '
        '\\"num_speculative_tokens\\": ${spec_step}}" \\\n--port 9999\n'
    )
    assert BROKEN_NOTE in result.notes
    # What a shell makes of it.
    asked = result.text.replace("python", "show")
    shown = subprocess.run(
        ["bash", "-c", f"show() {{ printf '%s' \"$5\"; }}\n{asked}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert json.loads(shown) == {
        "method": "eagle",
        "model": "org/EAGLE-head",
        "num_speculative_tokens": 3,
    }


def test_a_variable_that_nobody_sets_is_told() -> None:
    result = rewrite(f'{SERVE} --speculative-model "$DRAFT" --num-speculative-tokens $K')
    assert '\\"model\\": \\"$DRAFT\\", \\"num_speculative_tokens\\": $K}"' in result.text
    assert any("--speculative-model $DRAFT is filled in later" in note for note in result.notes)


def test_text_without_old_options_stays() -> None:
    text = f"# --speculative-model in a comment\n{SERVE} {NGRAM}; echo \"$(date)\" 'a\\b'\n"
    result = rewrite(text)
    assert (result.text, result.count, result.notes) == (text, 0, [])


def test_two_commands_of_a_script() -> None:
    one = f"{SERVE} --speculative-model [ngram] --num-speculative-tokens 5"
    result = rewrite(f"{one} &\nif true; then {one}; fi\n")
    assert result.count == 2
    assert result.text == f"{SERVE} {NGRAM} &\nif true; then {SERVE} {NGRAM}; fi\n"


def test_the_target_of_a_command_tells_too() -> None:
    result = rewrite("M=/m/DeepSeek-V3; vllm serve $M --num-speculative-tokens 1 --port 1")
    assert '{"method": "mtp", "num_speculative_tokens": 1}' in result.text


@pytest.mark.parametrize(
    ("old", "option"),
    [
        (f"{SERVE} --speculative-model a {NGRAM}", "--speculative-model='a': contradicts"),
        (f"{SERVE} --speculative-model a --spec-tokens 3", "--speculative-model='a': contradicts"),
        (f"{SERVE} --speculative-model a --speculative_model b", "--speculative-model='b': is giv"),
        (f"{SERVE} --num-speculative-tokens five", "--num-speculative-tokens='five': valid: a who"),
        (f"{SERVE} --speculative-model", "--speculative-model=None: has no value"),
        (f"{SERVE} --num-speculative-tokens 5", "--num-speculative-tokens=5: has no effect"),
    ],
)
def test_contradictions_are_refused(old: str, option: str) -> None:
    with pytest.raises(ConfigError) as raised:
        rewrite(old)
    assert str(raised.value).startswith(option)
