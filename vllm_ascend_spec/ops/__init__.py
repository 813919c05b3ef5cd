"""The kernels behind drafting and verification: one folder an op, one file a backend."""

from vllm_ascend_spec.ops.grammar_mask import grammar_mask
from vllm_ascend_spec.ops.verify_greedy import verify_greedy
from vllm_ascend_spec.ops.verify_sample import verify_sample

__all__ = ["grammar_mask", "verify_greedy", "verify_sample"]
