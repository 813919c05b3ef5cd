"""Our own options: ``--additional-config '{"ascend_spec": {…}}'``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vllm_ascend_spec.config.old_names import KEYS
from vllm_ascend_spec.config.options import MAX_DRAFT_TOKENS, OPTIONS
from vllm_ascend_spec.config.tree_shape import size_of
from vllm_ascend_spec.config.values import Check, boolean, int_in, one_of, optional, share, text
from vllm_ascend_spec.errors import ConfigError, did_you_mean

SECTION = "ascend_spec"
# Verification backends of this release; tests/config/test_schema.py compares with the ops.
VERIFY_BACKENDS = ("cpu", "triton", "ascendc", "reference")
VERIFY_RULES = TOKEN, BLOCK, SEEDED = ("token", "block", "seeded")
DRAFT_LOOPS = ("auto", "ours", "stock")
AUTO, OURS, STOCK = DRAFT_LOOPS
# How K is chosen.
LENGTHS = ("auto", "fixed", "adaptive")
FIXED, ADAPTIVE = LENGTHS[1:]
# How the captured graphs are chosen.
CAPTURES = ("planned", "stock")
PLANNED = CAPTURES[0]
# What is written of a collected request.
COLLECTED = TOKENS, TEXT = ("tokens", "text")
COLLECT_FOLDER = "collect_folder"
# These mean nothing without the option behind them.
DEPENDENT = dict.fromkeys(("collect_max_bytes", "collect_rate", "collect_what"), COLLECT_FOLDER)
# These also work in an engine without speculation.
WITHOUT_SPECULATION = frozenset({COLLECT_FOLDER, *DEPENDENT})


def _draft_loop(value: Any) -> str | None:
    valid = one_of(*DRAFT_LOOPS)(value)
    return f"is called {OURS!r} now; {valid}" if value == "fused" else valid


def _lengths(value: Any) -> str | None:
    valid = "valid: a list of different whole numbers, e.g. [0, 1, 3]"
    if not isinstance(value, list | tuple) or not value:
        return valid
    are_whole = all(isinstance(k, int) and not isinstance(k, bool) for k in value)
    return None if are_whole and len(set(value)) == len(value) else valid


def _tree(value: Any) -> str | None:
    size = size_of(value) if isinstance(value, int | str) and not isinstance(value, bool) else None
    is_right = size is not None and 1 <= size <= MAX_DRAFT_TOKENS
    return None if is_right else f"valid: a number of drafts up to {MAX_DRAFT_TOKENS}, or '5x3'"


def _window(value: Any) -> str | None:
    is_right = value == AUTO or int_in(1)(value) is None
    return None if is_right else f"valid: a whole number of tokens from 1 on, or {AUTO!r}"


CHECKS: dict[str, Check] = {
    "capture": one_of(*CAPTURES),
    "capture_graphs": optional(int_in(1)),
    "capture_load": optional(text("uniform, zipf, normal:MEAN,DEVIATION or a file of counts")),
    COLLECT_FOLDER: optional(text("a folder")),
    "collect_max_bytes": int_in(1),
    "collect_rate": share(),
    "collect_what": one_of(*COLLECTED),
    "draft_length": one_of(*LENGTHS),
    "draft_lengths": optional(_lengths),
    "draft_loop": _draft_loop,
    "draft_window": optional(_window),
    "spec_page": boolean(),
    "tree": optional(_tree),
    "verify_backend": optional(one_of(*VERIFY_BACKENDS)),
    "verify_rule": one_of(*VERIFY_RULES),
}


@dataclass(frozen=True, kw_only=True)
class SpecOptions:
    """Options of this package; everything about the draft is in ``--speculative-config``.

    Attributes:
        capture: which graphs are captured: ``planned`` for the least expected padding, or ``stock``
            for those of vLLM or vllm-ascend.
        capture_graphs: maximum number of graphs for decode batches; left out: stock's number, or
            up to 32 if that is more.
        capture_load: expected batch sizes: ``uniform``, ``zipf`` (weights 1/n),
            ``normal:MEAN,DEVIATION`` or a file of counts; left out: ``zipf``.
        collect_folder: folder that gets prompts and answers of finished requests, to train a draft
            on; left out: nothing is collected.
        collect_max_bytes: maximum size of all that is collected in the folder, in bytes.
        collect_rate: share of the finished requests that is collected.
        collect_what: what is written: ``tokens`` (token ids) or ``text`` (the texts, too).
        draft_length: how K is chosen: ``fixed`` (always K, or as a schedule says), ``auto`` (K or
            none in each step, whichever pays off) or ``adaptive`` (the best number in each step).
        draft_lengths: the numbers that ``adaptive`` chooses from; left out: 0 to K, or some of
            these if K is above 5.
        draft_loop: who makes draft steps 2 to K: ``ours`` (plans all of them at once; refused where
            that is impossible), ``stock`` (vLLM's or vllm-ascend's loop) or ``auto`` (ours where
            possible, else stock with a warning).
        draft_window: how many of a text's last tokens the draft attends to, for drafts trained on
            short texts: a number (rounded up to whole blocks of the KV cache) or ``auto`` (the
            whole text or one of a few windows, whichever has the better acceptance); left out: the
            whole text, or vllm-ascend's ``draft_window_size``.
        spec_page: whether the server has the live page ``/spec``.
        tree: verifies several continuations of the text in one pass: a number of drafts, whose
            shape follows from how often drafts of each rank are accepted, or ``5x3`` (a chain of 5
            drafts with 2 more beside each); left out: one continuation.
        verify_backend: backend of the verification ops: ``cpu`` (C++), ``triton``, ``ascendc`` or
            ``reference`` (PyTorch); refused if it cannot run; left out: the best that can.
        verify_rule: how drafts of sampled requests without a seed are accepted: ``token`` (one by
            one), ``block`` (all of a request together) or ``seeded`` (those that a sample of the
            target agrees with, as always for requests with a seed); left out: ``token``, but
            ``seeded`` for requests with a top-k of at most 20 where drafts are sampled.
    """

    capture: str = PLANNED
    capture_graphs: int | None = None
    capture_load: str | None = None
    collect_folder: str | None = None
    collect_max_bytes: int = 10**9
    collect_rate: float = 0.1
    collect_what: str = TOKENS
    draft_length: str = AUTO
    draft_lengths: list[int] | None = None
    draft_loop: str = "auto"
    draft_window: int | str | None = None
    spec_page: bool = False
    tree: int | str | None = None
    verify_backend: str | None = None
    verify_rule: str = TOKEN

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> SpecOptions:
        """Build from the section of ``--additional-config``.

        Raises:
            ConfigError: an option is unknown or has an invalid value.
        """

        def refuse(problem: ConfigError) -> None:
            raise problem

        return cls.from_valid(values, refuse)

    @classmethod
    def from_valid(
        cls, values: Mapping[str, Any], refuse: Callable[[ConfigError], None]
    ) -> SpecOptions:
        """Build from the valid options of a section.

        Args:
            values: the section of ``--additional-config``.
            refuse: called with what is wrong with each of the others.
        """
        if not isinstance(values, Mapping):
            refuse(ConfigError(f"additional_config.{SECTION}", values, "must be a JSON object"))
            return cls()
        valid = {}
        for name, value in values.items():
            if problem := _problem_of(name, value, values):
                refuse(ConfigError(f"additional_config.{SECTION}.{name}", value, problem))
            else:
                valid[name] = value
        return cls(**valid)


def _problem_of(name: str, value: Any, section: Mapping[str, Any]) -> str | None:
    """Return what is wrong with an option of a section; None if nothing is."""
    if str(name).replace("-", "_") in {**OPTIONS, **KEYS}:
        return "is an option of --speculative-config '{…}'; write it there"
    if name not in CHECKS:
        near = did_you_mean(name, CHECKS)
        return f"there is no such option; {near}valid: {', '.join(sorted(CHECKS))}"
    if name in DEPENDENT and section.get(DEPENDENT[name]) is None:
        return f"has no effect without {DEPENDENT[name]!r}; give both or none"
    return CHECKS[name](value)
