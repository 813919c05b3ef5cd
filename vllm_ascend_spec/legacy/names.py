"""vLLM's old options of speculation, those from before ``speculative_config``.

vLLM 0.9 removed the last of them. Guides and deployment templates still use them.
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
# vLLM's options today, besides --speculative-config.
SHORT = ("spec_method", "spec_model", "spec_tokens")
# Texts that mean "not given", as for --speculative-config; templates use them to turn options off.
UNSET = ("", "None")
# The default for the shortest n-gram then; today it is the length of the longest.
SHORTEST_NGRAM = 1


@dataclass(frozen=True)
class Legacy:
    """An old option.

    Attributes:
        name: as a keyword argument of ``LLM``; with dashes it is the flag.
        parse: converts the text of the flag's value; None for a flag without a value.
        short: a short form of the flag.
        alone: value of the flag if none is given; None if the flag needs one.
    """

    name: str
    parse: type | None = str
    short: str | None = None
    alone: str | None = None

    @property
    def key(self) -> str | None:
        """The key of ``speculative_config``; None if the option has no effect any more."""
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
        """Parse the text of the flag's value.

        Raises:
            ConfigError: it has to be a number and is not.
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
    """What old options are translated to.

    Attributes:
        spec: the speculative config; None for none.
        guessed: what was not given and had to be inferred, one clause each.
        without_effect: old options that have no effect any more.
    """

    spec: Mapping[str, Any] | None
    guessed: tuple[str, ...] = ()
    without_effect: tuple[str, ...] = ()


def given_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the old names among ``values`` that were given."""
    return {name: values[name] for name in LEGACY if values.get(name) not in (None, *UNSET)}


def taken(values: dict[str, Any], *, as_flags: bool = True) -> tuple[dict[str, Any], Modern] | None:
    """Translate the old options among an engine's options, in place.

    Args:
        values: options of a command line or keyword arguments, by new and old names; modified.
        as_flags: as for :func:`modern`.

    Returns:
        The values by old name, and their translation; None if none was given.

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
    """Translate old options.

    Args:
        given: values by old name, at least one.
        spec: the speculative config that was given with them; None if none was.
        target: a folder or a name on the hub; None if it is not known.
        as_flags: whether messages name them as flags, not as keyword arguments.

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
    """Return the speculative config, and what had to be inferred for it."""
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
    """Return the one-line message about old options, with their translation.

    Args:
        given: values by old name.
        found: their translation.
        as_flags: whether they were flags, not keyword arguments.
    """
    names = [LEGACY[name].flag if as_flags else name for name in given]
    text = f"Old names of options: {', '.join(names)}."
    if len(found.without_effect) < len(names):
        text += f" Today: {written(found.spec or {}, as_flags=as_flags)}"
    if found.guessed:
        text += f" ({'; '.join(found.guessed)})"
    if found.without_effect:
        text += f" No longer has an effect, leave out: {', '.join(found.without_effect)}"
    return text


def written(spec: Mapping[str, Any], *, as_flags: bool = True) -> str:
    """Return a speculative config as it is written on a command line, or in a script."""
    if not as_flags:
        return f"speculative_config={dict(spec)!r}"
    return f"--speculative-config {shlex.quote(json.dumps(spec, ensure_ascii=False))}"
