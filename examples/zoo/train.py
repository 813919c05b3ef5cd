"""Train the zoo from a CPython standard library, offline, on a CPU.

    python examples/zoo/train.py --work WORK corpus target eagle

README.md has a line with all of them.

Stages run in the order given; each reads what the ones before it wrote. Every stage is step-based
and seeded, so a rerun on one machine with one build of torch repeats it. A CPython source tree
is all the input there is (``--stdlib``, by default that of the running interpreter).
"""

from __future__ import annotations

import argparse
import importlib
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

from training import corpus, edits, prompts, shapes
from training.stages import STAGES

ZOO = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stages", nargs="+", choices=["corpus", *STAGES])
    parser.add_argument("--work", type=Path, required=True, help="folder for the token streams")
    parser.add_argument("--out", type=Path, default=ZOO, help="where the checkpoints go")
    parser.add_argument(
        "--stdlib", type=Path, default=Path(sysconfig.get_paths()["stdlib"]), help="CPython's Lib"
    )
    parser.add_argument("--steps", type=int, help="override the number of steps (for a trial)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--shallow", action="store_true", help="small ones, for tests/models")
    args = parser.parse_args()
    if args.shallow:
        shapes.use_shallow()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    for stage in args.stages:
        if stage == "corpus":
            corpus.build(args.stdlib, args.work)
            prompts.write(args.work, args.out)
            prompts.write_for_training(args.stdlib, args.work)
            edits.write(args.work, args.out)
            continue
        module = importlib.import_module(f"training.stages.{stage}")
        recipe = replace(module.RECIPE, steps=args.steps) if args.steps else module.RECIPE
        module.train(args.work, args.out, recipe)


if __name__ == "__main__":
    main()
