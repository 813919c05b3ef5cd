"""Quantize a checkpoint of the zoo to W8A8, in the format of ModelSlim.

    python examples/zoo/quantize.py target target-w8a8
    python examples/zoo/quantize.py target WORK/target-w8a8-dynamic --type W8A8_DYNAMIC

Ranges of activations are those of texts from the standard library of the running Python.
`vllm serve FOLDER --quantization ascend` serves the result.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from importlib import import_module
from pathlib import Path

import torch

ZOO = Path(__file__).parent
sys.path.insert(0, str(ZOO))

from training import modelslim

# Modules of Python whose text the ranges come from, and how much of each.
MODULES = ("argparse", "json.decoder", "textwrap", "statistics", "heapq", "queue")
LONGEST = 4000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", help="folder beside this file, or a path")
    parser.add_argument("target", help="the same, to be written")
    parser.add_argument("--type", default="W8A8", choices=["W8A8", "W8A8_DYNAMIC"])
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16"])
    args = parser.parse_args()
    source, target = ZOO / args.source, ZOO / args.target
    if args.type == "W8A8_DYNAMIC":
        modelslim.quantize_dynamic(source, target)
        return
    prompts = [inspect.getsource(import_module(name))[:LONGEST] for name in MODULES]
    modelslim.quantize_static(source, target, prompts, getattr(torch, args.dtype))


if __name__ == "__main__":
    main()
