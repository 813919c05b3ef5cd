"""YAML files of Kubernetes and Compose get the new option; comments and order stay."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.legacy.yaml_file import rewrite_yaml

SPEC = '{"method": "ngram", "num_speculative_tokens": 5}'
DEPLOYMENT = """\
# Serves one model.
apiVersion: apps/v1
kind: Deployment
metadata: {name: "llm", labels: {app: llm}}
spec:
  template:
    spec:
      containers:
        - name: vllm   # the engine
          image: quay.io/ascend/vllm-ascend:v0.8.4
          args:
            - --model
            - /models/target  # mounted
            - --speculative-model
            - "[ngram]"
            # how far
            - --num_speculative_tokens
            - "5"
            - --use-v2-block-manager
            - --port=8000
          resources:
            limits: {huawei.com/Ascend910: "1"}
---
kind: Service
"""


def rewritten(text: str) -> str:
    result = rewrite_yaml(text, "file.yaml")
    assert result.count == 1
    again = rewrite_yaml(result.text, "file.yaml")
    assert (again.text, again.count) == (result.text, 0)
    return result.text


def args_of(text: str) -> Any:
    return next(yaml.safe_load_all(text))["args"]


def test_a_deployment() -> None:
    wanted = DEPLOYMENT.replace("- --speculative-model\n", "- --speculative-config\n")
    wanted = wanted.replace('- "[ngram]"\n', f"- '{SPEC}'\n")
    for line in ("- --num_speculative_tokens\n", '- "5"\n', "- --use-v2-block-manager\n"):
        wanted = wanted.replace(" " * 12 + line, "")
    assert rewritten(DEPLOYMENT) == wanted


@pytest.mark.parametrize(
    ("old", "args"),
    [
        (
            'args: ["--speculative-model", "[ngram]", "--num-speculative-tokens", "5", "--port=1"]',
            ["--speculative-config", SPEC, "--port=1"],
        ),
        (
            "args: [--use-v2-block-manager, --speculative-model=ngram, -tp, '2', "
            "--num-speculative-tokens=5]",
            [f"--speculative-config={SPEC}", "-tp", "2"],
        ),
        ("args: [--use-v2-block-manager]", []),
        (
            "args:\n- --speculative-model=[ngram]\n- --num-speculative-tokens=5",
            [f"--speculative-config={SPEC}"],
        ),
        (
            "args: vllm serve t --speculative-model ngram --num-speculative-tokens 5",
            f"vllm serve t --speculative-config '{SPEC}'",
        ),
        (
            'args: "vllm serve t --speculative-model ngram --num-speculative-tokens 5 -tp 2"',
            f"vllm serve t --speculative-config '{SPEC}' -tp 2",
        ),
        (
            "args: >-\n  vllm serve t\n  --speculative-model ngram\n"
            "  --num-speculative-tokens 5\n  --port 1\nother: 1\n",
            f"vllm serve t --speculative-config '{SPEC}' --port 1",
        ),
        (
            "args:\n  - bash\n  - -c\n  - |\n    set -e  # stops\n    vllm serve t \\\n"
            "      --speculative-model ngram \\\n      --num-speculative-tokens 5\n",
            ["bash", "-c", f"set -e  # stops\nvllm serve t \\\n  --speculative-config '{SPEC}'\n"],
        ),
    ],
)
def test_lists_and_texts(old: str, args: Any) -> None:
    assert args_of(rewritten(old)) == args


def test_kubernetes_own_variables_stay() -> None:
    old = "args: [--speculative-model, $(DRAFT), --num-speculative-tokens, $(STEPS)]"
    result = rewrite_yaml(old, "x.yaml")
    (flag, spec) = args_of(result.text)
    assert flag == "--speculative-config"
    assert spec == (
        '{"method": "draft_model", "model": "$(DRAFT)", "num_speculative_tokens": $(STEPS)}'
    )
    assert any("is filled in later" in note for note in result.notes)


def test_variables_of_compose_stay() -> None:
    old = "command: [--speculative-model, '${DRAFT}', '--num-speculative-tokens=${STEPS:-5}']"
    result = rewrite_yaml(old, "compose.yaml")
    assert yaml.safe_load(result.text)["command"][1] == (
        '{"method": "draft_model", "model": "${DRAFT}", "num_speculative_tokens": ${STEPS:-5}}'
    )


def test_a_list_that_is_referred_to_is_written_once() -> None:
    old = "a: &args [--speculative-model=ngram, --num-speculative-tokens=5]\nargs: *args\n"
    assert args_of(rewritten(old)) == [f"--speculative-config={SPEC}"]


def test_other_yaml_stays() -> None:
    text = "a: [1, {b: c}]\nargs: [--port, 1]\nd: --speculative-model\n"
    assert rewrite_yaml(text, "x.yaml").text == text


def test_what_is_no_yaml_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^FILE='x\.yaml': is not YAML in line 2; templates"):
        rewrite_yaml("a: 1\nargs: {{ .Values.args }}: b\n  - x", "x.yaml")
