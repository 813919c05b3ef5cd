"""MindIE-PyMotor's env.json names the plugins that this vllm-ascend has, and ours."""

from __future__ import annotations

import json

from tests.docs.blocks import ROOT
from vllm_ascend_spec.devices import plugins


def test_all_plugins_of_vllm_ascend_are_named() -> None:
    """One that is left out is not loaded; vllm-ascend's platform must be."""
    text = (ROOT / "examples" / "kubernetes" / "pymotor" / "env.json").read_text()
    named = json.loads(text)["motor_engine_union_env"]["VLLM_PLUGINS"].split(",")
    assert named == [*plugins.vllm_ascend_plugins(), plugins.PLUGIN_NAME]
    assert plugins.VLLM_ASCEND_PLUGIN not in named
