"""Options of speculation by the names that vLLM had for them before ``speculative_config``.

vLLM 0.9 took the last of them away. Guides and deployment templates still have them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm_ascend_spec.config.detect import detect
from vllm_ascend_spec.config.old_names import KEYS
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.legacy.drafts import (
    DEFAULT_DRAFTS,
    MTP,
    drafts_of,
    has_mtp_layers,
)

MODEL, METHOD, DRAFTS = "speculative_model", "speculative_method", "num_speculative_tokens"
RULE = "spec_decoding_acceptance_method"
NGRAM = "ngram"
# Of vLLM's today, beside --speculative-config.
SHORT = ("spec_method", "spec_model", "spec_tokens")
# Texts that meant "not given", as for --speculative-config; templates have them for what is off.
UNSET = ("", "None")
# What vLLM took for the shortest n-gram then; today it takes the longest.
SHORTEST_NGRAM = 1


@dataclass(frozen=True)
class Legacy:
    """One of the old names.

    Attributes:
        name: as a keyword argument of ``LLM``; with dashes it is the flag.
        parse: of a flag's text; None for a flag without a value.
        short: another flag.
        alone: the flag's value where it stands alone; None for one that needs a value.
    """

    name: str
    parse: type | None = str
    short: str | None = None
    alone: str | None = None

    @property
    def key(self) -> str | None:
        """The key of ``speculative_config``; None for one that has no effect any more."""
        return KEYS[self.name]

    @property
    def flag(self) -> str:
        """The flag of ``vllm serve``."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def flags(self) -> tuple[str, ...]:
        """All flags."""
        return (self.flag,) if self.short is None else (self.flag, self.short)

    def parsed(self, text: str) -> Any:
        """Return what the text of the flag's value means.

        Raises:
            ConfigError: a number is wanted, and it is none.
        """
        try:
            return text if self.parse is None else self.parse(text)
        except ValueError:
            raise ConfigError(self.flag, text, "valid: a whole number") from None


WITH_MORE = (
    Legacy(DRAFTS, int),
    Legacy("speculative_draft_tensor_parallel_size", int, "-spec-draft-tp"),
    Legacy("speculative_disable_by_batch_size", int),
    Legacy("speculative_max_model_len", int),
    Legacy("ngram_prompt_lookup_max", int),
    Legacy("ngram_prompt_lookup_min", int),
    Legacy("typical_acceptance_sampler_posterior_threshold", float),
    Legacy("typical_acceptance_sampler_posterior_alpha", float),
    Legacy("num_lookahead_slots", int),
    Legacy("disable_logprobs_during_spec_decoding", str, alone="True"),
    Legacy("use_v2_block_manager", None),
    Legacy("speculative_disable_mqa_scorer", None),
)
LEGACY: dict[str, Legacy] = {name: Legacy(name) for name in KEYS} | {
    one.name: one for one in WITH_MORE
}
BY_FLAG: dict[str, Legacy] = {flag: one for one in LEGACY.values() for flag in one.flags}


@dataclass(frozen=True)
class Modern:
    """What old names come to.

    Attributes:
        spec: the speculative config; None for none.
        guessed: what was not said and had to be found out, a clause each.
        without_effect: names that have none any more.
    """

    spec: Mapping[str, Any] | None
    guessed: tuple[str, ...] = ()
    without_effect: tuple[str, ...] = ()


