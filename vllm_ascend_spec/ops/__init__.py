"""Kernels for drafting and verification: one folder per op, one file per backend."""

from vllm_ascend_spec.ops.grammar_mask import OP as GRAMMAR_MASK
from vllm_ascend_spec.ops.grammar_mask import grammar_mask
from vllm_ascend_spec.ops.verify_greedy import OP as VERIFY_GREEDY
from vllm_ascend_spec.ops.verify_greedy import verify_greedy
from vllm_ascend_spec.ops.verify_sample import OP as VERIFY_SAMPLE
from vllm_ascend_spec.ops.verify_sample import verify_sample
from vllm_ascend_spec.ops.verify_seeded import OP as VERIFY_SEEDED
from vllm_ascend_spec.ops.verify_seeded import verify_seeded
from vllm_ascend_spec.ops.verify_tree import OP as VERIFY_TREE
from vllm_ascend_spec.ops.verify_tree import verify_tree

OPS = (VERIFY_GREEDY, VERIFY_SAMPLE, VERIFY_SEEDED, VERIFY_TREE, GRAMMAR_MASK)

__all__ = [
    "OPS",
    "grammar_mask",
    "verify_greedy",
    "verify_sample",
    "verify_seeded",
    "verify_tree",
]
