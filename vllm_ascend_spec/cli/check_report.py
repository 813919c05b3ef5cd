"""What ``vllm-ascend-spec check`` prints: a record for programs, or a text for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from vllm_ascend_spec.cli.check_capture import capture_of_engine
from vllm_ascend_spec.cli.check_found import CheckResult
from vllm_ascend_spec.cli.check_memory import memory_of
from vllm_ascend_spec.errors import BackendUnavailableError

RIGHT, REFUSED, UNCHECKED = "right", "refused", "unchecked"
MIB = 1024 * 1024
# Reported fields of vLLM's configuration, by sub-config.
ENGINE = {
    "model_config": ("dtype", "max_model_len", "quantization"),
    "scheduler_config": ("max_num_seqs", "max_num_batched_tokens", "async_scheduling"),
    "parallel_config": ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"),
    "cache_config": ("block_size", "cache_dtype", "enable_prefix_caching"),
}
# Row titles in the text about speculation, by key of the record.
SPECULATION = {
    "method": "method",
    "max_k": "K",
    "tree": "tree",
    "schedule": "tiers [first, last, K]",
    "draft_length": "K is",
    "draft_lengths": "K chosen from",
    "draft_sample_method": "drafts are picked",
    "rule": "rule",
    "draft_loop": "draft loop",
    "capture": "graphs chosen by",
    "capture_graphs": "most graphs",
    "capture_load": "load",
    "verify_backend": "backend asked for",
    "options": "options",
}
WIDTH = 24


def status_of(found: CheckResult) -> str:
    """Return the result in one word."""
    if found.problems:
        return REFUSED
    return UNCHECKED if found.unchecked is not None else RIGHT


def record(found: CheckResult) -> dict[str, Any]:
    """Return all findings; docs/configuration.md describes the keys."""
    speculation = found.speculation
    resolved = (
        {}
        if speculation is None
        else {
            "speculation": speculation.as_json(),
            "lossless": speculation.is_lossless,
        }
    )
    return {
        "status": status_of(found),
        "vllm": found.vllm,
        "device": found.device.name if found.device is not None else None,
        "platform": found.platform,
        "model": found.model,
        "speculative_config": found.spec,
        **resolved,
        "errors": [asdict(problem) for problem in found.problems],
        "unchecked": found.unchecked,
        "without_effect": [asdict(item) for item in found.without_effect],
        "warnings": found.warnings,
        "notes": [*(speculation.notes if speculation is not None else ()), *found.notes],
        "backends": _backends(found),
        "engine": _engine(found),
        "capture": _capture(found),
        "memory": _memory(found),
    }


def _backends(found: CheckResult) -> dict[str, Any] | None:
    """Return each op's backend and why better ones are not used; None without vLLM's config."""
    if found.engine is None:
        return None
    from vllm_ascend_spec.ops import OPS

    name = found.speculation.verify_backend if found.speculation is not None else None
    device = found.device.name if found.device is not None else "cpu"
    states: dict[str, Any] = {}
    for op in OPS:
        try:
            backend, passed_over = op.choice(device, name)
        except BackendUnavailableError as error:
            backend, passed_over = None, {"": str(error)}
        states[op.name] = {"backend": backend, "passed_over": passed_over}
    return states


def _engine(found: CheckResult) -> dict[str, Any] | None:
    if found.engine is None:
        return None
    values: dict[str, Any] = {}
    for part, names in ENGINE.items():
        for name in names:
            value = getattr(getattr(found.engine, part), name, None)
            plain = value is None or isinstance(value, bool | int | str)
            values[name] = value if plain else str(value).removeprefix("torch.")
    return values


def _capture(found: CheckResult) -> dict[str, Any] | None:
    if found.engine is None:
        return None
    return capture_of_engine(
        found.device,
        found.speculation,
        found.asked,
        found.engine,
        is_elsewhere=found.is_elsewhere,
    )


def _memory(found: CheckResult) -> dict[str, Any] | None:
    if found.problems:
        return None
    return memory_of(found.model, found.speculation, found.engine)


def text(rows: Mapping[str, Any]) -> str:
    """Return a record as a text.

    Args:
        rows: the record.
    """
    lines = list(_head(rows))
    for title, part in PARTS:
        if inner := [line for line in part(rows) if line]:
            lines += ["", title, *(f"  {line}" for line in inner)]
    return "\n".join(lines)


def _row(name: str, value: Any, beside: str = "") -> str:
    shown = ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else value
    return f"{name:<{WIDTH}}{shown}{f'  ({beside})' if beside else ''}"


def _head(rows: Mapping[str, Any]) -> Iterator[str]:
    said = {
        RIGHT: "right, as far as can be told without loading weights",
        REFUSED: "refused: an engine does not start with this",
        UNCHECKED: "nothing wrong so far, but not all could be looked at",
    }
    yield _row("result", said[rows["status"]])
    yield _row("model", rows["model"])
    yield _row("device", rows["device"], rows["platform"])
    yield _row("vLLM", rows["vllm"] or "not asked")


def _speculation(rows: Mapping[str, Any]) -> Iterator[str]:
    if "speculation" not in rows:
        yield "none"
        return
    for name, title in SPECULATION.items():
        cell = rows["speculation"][name]
        if cell["value"] not in (None, {}):
            value = _tree(cell["value"]) if name == "tree" else cell["value"]
            yield _row(title, value, cell["from"])
    yield _row("lossless", "yes" if rows["lossless"] else "no")


def _tree(paths: Sequence[Sequence[int]]) -> str:
    return f"{len(paths)} drafts, up to {max(map(len, paths))} after each other"


def _errors(rows: Mapping[str, Any]) -> Iterator[str]:
    for problem in rows["errors"]:
        yield problem["message"]
        if problem["remedy"] not in problem["message"]:
            yield f"  remedy: {problem['remedy']}"
    if rows["unchecked"]:
        yield rows["unchecked"]


def _no_effect(rows: Mapping[str, Any]) -> Iterator[str]:
    for item in rows["without_effect"]:
        yield f"{item['option']}: {item['why']}; {item['remedy']}"


def _warnings(rows: Mapping[str, Any]) -> Iterator[str]:
    named = [item["option"] for item in rows["without_effect"]]
    for warning in rows["warnings"]:
        # Options without effect are listed above already.
        if not any(warning.startswith(f"{option} has no effect") for option in named):
            yield warning


def _of_engine(rows: Mapping[str, Any]) -> Iterator[str]:
    for name, value in (rows["engine"] or {}).items():
        if value is not None:
            yield _row(name, value)


def _of_backends(rows: Mapping[str, Any]) -> Iterator[str]:
    for name, state in (rows["backends"] or {}).items():
        why = "; ".join(state["passed_over"].values())
        yield _row(name, state["backend"], f"no better one: {why}" if why else "")


def _graphs(rows: Mapping[str, Any]) -> Iterator[str]:
    found = rows["capture"]
    if found is None:
        return
    yield _row("mode", found["mode"] or "not known", found["note"] or "")
    if found["sizes"]:
        yield _row("sizes in tokens", found["sizes"])
    for k, sizes in found["sizes_by_k"].items():
        yield _row(f"  for K={k}", sizes)
    if found["expected_padding"] is not None:
        yield _row("expected padding", f"{found['expected_padding']:.1%}", "of the useful work")
    if found["graphs"] is not None:
        yield _row("number of graphs", found["graphs"])


def _of_memory(rows: Mapping[str, Any]) -> Iterator[str]:
    found = rows["memory"]
    if found is None:
        return
    for whose in ("target", "draft"):
        size = found[f"{whose}_weights_bytes"]
        shown = "not known: no local folder" if size is None else f"{size / MIB:.1f} MiB"
        yield _row(f"{whose}'s weights", shown, "tensors in the checkpoint" if size else "")
    if rows["engine"] is None:
        return
    each, of_draft = found["kv_bytes_per_token"], found["kv_bytes_per_token_of_draft"]
    if each is None or of_draft is None:
        yield _row("KV cache", "not known for this model")
    else:
        yield _row("KV cache per token", f"{each + of_draft} bytes", f"draft: {of_draft}")
    if found["kv_space_bytes"] is None:
        yield _row("KV space", "not known", found["kv_space_from"])
    else:
        size = f"{found['kv_space_bytes'] / MIB:.0f} MiB"
        yield _row("KV space", size, found["kv_space_from"])
        yield _row("tokens that fit", found["kv_tokens"])


PARTS = (
    ("errors", _errors),
    ("without effect", _no_effect),
    ("warnings", _warnings),
    ("speculation", _speculation),
    ("engine", _of_engine),
    ("backend of each op", _of_backends),
    ("graphs", _graphs),
    ("memory of each device", _of_memory),
    ("notes", lambda rows: iter(rows["notes"])),
)
