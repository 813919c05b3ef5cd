"""``vllm-ascend-spec train``: a draft head for a model, from prompts to the line that serves it."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from typing import Any

from vllm_ascend_spec import versions
from vllm_ascend_spec.cli import check_found, serve, train_checks, train_options, train_output
from vllm_ascend_spec.cli.patience import waiting
from vllm_ascend_spec.errors import PlatformError
from vllm_ascend_spec.training import verdict
from vllm_ascend_spec.training.chosen import save_chosen
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.process import EXIT_BAD_INPUT, show
from vllm_ascend_spec.training.sequence import owned, run_phases
from vllm_ascend_spec.training.settings import Settings
from vllm_ascend_spec.training.speculation import section_for, with_section

HELP = "train a draft head for your model on your prompts, and measure what it is worth"
USAGE = """vllm-ascend-spec train MODEL --prompts FILE [FILE ...] --output DIR [options]
                              [-- options of `speculators train`]"""
DESCRIPTION = f"""{HELP}.

The target answers the prompts; its hidden states are stored; a head learns to draft such answers;
and held-out prompts tell how many tokens per step it gives beside --from, suffix and no
speculation. A second start with the same options goes on where the first one ended.

exit status:
  0    done; the last line serves the head, or the one of --from if the new one is worse
  2    an option is wrong; nothing was loaded
  3    a phase has refused an option or a file, or `check` the last line
  130  ended by Ctrl-C, 143 by SIGTERM; what is done is kept
  else that of the phase that failed"""
# What the parser of all commands puts beside our options.
OF_MAIN = ("command", "run")
# Of the phases' processes, unless the user says otherwise.
QUIET = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "TQDM_DISABLE": "1",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.usage = USAGE
    parser.description = DESCRIPTION
    train_options.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Train, and print what the head is worth."""
    args = argparse.Namespace(**{k: v for k, v in vars(args).items() if k not in OF_MAIN})
    checked = train_checks.checked(args)
    settings = checked.settings
    versions.require_vllm()
    if why := serve.problem():
        raise PlatformError(why)
    output = Output(settings.output)
    output.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with owned(output) as lock:
        for line in (checked.said, *train_output.begin_again(settings)):
            show(f"vllm-ascend-spec train: {line}")
        save_chosen(output, checked.ids)
        settings.save(output.settings)
        environment = {**QUIET, **os.environ, **serve.environment(dict(os.environ))}
        status = run_phases(settings, show, environment, lock)
    return status or conclude(settings)


def conclude(settings: Settings) -> int:
    """Print the table of the report and the line to serve with, checked as ``check`` does."""
    report = json.loads(Output(settings.output).report.read_text())
    for line in (*verdict.table(report), *verdict.remarks(report)):
        show(line)
    words = serve_words(settings, report["speculative_config"])
    with waiting("vllm-ascend-spec train: checking the command, loads no weights"):
        found = check_found.find(words)
    for problem in found.problems:
        sys.stderr.write(f"vllm-ascend-spec train: error: {problem.message}\n")
    if found.problems:
        return EXIT_BAD_INPUT
    passed = "`check` passes it" if found.unchecked is None else f"not checked: {found.unchecked}"
    show(f"serve it with this command; {passed}:")
    show(f"vllm serve {shlex.join(words)}")
    return 0


def serve_words(settings: Settings, spec: dict[str, Any]) -> list[str]:
    """Return what stands after ``vllm serve``."""
    dtype = () if settings.dtype == "auto" else ("--dtype", settings.dtype)
    return [
        str(settings.model),
        *dtype,
        *train_options.words_of(with_section(settings.engine, section_for(settings.engine, spec))),
        "--speculative-config",
        json.dumps(spec),
    ]
