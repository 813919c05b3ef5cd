"""Quantize a checkpoint of the zoo to W8A8, in the format of ModelSlim.

    python examples/zoo/quantize.py target target-w8a8
    python examples/zoo/quantize.py target-deepseek target-deepseek-w8a8 --experts

With ``--experts`` a DeepSeek gets the experts of a DeepSeek V3 first; then it is W8A8_DYNAMIC.
Ranges of activations are those of texts from the standard library of the running Python.
`vllm serve FOLDER --quantization ascend` serves the result.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import torch

ZOO = Path(__file__).parent
sys.path.insert(0, str(ZOO))

from training import experts, modelslim

# Modules of Python whose text the ranges come from, and how much of each.
MODULES = ("argparse", "json.decoder", "textwrap", "statistics", "heapq", "queue")
LONGEST = 4000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", help="folder beside this file, or a path")
    parser.add_argument("target", help="the same, to be written")
    parser.add_argument("--type", choices=["W8A8", "W8A8_DYNAMIC"], help="default: W8A8")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16"])
    parser.add_argument("--experts", action="store_true", help="give a DeepSeek experts first")
    args = parser.parse_args()
    source, target = ZOO / args.source, ZOO / args.target
    if args.experts and args.type == "W8A8":
        parser.error("--type W8A8: ModelSlim quantizes experts as W8A8_DYNAMIC only")
    if args.experts or args.type == "W8A8_DYNAMIC":
        with tempfile.TemporaryDirectory() as work:
            if args.experts:
                experts.add_experts(source, Path(work) / "float")
                source = Path(work) / "float"
            modelslim.quantize_dynamic(source, target)
        return
    prompts = [inspect.getsource(import_module(name))[:LONGEST] for name in MODULES]
    modelslim.quantize_static(source, target, prompts, getattr(torch, args.dtype))


if __name__ == "__main__":
    main()
