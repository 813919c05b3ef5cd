"""Examine a speculative config: read it, check it by rules, and resolve it to one record.

``check``, ``vllm serve`` and ``LLM()`` all call :func:`examine` through ``hooks/preflight.py``. The
first reports all problems, the others raise the first of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

from vllm_ascend_spec.config.additional import OPTION as ADDITIONAL
from vllm_ascend_spec.config.additional import check_additional
from vllm_ascend_spec.config.combinations import rules_of
from vllm_ascend_spec.config.detect import asked_for
from vllm_ascend_spec.config.draft_length import with_lengths
from vllm_ascend_spec.config.draft_options import check_name
from vllm_ascend_spec.config.draft_tp import with_split
from vllm_ascend_spec.config.draft_tree import with_size
from vllm_ascend_spec.config.engine import EngineOptions, SpecInput
from vllm_ascend_spec.config.method import Method
from vllm_ascend_spec.config.old_names import check_names
from vllm_ascend_spec.config.problems import Examined, Problems, option_of
from vllm_ascend_spec.config.resolve import require_speculation, resolve
from vllm_ascend_spec.config.schedule import with_schedule
from vllm_ascend_spec.config.schema import DEPENDENT, SECTION, SpecOptions
from vllm_ascend_spec.config.spec_options import (
    SPEC,
    check_method,
    check_options,
    with_underscores,
)
from vllm_ascend_spec.config.string_values import with_texts_read

SECTION_OPTION = f"additional_config.{SECTION}"
NOTHING: Mapping[str, Any] = MappingProxyType({})


def examine(
    model: str | None,
    speculative_config: Any,
    additional_config: Any = NOTHING,
    engine: EngineOptions | None = None,
    *,
    methods: Mapping[str, Method],
) -> Examined:
    """Check everything that needs no loaded model, and resolve the speculation.

    Args:
        model: the target (a folder or a name on a hub), or a head's folder that names its target.
        speculative_config: as given by the user; None for no speculation.
        additional_config: as given by the user.
        engine: the engine options that affect speculation.
        methods: all known methods, by name.
    """
    problems = Problems()
    request = _read(
        problems, model, speculative_config, additional_config, engine or EngineOptions(), methods
    )
    if request is None:
        return Examined(problems=tuple(problems))
    right: SpecInput | None = request
    for rule in rules_of(request):
        if right is None:
            break
        before = len(problems)
        problems.run(rule, right)
        # A rule may rely on what those before it found right.
        for problem in problems[before:]:
            right = right and without(right, option_of(problem))
    speculation = None if problems else resolve(request)
    return Examined(problems=tuple(problems), request=request, speculation=speculation)


def without(request: SpecInput, option: str) -> SpecInput | None:
    """Return the request without an option; None if the rest cannot be checked without it."""
    where, _, key = option.rpartition(".")
    if where == SPEC and key in request.spec and key not in request.method.required:
        return replace(request, spec={k: v for k, v in request.spec.items() if k != key})
    if where == SECTION_OPTION and key in request.section:
        section = {k: v for k, v in request.section.items() if k != key}
        return replace(request, section=section, options=SpecOptions.from_mapping(section))
    if where == ADDITIONAL and key in request.additional:
        others = {k: v for k, v in request.additional.items() if k != key}
        return replace(request, additional=others)
    defaults: dict[str, Any] = {field.name: field.default for field in fields(EngineOptions)}
    name = option.removeprefix("--").replace("-", "_").removeprefix("compilation_config.")
    if name not in defaults:
        return None
    engine = replace(request.engine, **{name: defaults[name]})
    return None if engine == request.engine else replace(request, engine=engine)


def _read(
    problems: Problems,
    model: str | None,
    speculative_config: Any,
    additional_config: Any,
    engine: EngineOptions,
    methods: Mapping[str, Method],
) -> SpecInput | None:
    """Check each option on its own, and return those that are right; None without speculation.

    What is wrong is left out, so that the rules about several options look at the others. Without
    a method or an option that it needs, None is returned, too.
    """
    section = problems.run(check_additional, additional_config) or NOTHING
    options = SpecOptions.from_valid(section, problems.add)
    if problems:
        wrong = {option_of(problem) for problem in problems}
        given = section.items() if isinstance(section, Mapping) else ()
        names = {option.removeprefix(f"{SECTION_OPTION}.") for option in wrong}
        section = {k: v for k, v in given if not {k, DEPENDENT.get(k)} & names}
    asked = problems.run(asked_for, model, speculative_config)
    if asked is None:
        return None
    if asked.spec is None:
        problems.run(require_speculation, section)
        return None
    if asked.model is not None:
        problems.run(check_name, "model", asked.model)
        if problems.has("model"):
            return None
    read = _read_options(problems, asked.spec, methods, options.tree)
    if read is None:
        return None
    spec, method, warnings = read

    def build() -> SpecInput:
        split, about_split = with_split(spec, method, engine)
        return SpecInput(
            spec=with_lengths(with_schedule(split), options),
            method=method,
            section=section,
            options=options,
            additional=additional_config if isinstance(additional_config, Mapping) else NOTHING,
            model=asked.model,
            engine=engine,
            from_head=asked.from_head,
            detected=asked.detected,
            warnings=warnings + about_split,
        )

    return problems.run(build)


def _read_options(
    problems: Problems, given: Any, methods: Mapping[str, Method], tree: int | str | None
) -> tuple[dict[str, Any], Method, tuple[str, ...]] | None:
    """Return the right options, their method and warnings; None without those that it needs."""

    def name_method() -> tuple[dict[str, Any], Method, tuple[str, ...]]:
        spec, warnings = with_texts_read(with_underscores(given))
        check_names(spec, SPEC)
        method = check_method(spec, methods)
        spec = with_size(spec, tree)
        return spec, method.for_spec(spec, methods) if method.for_spec else method, warnings

    read = problems.run(name_method)
    if read is None:
        return None
    spec, method, warnings = read
    valid = check_options(method, spec, methods, problems)
    lacks = any(problems.has(f"{SPEC}.{key}") for key in method.required)
    return None if lacks else (valid, method, warnings)
