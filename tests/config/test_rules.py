"""Which rule verifies, for every combination of the two options that have a say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from vllm.config import SpeculativeConfig

from tests.speculation import make_speculation
from tests.zoo import SPECS
from vllm_ascend_spec.config.rules import (
    RULE_METHODS,
    SYNTHETIC,
    SYNTHETIC_OPTIONS,
    check_synthetic,
    resolve_rule,
    rule_warnings,
)
from vllm_ascend_spec.config.schema import VERIFY_RULES
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks.preflight import resolve_engine
from vllm_ascend_spec.methods.registry import BUILT_IN
from vllm_ascend_spec.ops.verify_sample import RULES as RULES_OF_THE_OP

METHOD = "speculative_config.rejection_sample_method"
OPTION = "additional_config.ascend_spec.verify_rule"
# (rejection_sample_method, verify_rule or None where it is not given) -> rule, None if refused.
RULES: dict[tuple[str, str | None], str | None] = {
    ("standard", None): "token",
    ("standard", "token"): "token",
    ("standard", "block"): "block",
    ("standard", "seeded"): "seeded",
    ("block", None): "block",
    ("block", "token"): None,
    ("block", "block"): "block",
    ("block", "seeded"): None,
    ("synthetic", None): "synthetic",
    ("synthetic", "token"): None,
    ("synthetic", "block"): None,
    ("synthetic", "seeded"): None,
}


def section(rule: str | None) -> dict[str, Any]:
    return {} if rule is None else {"verify_rule": rule}


def test_every_combination_is_listed() -> None:
    assert set(RULES) == {(m, r) for m in RULE_METHODS for r in (None, *VERIFY_RULES)}


@pytest.mark.parametrize(("method", "wanted"), [pair for pair, rule in RULES.items() if rule])
def test_combinations_that_make_sense(method: str, wanted: str | None) -> None:
    assert resolve_rule(method, section(wanted)) == RULES[method, wanted]


@pytest.mark.parametrize(("method", "wanted"), [pair for pair, rule in RULES.items() if not rule])
def test_combinations_that_contradict_each_other_are_refused(method: str, wanted: str) -> None:
    with pytest.raises(ConfigError) as raised:
        resolve_rule(method, section(wanted))
    assert str(raised.value) == (
        f"{OPTION}={wanted!r}: contradicts {METHOD}={method!r}; give one of the two"
    )


@pytest.mark.parametrize("method", [None, "", False, "strict", "Block", 3, ["block"], {}])
@pytest.mark.parametrize("wanted", [None, "block"])
def test_unknown_methods_are_refused_with_the_valid_ones(method: Any, wanted: str | None) -> None:
    with pytest.raises(ConfigError) as raised:
        resolve_rule(method, section(wanted))
    assert str(raised.value) == f"{METHOD}={method!r}: valid: 'standard', 'block', 'synthetic'"


def test_methods_are_those_of_vllm() -> None:
    for method in RULE_METHODS:
        SpeculativeConfig(
            method="ngram",
            num_speculative_tokens=2,
            prompt_lookup_max=3,
            rejection_sample_method=method,  # type: ignore[arg-type]
            synthetic_acceptance_length=2 if method == SYNTHETIC else None,
        )


@pytest.mark.parametrize(
    ("rule", "method", "drafts", "words"),
    [
        ("token", "eagle", "greedy", None),
        ("token", "eagle", "probabilistic", None),
        ("token", "ngram", "greedy", None),
        ("block", "eagle", "probabilistic", None),
        ("block", "eagle", "greedy", "if drafts are greedy"),
        ("block", "ngram", "greedy", "with method 'ngram', which cannot sample"),
        ("block", "custom_class", "greedy", "with method 'custom_class', which cannot sample"),
        ("seeded", "eagle", "probabilistic", None),
        ("seeded", "eagle", "greedy", None),
        ("seeded", "ngram", "greedy", None),
        ("synthetic", "eagle", "greedy", "not the target's"),
    ],
)
def test_choices_without_gain_or_loss_of_meaning_are_warned_of(
    rule: str, method: str, drafts: str, words: str | None
) -> None:
    warnings = rule_warnings(rule, BUILT_IN[method], drafts)
    assert len(warnings) == (words is not None)
    assert all(words and words in warning and "\n" not in warning for warning in warnings)


@pytest.mark.parametrize("method", ["eagle", "ngram", "suffix", "medusa", "mtp"])
@pytest.mark.parametrize("how", [None, "auto", "greedy", "probabilistic"])
def test_the_seeded_rule_goes_with_every_way_to_pick_drafts(method: str, how: str | None) -> None:
    spec = {**SPECS[method], **({} if how is None else {"draft_sample_method": how})}
    if how in {"auto", "probabilistic"} and not BUILT_IN[method].can_sample_drafts:
        with pytest.raises(ConfigError, match="draft_sample_method"):
            resolve_engine("org/target", spec, {"ascend_spec": {"verify_rule": "seeded"}})
        return
    found = resolve_engine("org/target", spec, {"ascend_spec": {"verify_rule": "seeded"}})
    plain = resolve_engine("org/target", spec)
    assert found is not None
    assert plain is not None
    assert (found.rule, found.is_lossless) == ("seeded", True)
    assert found.sources["rule"] == OPTION
    # Drafts are picked and warned of as with the token rule.
    assert found.draft_sample_method == plain.draft_sample_method
    assert found.samples_drafts == plain.samples_drafts
    assert found.warnings == plain.warnings


@pytest.mark.parametrize(
    ("method", "options", "rule", "expected"),
    [
        ("eagle", {}, None, "top_k"),
        ("eagle", {}, "token", "none"),
        ("eagle", {}, "block", "none"),
        ("eagle", {}, "seeded", "all"),
        ("eagle", {"draft_sample_method": "greedy"}, None, "none"),
        ("eagle", {"draft_sample_method": "greedy"}, "seeded", "all"),
        ("ngram", {}, None, "none"),
        ("ngram", {}, "seeded", "all"),
        ("eagle", {"rejection_sample_method": "block"}, None, "none"),
    ],
)
def test_who_is_given_a_seed(
    method: str, options: dict[str, Any], rule: str | None, expected: str
) -> None:
    found = resolve_engine(
        "org/target", {**SPECS[method], **options}, {"ascend_spec": section(rule)}
    )
    assert found is not None
    assert found.seeds_for == expected


@pytest.mark.parametrize(
    ("rule", "of_the_op"),
    [("token", "token"), ("block", "block"), ("seeded", "token"), ("synthetic", "token")],
)
def test_the_op_for_requests_without_a_seed_knows_two_rules(rule: str, of_the_op: str) -> None:
    """Seeded, no request that samples is without one; synthetic acceptance asks for one token."""
    assert make_speculation("eagle", rule=rule).verify_rule == of_the_op
    assert of_the_op in RULES_OF_THE_OP


def spec(num_drafts: int = 3, **options: Any) -> dict[str, Any]:
    return {"num_speculative_tokens": num_drafts, "rejection_sample_method": SYNTHETIC, **options}


RATES, LENGTH = SYNTHETIC_OPTIONS


@pytest.mark.parametrize(
    "options",
    [
        {RATES: [0.9, 0.5, 0.1]},
        {RATES: [1, 1.0, 0]},
        {RATES: (0.5, 0.5, 0.5)},
        {RATES: [0.0, 0.0, 0.0]},
        {LENGTH: 1},
        {LENGTH: 2.5},
        {LENGTH: 4.0},
        {LENGTH: 2, RATES: None},
        {LENGTH: 2, "draft_sample_method": "greedy"},
    ],
)
def test_synthetic_options_that_fit(options: dict[str, Any]) -> None:
    check_synthetic(spec(**options))
    # What we let through, vLLM must take.
    given = {key: value for key, value in options.items() if key in SYNTHETIC_OPTIONS}
    rates = SpeculativeConfig._resolve_synthetic_acceptance_rates(
        3, given.get(RATES), given.get(LENGTH)
    )
    assert len(rates) == 3


@pytest.mark.parametrize(
    "rates",
    [
        [],
        [0.5, 0.4],
        [0.5, 0.4, 0.3, 0.2],
        [0.5, 0.6, 0.3],
        [0.5, 0.4, 0.41],
        [1.1, 0.5, 0.5],
        [0.5, 0.5, -0.1],
        [float("nan"), 0.5, 0.5],
        [0.5, 0.5, float("nan")],
        [float("inf"), 0.5, 0.5],
        ["0.5", 0.5, 0.5],
        [0.5, None, 0.5],
        [True, 0.5, 0.5],
        [[0.5], 0.5, 0.5],
        0.5,
        "0.5",
        {"0": 0.5, "1": 0.5, "2": 0.5},
        True,
        False,
    ],
    ids=repr,
)
def test_rates_of_a_wrong_shape_are_refused(rates: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        check_synthetic(spec(**{RATES: rates}))
    error = raised.value
    assert (error.option, error.value) == (f"speculative_config.{RATES}", rates)
    assert error.problem == "valid: 3 numbers in [0, 1], none larger than the one before it"


@pytest.mark.parametrize(
    "length",
    [0, 0.99, 4.01, -1, float("nan"), float("inf"), "2", [2], {}, True, False],
    ids=repr,
)
def test_lengths_out_of_range_are_refused(length: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        check_synthetic(spec(**{LENGTH: length}))
    error = raised.value
    assert (error.option, error.value) == (f"speculative_config.{LENGTH}", length)
    assert error.problem == "valid: a number from 1 to 4"


@pytest.mark.parametrize(
    ("options", "count"),
    [({}, 0), ({RATES: None, LENGTH: None}, 0), ({RATES: [1, 1, 1], LENGTH: 2}, 2)],
)
def test_exactly_one_of_both_is_needed(options: dict[str, Any], count: int) -> None:
    with pytest.raises(ConfigError) as raised:
        check_synthetic(spec(**options))
    assert str(raised.value) == (
        f"{METHOD}='synthetic': needs either {RATES} or {LENGTH}; {count} are given"
    )


@pytest.mark.parametrize("method", ["standard", "block", None])
@pytest.mark.parametrize("options", [{RATES: [1, 1, 1]}, {LENGTH: 2}, {RATES: []}, {LENGTH: 0}])
def test_synthetic_options_have_no_effect_elsewhere(
    method: str | None, options: dict[str, Any]
) -> None:
    given = spec(**options)
    del given["rejection_sample_method"]
    if method is not None:
        given["rejection_sample_method"] = method
    ((name, value),) = options.items()
    with pytest.raises(ConfigError) as raised:
        check_synthetic(given)
    assert str(raised.value) == f"speculative_config.{name}={value!r}: needs {METHOD}='synthetic'"


@pytest.mark.parametrize("how", ["probabilistic", None, "sometimes"])
def test_how_drafts_are_sampled_has_no_effect_with_synthetic_acceptance(how: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        check_synthetic(spec(**{LENGTH: 2, "draft_sample_method": how}))
    assert raised.value.option == "speculative_config.draft_sample_method"
    assert raised.value.problem == f"has no effect with {METHOD}='synthetic'"


@pytest.mark.parametrize("method", ["standard", "block"])
def test_other_methods_need_no_more_options(method: str) -> None:
    check_synthetic({"num_speculative_tokens": 3, "rejection_sample_method": method})
    check_synthetic({"num_speculative_tokens": 3})


def test_what_json_gives_is_what_is_checked() -> None:
    text = '{"num_speculative_tokens": 2, "rejection_sample_method": "synthetic", '
    check_synthetic(json.loads(text + '"synthetic_acceptance_rates": [1, 0.5]}'))
    for wrong in ("[1, NaN]", "[1]", "true", '"1"'):
        with pytest.raises(ConfigError):
            check_synthetic(json.loads(text + f'"synthetic_acceptance_rates": {wrong}}}'))
