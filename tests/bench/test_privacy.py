"""Only what is listed, and looks as it should, is shown; secrets are taken out of other texts."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

import pytest

from vllm_ascend_spec.bench import privacy
from vllm_ascend_spec.bench.privacy import (
    FLAGS,
    HIDDEN,
    KEYS,
    OPTIONS,
    SECRET,
    arguments,
    environment,
    redact,
)
from vllm_ascend_spec.cli.main import build_parser


def options_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from options_of(sub)
        elif action.option_strings not in ([], ["-h", "--help"], ["--version"]):
            yield action


def test_every_option_of_ours_is_allowed() -> None:
    """Or a record would not tell how to repeat it."""
    for action in options_of(build_parser()):
        for name in action.option_strings:
            assert name in (FLAGS if action.nargs == 0 else OPTIONS), name


def test_nothing_allowed_sounds_like_a_secret() -> None:
    for name in (*privacy.VARIABLES, *OPTIONS, *KEYS):
        assert not SECRET.search(name), name


def test_environment_has_allowed_names_only() -> None:
    variables = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "OMP_NUM_THREADS": "2",
        "VLLM_CPU_OMP_THREADS_BIND": "0-31|32-63",
        "PYTORCH_NPU_ALLOC_CONF": "max_split_size_mb:256,expandable_segments:True",
        "ASCEND_HOME_PATH": "/home/somebody/Ascend",
        "VLLM_API_KEY": "SECRET",
        "ASCEND_ANYTHING": "SECRET",
        "VLLM_PLUGINS": "http://SECRET@host",
        "LD_PRELOAD": "/home/somebody/a.so:/x/b.so.5 relative/c.so:/x/S?CRET",
    }
    assert environment(variables) == {
        "ASCEND_HOME_PATH": HIDDEN,
        "LD_PRELOAD": f"a.so:b.so.5:c.so:{HIDDEN}",
        "OMP_NUM_THREADS": "2",
        "PYTORCH_NPU_ALLOC_CONF": "max_split_size_mb:256,expandable_segments:True",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "0-31|32-63",
        "VLLM_PLUGINS": HIDDEN,
    }


@pytest.mark.parametrize(
    "value",
    ["\udcff", "a\nb", "x" * 201, "a/b", "a@b", "{'a'}", "hf_" + 34 * "a", "sk-" + 40 * "b"],
)
def test_values_that_are_not_plain_are_hidden(value: str) -> None:
    assert privacy.plain(value) == HIDDEN


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("examples/zoo/target", "examples/zoo/target"),
        ("org/Name-1.5B", "org/Name-1.5B"),
        ("../weights", "../weights"),
        ("/home/somebody/weights/target", f"{HIDDEN}/target"),
        ("/", f"{HIDDEN}/"),
        ("~/weights", HIDDEN),
        ("", HIDDEN),
        ("https://user:SECRET@host/model", HIDDEN),
        ("s3://bucket/model?key=SECRET", HIDDEN),
        ('{"a": "SECRET"}', HIDDEN),
    ],
)
def test_paths(text: str, shown: str) -> None:
    assert privacy.path(text) == shown


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("bench serve --rounds 3", "bench serve --rounds 3"),
        ("bench verify --cold --batch=8,32 --output a/b.json", None),
        ("bench step --model /home/me/m", f"bench step --model {HIDDEN}/m"),
        (f"bench step --model {HIDDEN}/m", f"bench step --model {HIDDEN}/m"),
        (f"bench step --model {HIDDEN}", f"bench step --model {HIDDEN}"),
        ("bench step --temperature -1", None),
        ("--api-key SECRET", f"--api-key {HIDDEN}"),
        ("--api-key=SECRET --rounds=2", f"--api-key={HIDDEN} --rounds=2"),
        ("--api-key S1 S2 --rounds 2", f"--api-key {HIDDEN} {HIDDEN} --rounds 2"),
        ("--api-key --secret --rounds 2", f"--api-key {HIDDEN} --rounds 2"),
        ("--api-key --model SECRET:x", f"--api-key --model {HIDDEN}"),
        ("--hf-token=SECRET --hf_token SECRET", f"--hf-token={HIDDEN} --hf_token {HIDDEN}"),
        ("--ssl-keyfile-password SECRET", f"--ssl-keyfile-password {HIDDEN}"),
        ("--ssl-keyfile /x/SECRET", f"--ssl-keyfile {HIDDEN}"),
        ("--model=https://u:SECRET@h/m", f"--model={HIDDEN}"),
        ("-k SECRET -kSECRET", f"-k {HIDDEN} {HIDDEN}"),
        ("-ksecret", HIDDEN),
        ("--S3CRET", HIDDEN),
        ("--S3CRET=SECRET", f"{HIDDEN}={HIDDEN}"),
        ("SECRET bench SECRET", f"{HIDDEN} bench {HIDDEN}"),
        ("--api-key bench -- serve", f"--api-key {HIDDEN} {HIDDEN} {HIDDEN}"),
        ("--rounds --api-key SECRET", f"--rounds --api-key {HIDDEN}"),
        ("--modes=eager --cold SECRET", f"--modes=eager --cold {HIDDEN}"),
        ("--unknown --rounds=2 SECRET", f"--unknown --rounds=2 {HIDDEN}"),
    ],
)
def test_command_lines(given: str, shown: str | None) -> None:
    assert " ".join(arguments(given.split())) == (shown or given)


SPEC = {"method": "eagle", "model": "examples/zoo/eagle", "num_speculative_tokens": 3}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (SPEC, SPEC),
        ({"num-speculative-tokens": 3}, {"num-speculative-tokens": 3}),
        ({"hf_token": "SECRET", "method": "ngram"}, {"hf_token": HIDDEN, "method": "ngram"}),
        ({"token": 1234, "x": ["SECRET"]}, {"token": HIDDEN, "x": HIDDEN}),
        ({"method": {"api_key": "SECRET"}}, {"method": {"api_key": HIDDEN}}),
        ({"method": ["a", {"api_key": "SECRET"}]}, {"method": ["a", {"api_key": HIDDEN}]}),
        ({"model": "https://u:SECRET@h/m"}, {"model": HIDDEN}),
        ({"S3 CRET": 1}, {HIDDEN: HIDDEN}),
        ({"synthetic_acceptance_rates": [0.5, 1]}, {"synthetic_acceptance_rates": [0.5, 1]}),
        (
            {"quantization": None, "enforce_eager": True},
            {"quantization": None, "enforce_eager": True},
        ),
        (["SECRET"], HIDDEN),
        ("SECRET", HIDDEN),
        (None, None),
    ],
)
def test_json(given: object, shown: object) -> None:
    assert privacy.options(given) == shown
    argument = json.dumps(given)
    written = arguments(["--speculative-config", argument])[1]
    assert written == json.dumps(shown, ensure_ascii=False)


def json_text(text: str) -> str:
    return arguments(["--speculative-config", text])[1]


@pytest.mark.parametrize(
    "text", ["{", '{"hf_token": "SECRET"', "SECRET", "[" * 100_000, "1" * 5000, ""]
)
def test_what_is_no_json_is_hidden(text: str) -> None:
    assert "SECRET" not in json_text(text)
    assert json_text(text) in (HIDDEN, json.dumps(HIDDEN, ensure_ascii=False))


def test_a_key_given_twice_is_not_shown_as_it_was_written() -> None:
    text = '{"model": "SECRET:1", "model": "examples/zoo/eagle"}'
    assert json_text(text) == '{"model": "examples/zoo/eagle"}'


WORD = "Tr0ub4dor&3/x"


@pytest.mark.parametrize(
    "argv",
    [
        ["--api-key", WORD],
        [f"--api-key={WORD}"],
        ["--api-key", "first", WORD, "--rounds", "3"],
        ["--hf-token", WORD],
        ["--ssl-keyfile-password", WORD],
        ["--speculative-config", f'{{"hf_token": "{WORD}"}}'],
        [f'--speculative-config={{"auth": {{"values": ["{WORD}"]}}}}'],
        ["--speculative-config", f'{{"hf_token": "{WORD}"'],
        ["--speculative-config", f"{{'api_key': '{WORD}'"],
        [f"api_key={WORD}"],
        # Commands as one word, with a mistake in it or without.
        [f"vllm serv M --api-key {WORD}"],
        [f"vllm serve M --api-key={WORD} --rounds 3"],
        [f"vllm serve M --api-key '{WORD}' --rounds 3"],
        [f"vllm serve M --api-key '{WORD} --rounds 3"],
        [f'vllm serve \'M --api-key="{WORD}"'],
        [f"VLLM_API_KEY='{WORD}' vllm serve M"],
        ["sh", "-c", f"exec sh -c 'vllm serve M --api-key {WORD}'"],
        ["--", f'vllm serve M --speculative-config \'{{"hf_token": "{WORD}"}}\''],
    ],
)
def test_secrets_of_the_command_line(argv: list[str]) -> None:
    text = f"non-default args: {{'api_key': ['{WORD}'], 'max_tokens': 3}}\nkey={WORD}"
    expected = f"non-default args: {{'api_key': ['{HIDDEN}'], 'max_tokens': 3}}\nkey={HIDDEN}"
    assert redact(text, argv, {}) == expected


def test_a_secret_of_several_words() -> None:
    argv = ["vllm serve M --api-key 'ab cd' --rounds 3"]
    assert redact("x ab cd y", argv, {}) == f"x {HIDDEN} y"


def test_a_secret_may_look_like_an_option() -> None:
    assert redact("x --abcd1 y", ["--hf_token", "--abcd1", "--rounds", "3"], {}) == f"x {HIDDEN} y"


@pytest.mark.parametrize(
    "name",
    [
        *("VLLM_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY"),
        *("OPENAI_API_KEY", "DB_PASSWORD", "MODELSCOPE_API_TOKEN", "apikey", "SOME_CREDENTIALS"),
        *("GITHUB_PAT", "REDIS_AUTH", "MY_PWD_X"),
    ],
)
def test_secrets_of_the_environment(name: str) -> None:
    assert redact(f"a {WORD} b", [], {name: WORD}) == f"a {HIDDEN} b"


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (WORD, "Tr0ub4dor%263%2Fx"),
        ('ab"cd', 'ab\\"cd'),
        ("aübc", "a\\u00fcbc"),
        ("a\nbcd", "a\\nbcd"),
        ("a\udcffbcd", "a\\udcffbcd"),
    ],
)
def test_secrets_in_other_forms(value: str, form: str) -> None:
    assert redact(f"({form})", [], {"KEY": value}) == f"({HIDDEN})"


def test_passwords_in_urls_and_well_known_keys() -> None:
    assert redact("at https://me:pass@host/x?", [], {}) == f"at https://{HIDDEN}@host/x?"
    for key in ("hf_" + 34 * "a", "sk-proj-" + 40 * "b", "ghp_" + 36 * "c", "AKIA" + 16 * "D"):
        assert redact(f"({key})", [], {}) == f"({HIDDEN})"


def test_a_long_word_is_read_once() -> None:
    """From each of its letters it would take minutes."""
    assert redact("a", [200_000 * "x", f"password={WORD}"], {}) == "a"
    assert redact(f"a {WORD}", [200_000 * "x", f"password={WORD}"], {}) == f"a {HIDDEN}"


def test_other_text_stays() -> None:
    text = "task_queue_of_the_scheduler hf_overrides max_tokens=3 risk-free-and-long-enough-a-word"
    variables = {"MAX_TOKENS": "max_tokens", "TOKENIZERS_PARALLELISM": "hf_overrides", "KEY": "3"}
    argv = ["--max-tokens", "max_tokens", "--tokenizer", "hf_overrides", "--rounds", "3"]
    assert redact(text, argv, variables) == text
    assert redact(text, [" ".join(["vllm serve", *argv])], {}) == text
    assert redact("keyhole", [], {"KEY": "hole"}) == "keyhole"  # a part of a word


def test_working_directories_are_no_passwords() -> None:
    variables = {"PWD": "/srv/models", "OLDPWD": "/srv", "DB_PWD": "hunter22"}
    text = "draft /srv/models/eagle, hunter22"
    assert redact(text, [], variables) == f"draft /srv/models/eagle, {HIDDEN}"
