"""Quantize a checkpoint of the zoo to W8A8, in the format of ModelSlim.

    python examples/zoo/quantize.py target target-w8a8
    python examples/zoo/quantize.py target WORK/target-w8a8-dynamic --type W8A8_DYNAMIC

Ranges of activations are those of the prompts that ``prompts.json`` does not have: texts of the
standard library of the running Python. `vllm serve FOLDER --quantization ascend` serves the result.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
from pathlib import Path

ZOO = Path(__file__).parent
sys.path.insert(0, str(ZOO))

from training import modelslim

# Files that the ranges come from, and how much of each.
TEXTS = ("argparse.py", "json/decoder.py", "textwrap.py", "statistics.py", "heapq.py", "queue.py")
LONGEST = 4000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", help="folder beside this file, or a path")
    parser.add_argument("target", help="the same, to be written")
    parser.add_argument("--type", default="W8A8", choices=list(modelslim.IN_FLOAT))
    args = parser.parse_args()
    library = Path(sysconfig.get_paths()["stdlib"])
    prompts = [(library / name).read_text()[:LONGEST] for name in TEXTS]
    modelslim.quantize(ZOO / args.source, ZOO / args.target, args.type, prompts)


if __name__ == "__main__":
    main()
