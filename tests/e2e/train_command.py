"""Run ``vllm-ascend-spec train`` on the zoo's target, and measure the head that it makes."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from examples.zoo import evaluate
from tests.docs.person import COMPILES_ALL, ONE_THREAD
from tests.docs.person import environment as environment_of_a_person
from tests.engines import MakeEngine
from tests.warm.programs import Programs
from tests.zoo import ZOO
from vllm_ascend_spec.cli import serve
from vllm_ascend_spec.cli.train import QUIET
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.phases.run import STREAM, TO_STDERR


def train(
    folder: Path,
    texts: Sequence[str],
    options: str,
    longest_s: float,
    environment: Mapping[str, str] | None = None,
) -> tuple[Output, list[str]]:
    """Run the command in a folder, and return what it made and its lines.

    In an environment whose ``python`` makes copies, see :func:`in_copies`, its phases and engines
    are such copies.
    """
    prompts, output = folder / "prompts.jsonl", Output(folder / "out")
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    words = f"""train {ZOO / "target"} --prompts {prompts} --output {output.folder}
        --max-model-len 512 --dtype float32 --enforce-eager {options}"""
    program = "vllm_ascend_spec.cli.main" if environment is None else "tests.e2e.train_in_copies"
    done = subprocess.run(
        [sys.executable, "-m", program, *shlex.split(words)],
        capture_output=True,
        text=True,
        timeout=longest_s,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout[-4000:]
    return output, done.stdout.splitlines()


@contextmanager
def in_copies() -> Iterator[dict[str, str] | None]:
    """Yield an environment whose ``python`` is a copy of a process with all that phases import.

    It has what the command sets for them: else they would run in processes of their own, as by
    night, where this yields None.
    """
    if COMPILES_ALL:
        yield None
        return
    given = environment_of_a_person(VLLM_ENABLE_V1_MULTIPROCESSING="0", **ONE_THREAD, **QUIET)
    given |= {STREAM: TO_STDERR, **serve.environment(given)}
    with closing(Programs(given, ("vllm", "speculators.train.trainer"))) as programs:
        yield given | programs.variables


def worth_in_the_zoo(make_engine: MakeEngine, name: str, head: Path, request: str) -> float:
    """Return tokens per step on the zoo's prompts, measured as its record was.

    Args:
        make_engine: starts engines.
        name: of a draft in that record, whose place the head takes.
        head: its folder.
        request: kind of requests, a key of ``evaluate.REQUESTS``.
    """
    spec = {**evaluate.DRAFTS[name].spec(), "model": str(head)}
    llm = make_engine(spec, model=str(ZOO / "target"), **evaluate.ENGINE)
    found: float = evaluate.measure(llm, evaluate.REQUESTS[request])["tokens_per_step"]
    return found
