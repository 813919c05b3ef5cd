"""Secrets are taken out of texts that others wrote."""

from __future__ import annotations

import pytest

from vllm_ascend_spec.bench.redact_text import redact
from vllm_ascend_spec.bench.redaction import HIDDEN

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
