"""The report of ``vllm-ascend-spec info`` for people: what works, what is used, what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

READY = "ready"
WIDTH = 14
MORE = "All of it, for a bug report: vllm-ascend-spec info --json"


def text(report: Mapping[str, Any]) -> str:
    """Return the summary.

    Args:
        report: result of :func:`vllm_ascend_spec.cli.info.report`.
    """
    wrong = list(dict.fromkeys(_wrong(report)))
    lines = [f"vllm-ascend-spec {report['vllm-ascend-spec']}: {_verdict(report, wrong)}", ""]
    lines += [f"{name:<{WIDTH}}{value}" for name, value in _rows(report)]
    for title, part in (("wrong", wrong), ("not known", _unknown(report))):
        if part:
            lines += ["", title, *(f"  {line}" for line in part)]
    return "\n".join([*lines, "", MORE])


def _verdict(report: Mapping[str, Any], wrong: list[str]) -> str:
    if report["platform"] is None or not report["vllm_supported"]:
        return "not in use here, see below"
    return "ready, but see what is wrong below" if wrong else READY


def _rows(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    versions = {**report["versions"], "Python": report["python"]}
    own = versions.pop("vllm-ascend-spec", None)
    yield "installed", ", ".join(f"{name} {version}" for name, version in versions.items())
    if own not in (None, report["vllm-ascend-spec"]):
        yield "", f"vllm-ascend-spec {own} by its metadata: another copy of it is run"
    yield "device", report["device"] or "none that this vLLM can use"
    yield "platform", report["platform"] or "none of this package's"
    yield "methods", ", ".join(report["methods"]) or "none"
    if report["limits"]:
        version = report["limits"][0].partition(",")[0]
        yield "limits", f"{version} cannot do all that is supported, see docs/versions.md"
    yield "op backends", _backends(report["op_backends"])
    if isinstance(patches := report["patches"], Mapping):
        active = sum(state.startswith("active") for state in patches.values())
        patches = f"{active} active, {len(patches) - active} not needed"
    yield "patches", patches


def _backends(states: Any) -> str:
    """Return the backend that each op runs on."""
    if not isinstance(states, Mapping):
        return str(states)
    ops = {name: state for name, state in states.items() if isinstance(state, Mapping)}
    shown = ", ".join(f"{name} {_best(state)}" for name, state in ops.items())
    chosen = states.get("cpu_instruction_set")
    uses_it = any(_best(state) == "cpu" for state in ops.values())
    return f"{shown} ({chosen})" if chosen is not None and uses_it else shown


def _best(state: Mapping[str, str]) -> str:
    return next((name for name, said in state.items() if said == READY), "none")


def _wrong(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong, with what to do about it."""
    yield from report["problems"]
    if report["note"]:
        yield report["note"]
    states = report["op_backends"]
    for state in states.values() if isinstance(states, Mapping) else ():
        # The best backend is listed first.
        for name, said in state.items() if isinstance(state, Mapping) else ():
            if said == READY:
                break
            yield f"backend {name}: {said}"


def _unknown(report: Mapping[str, Any]) -> list[str]:
    return [f"{name}: {why}" for name, why in report["failed"].items()]
