"""A record says where it comes from."""

from __future__ import annotations

import json
import sys

from vllm_ascend_spec import __version__
from vllm_ascend_spec.bench import provenance


def test_record_has_what_is_needed_to_repeat_it(monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/some/where/vllm-ascend-spec", "bench", "serve"])
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    monkeypatch.setenv("UNRELATED", "secret")
    record = provenance.collect()
    assert record["argv"] == ["vllm-ascend-spec", "bench", "serve"]
    assert record["versions"]["vllm-ascend-spec"] == __version__
    assert record["environment"]["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert "UNRELATED" not in record["environment"]
    assert {"time", "git", "python", "machine"} <= record.keys()
    json.dumps(record)


def test_no_path_of_the_machine_is_told(monkeypatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/opt/private/lib/libiomp5.so")
    assert provenance.collect()["environment"]["LD_PRELOAD"] == "libiomp5.so"


def test_without_git(monkeypatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert provenance.git_revision() is None
