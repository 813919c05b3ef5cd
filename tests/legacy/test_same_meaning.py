"""Old flags, the same names in a script or a file, and what ``migrate`` writes mean one thing."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from vllm.engine.arg_utils import EngineArgs

from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.errors import AscendSpecError
from vllm_ascend_spec.hooks import parser_hook
from vllm_ascend_spec.hooks.preflight import resolve_engine
from vllm_ascend_spec.legacy.names import LEGACY
from vllm_ascend_spec.legacy.rewrite import rewrite
from vllm_ascend_spec.legacy.yaml_file import rewrite_yaml

MTP = str(SPECS["mtp"]["model"])
MODELS = [SPECS[name]["model"] for name in ("draft_model", "eagle", "eagle3", "medusa")]
NUMBERS = st.integers(1, 4)
# A value that stands for none, where one may be left out.
ALONE = "True"
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "speculative_model": st.sampled_from([*MODELS, "[ngram]", "ngram", MTP, "", "None"]),
    "speculative_method": st.sampled_from(["eagle", "ngram", "suffix", "draft_model"]),
    "num_speculative_tokens": NUMBERS,
    "speculative_draft_tensor_parallel_size": st.just(1),
    "speculative_disable_by_batch_size": NUMBERS,
    "speculative_max_model_len": st.just(300),
    "speculative_model_quantization": st.sampled_from(["None", "no-such"]),
    "ngram_prompt_lookup_max": NUMBERS,
    "ngram_prompt_lookup_min": NUMBERS,
    "spec_decoding_acceptance_method": st.sampled_from(
        ["rejection_sampler", "typical_acceptance_sampler"]
    ),
    "typical_acceptance_sampler_posterior_threshold": st.just(0.1),
    "typical_acceptance_sampler_posterior_alpha": st.just(0.3),
    "num_lookahead_slots": NUMBERS,
    "disable_logprobs_during_spec_decoding": st.sampled_from([ALONE, "False"]),
    "use_v2_block_manager": st.just(True),
    "speculative_disable_mqa_scorer": st.just(True),
}
# The few that decide what comes of it, and any others beside them.
SETS = st.fixed_dictionaries(
    {},
    optional={name: VALUES[name] for name in list(VALUES)[:3]},
).flatmap(
    lambda first: st.fixed_dictionaries({}, optional=dict(list(VALUES.items())[3:])).map(
        lambda rest: first | rest
    )
)
# None: no speculation. A text: refused.
Outcome = dict[str, Any] | str | None


def written(name: str, value: Any, style: int) -> list[str]:
    """Return an option as words of a command, in one of four ways."""
    flag = f"--{name if style & 1 else name.replace('_', '-')}"
    option = LEGACY[name]
    if option.parse is None or value == option.alone:
        return [flag]
    return [f"{flag}={value}"] if style & 2 else [flag, str(value)]


@pytest.fixture(scope="module")
def parser() -> Any:
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from vllm_ascend_spec.upstream.server import make_arg_parser

    made = make_arg_parser(FlexibleArgumentParser())
    parser_hook.apply(made)
    return made


def parsed(parser: Any, target: str, words: list[str], capsys: Any) -> Outcome:
    """Return what a server would be asked for."""
    try:
        return parser.parse_args(["--model", target, "--port", "0", *words]).speculative_config
    except SystemExit:
        return str(capsys.readouterr().err.strip().splitlines()[-1])


def migrated(parser: Any, target: str, words: list[str], capsys: Any) -> Outcome:
    try:
        text = rewrite(shlex.join(["vllm", "serve", "--model", target, *words])).text
    except AscendSpecError as error:
        return str(error)
    new = shlex.split(text)[4:]
    assert not [word for word in new if "config" not in word and word.startswith("--")], text
    return parsed(parser, target, new, capsys)


def migrated_list(parser: Any, target: str, words: list[str], capsys: Any) -> Outcome:
    try:
        text = rewrite_yaml(f"args: {json.dumps(['--model', target, *words])}\n", "x.yaml").text
    except AscendSpecError as error:
        return str(error)
    return parsed(parser, target, yaml.safe_load(text)["args"][2:], capsys)


def in_script(target: str, values: dict[str, Any]) -> Outcome:
    try:
        asked = EngineArgs(target, **values).speculative_config
        resolve_engine(target, asked)
    except AscendSpecError as error:
        return str(error)
    return asked


def blamed(outcome: Outcome) -> str:
    """Return the option that a refusal names, as a keyword argument."""
    assert isinstance(outcome, str), outcome
    option = outcome.partition("error: ")[2] or outcome
    return option.partition("=")[0].strip("-").replace("-", "_")


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@example({"speculative_model": "[ngram]", "num_speculative_tokens": 3}, 3, False)
@given(SETS, st.integers(0, 3), st.booleans())
def test_one_meaning(
    parser: Any,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    values: dict[str, Any],
    style: int,
    drafts_itself: bool,
) -> None:
    target = MTP if drafts_itself else TARGET
    words = [word for name, value in values.items() for word in written(name, value, style)]
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({name.replace("_", "-"): v for name, v in values.items()}))
    outcomes: dict[str, Outcome] = {
        "flags": parsed(parser, target, words, capsys),
        "migrate": migrated(parser, target, words, capsys),
        "migrate, YAML": migrated_list(parser, target, words, capsys),
        "--config": parsed(parser, target, ["--config", str(file)], capsys) if values else None,
        "EngineArgs": in_script(target, values),
    }
    if isinstance(outcomes["flags"], str):
        problems = {blamed(found) for found in outcomes.values()}
        assert len(problems) == 1, outcomes
    else:
        assert all(found == outcomes["flags"] for found in outcomes.values()), outcomes