def given_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the old names among ``values`` that were given."""
    return {name: values[name] for name in LEGACY if values.get(name) not in (None, *UNSET)}


def taken(values: dict[str, Any], *, as_flags: bool = True) -> tuple[dict[str, Any], Modern] | None:
    """Take old names out of an engine's options, and put what they mean in their place.

    Args:
        values: by today's names and old ones, of a command line or keyword arguments; is changed.
        as_flags: as for :func:`modern`.

    Returns:
        The values by old name, and what they came to; None where none was given.

    Raises:
        ConfigError: as :func:`modern` does.
    """
    given = given_of(values)
    for name in LEGACY:
        values.pop(name, None)
    if not given:
        return None
    beside = {name: values[name] for name in SHORT if values.get(name)} or None
    target = values.get("model_tag") or values.get("model")
    spec = values.get("speculative_config") or beside
    found = modern(given, spec, target, as_flags=as_flags)
    if found.spec is not beside:
        values["speculative_config"] = found.spec
    return given, found


def modern(
    given: Mapping[str, Any], spec: Any, target: str | None = None, *, as_flags: bool = True
) -> Modern:
    """Translate old names.

    Args:
        given: values by old name, at least one.
        spec: the speculative config that was given beside them; None for none.
        target: a folder or a hub's name; None if it is not known.
        as_flags: whether messages call them by their flags, not as keyword arguments.

    Raises:
        ConfigError: they contradict each other or ``spec``, or say too little.
    """
    called = {name: LEGACY[name].flag if as_flags else name for name in given}
    gone = tuple(called[name] for name in given if LEGACY[name].key is None)
    if given.get(RULE) not in (None, "rejection_sampler"):
        raise ConfigError(called[RULE], given[RULE], "would change the output; leave it out")
    named = {name: value for name, value in given.items() if LEGACY[name].key is not None}
    if not named:
        return Modern(spec, (), gone)
    first = next(iter(named))
    if spec is not None:
        new = "--speculative-config" if as_flags else "speculative_config"
        problem = f"contradicts {new}; give one of the two, {new} if in doubt"
        raise ConfigError(called[first], named[first], problem)
    has_layers = target is not None and has_mtp_layers(target)
    if not {MODEL, METHOD} & named.keys():
        if not has_layers:
            wanted = LEGACY[MODEL].flag if as_flags else MODEL
            raise ConfigError(called[first], named[first], f"has no effect without {wanted}")
        found = {"method": MTP, **{str(LEGACY[name].key): v for name, v in named.items()}}
        return Modern(found, (f"method {MTP!r} as the target has such layers",), gone)
    if has_layers and METHOD not in named and named.get(MODEL) == target:
        named = {METHOD: MTP, **named}
    found, guessed = _spec_of(named, called)
    return Modern(found, guessed, gone)


def _spec_of(
    named: Mapping[str, Any], called: Mapping[str, str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the speculative config, and what had to be found out for it."""
    spec = {str(LEGACY[name].key): value for name, value in named.items()}
    guessed = []
    model = str(spec.get("model", ""))
    if model.strip("[]") == NGRAM:
        if spec.setdefault("method", NGRAM) != NGRAM:
            problem = f"contradicts {called[MODEL]} {model!r}"
            raise ConfigError(called[METHOD], spec["method"], problem)
        del spec["model"]
    elif "method" not in spec:
        found = detect(model)
        spec = {"method": found.method, **found.options, **spec}
        guessed.append(f"method {found.method!r}, {found.source}")
    if spec["method"] == NGRAM and "prompt_lookup_max" in spec:
        spec.setdefault("prompt_lookup_min", SHORTEST_NGRAM)
    if DRAFTS not in spec:
        count = drafts_of(model) if model else None
        source = f"as {model} has" if count is not None else "as nothing else was said"
        spec[DRAFTS] = DEFAULT_DRAFTS if count is None else count
        guessed.append(f"{spec[DRAFTS]} drafts per step {source}")
    # In the order in which a person would write it.
    ordered = ("method", "model", DRAFTS)
    return {key: spec[key] for key in (*ordered, *spec) if key in spec}, tuple(guessed)


def told(given: Mapping[str, Any], found: Modern, *, as_flags: bool = True) -> str:
    """Return the one line about old names, with the modern form.

    Args:
        given: values by old name.
        found: what they came to.
        as_flags: whether they were flags, not keyword arguments.
    """
    names = [LEGACY[name].flag if as_flags else name for name in given]
    text = f"Old names of options: {', '.join(names)}."
    if len(found.without_effect) < len(names):
        text += f" Today: {written(found.spec or {}, as_flags=as_flags)}"
    if found.guessed:
        text += f" ({'; '.join(found.guessed)})"
    if found.without_effect:
        text += f" Without effect any more, leave out: {', '.join(found.without_effect)}"
    return text


def written(spec: Mapping[str, Any], *, as_flags: bool = True) -> str:
    """Return a speculative config as it is written on a command line, or in a script."""
    if not as_flags:
        return f"speculative_config={dict(spec)!r}"
    return f"--speculative-config {shlex.quote(json.dumps(spec, ensure_ascii=False))}"
