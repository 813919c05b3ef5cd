"""Calls the project's kernels, compiled for the emulator; tensors are memory of this process.

Each op has a library of its own, ``<folder>/<op>.so``, whose host file
``ops/ascendc/<op>/emulator_host.cpp`` declares the structs below. It is slow: it tests the kernels,
and what calls them, where there is no NPU. So it is no part of the package.
"""

from __future__ import annotations

import ctypes
import functools
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ops.emulator.report import BrokenRule, EmulatorError, EmulatorOptions, EmulatorStats
from vllm_ascend_spec.ops.ascendc_library import RULES, Outputs, TreeOutputs

DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
MODES = {"auto": 0, "split": 1, "by request": 2}
REFUSED, BROKEN = 1, 2
MESSAGE_BYTES = 512
# Of an Atlas A2 with 24 AI cores.
DEFAULT_CORES = 48
CORES_VARIABLE = "VLLM_ASCEND_SPEC_EMULATOR_CORES"

_Pointer, _Long, _Int = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32


class _Launch(ctypes.Structure):
    """``spec_launch`` of ``ops/ascendc/common/emulator_host.h``."""

    _fields_ = (
        ("num_cores", _Int),
        ("mode", _Int),
        ("tile", _Long),
        ("options", EmulatorOptions),
        ("stats", ctypes.POINTER(EmulatorStats)),
        ("error", ctypes.POINTER(BrokenRule)),
        ("message", ctypes.c_char_p),
        ("message_size", _Long),
    )


class _VerifyGreedy(ctypes.Structure):
    _fields_ = (
        *((name, _Pointer) for name in ("logits", "drafts", "ends", "tokens", "counts")),
        *((name, _Long) for name in ("num_reqs", "num_rows", "vocab_size", "row_stride")),
        ("max_draft_len", _Long),
        ("dtype", _Int),
    )


class _VerifySample(ctypes.Structure):
    _fields_ = (
        *((name, _Pointer) for name in ("logits", "drafts", "ends", "temperature", "top_k")),
        *((name, _Pointer) for name in ("top_p", "min_p", "draft_probs", "accept_uniform")),
        *((name, _Pointer) for name in ("sample_uniform", "tokens", "counts")),
        *((name, _Long) for name in ("num_reqs", "num_rows", "vocab_size", "row_stride")),
        ("draft_stride", _Long),
        ("max_draft_len", _Long),
        ("dtype", _Int),
        ("block_rule", _Int),
    )


class _VerifySeeded(ctypes.Structure):
    _fields_ = (
        *((name, _Pointer) for name in ("logits", "drafts", "ends", "temperature", "top_k")),
        *((name, _Pointer) for name in ("top_p", "min_p", "seeds", "positions")),
        *((name, _Pointer) for name in ("tokens", "counts")),
        *((name, _Long) for name in ("num_reqs", "num_rows", "vocab_size", "row_stride")),
        ("max_draft_len", _Long),
        ("dtype", _Int),
    )


class _VerifyTree(ctypes.Structure):
    _fields_ = (
        *((name, _Pointer) for name in ("logits", "drafts", "ends", "parents", "temperature")),
        *((name, _Pointer) for name in ("top_k", "top_p", "min_p", "seeds", "positions")),
        *((name, _Pointer) for name in ("tokens", "counts", "paths")),
        *((name, _Long) for name in ("num_reqs", "num_rows", "vocab_size", "row_stride")),
        ("max_draft_len", _Long),
        ("dtype", _Int),
    )


class _GrammarMask(ctypes.Structure):
    _fields_ = (
        *((name, _Pointer) for name in ("logits", "bitmask", "row_indices")),
        *((name, _Long) for name in ("num_masked", "num_words", "num_rows", "vocab_size")),
        ("row_stride", _Long),
        ("dtype", _Int),
    )


@dataclass
class Emulator:
    """The kernels under the emulator, see :class:`~vllm_ascend_spec.ops.ascendc_library.Library`.

    Attributes:
        folder: where the libraries are.
        num_cores: vector cores of the simulated chip.
        mode: how the batch is cut, one of MODES.
        tile: logits of a tile; 0 lets the op choose.
        checks: whether the hardware's rules are checked, which takes several times as long.
        auto_sync: what the compiler is trusted to order, see ``ops/emulator/README.md``.
        nan_mode: 0 if NaN wins in maxima, 1 if it loses.
        strict_positions: whether copies must keep to the documented paths.
        stats: counts of the last launch.
    """

    folder: Path
    num_cores: int = field(
        default_factory=lambda: int(os.environ.get(CORES_VARIABLE) or DEFAULT_CORES)
    )
    mode: str = "auto"
    tile: int = 0
    checks: bool = True
    auto_sync: int = 1
    nan_mode: int = 0
    strict_positions: bool = True
    stats: EmulatorStats = field(default_factory=EmulatorStats)

    def verify_greedy(
        self,
        logits: torch.Tensor,  # [num_rows, vocab_size]
        draft_token_ids: torch.Tensor,  # [num_drafts]
        cu_num_draft_tokens: torch.Tensor,  # [num_reqs]
        max_draft_len: int,
    ) -> Outputs:
        """Run the kernel of ``verify_greedy``."""
        outputs = _new_outputs(cu_num_draft_tokens, max_draft_len)
        call = _VerifyGreedy(
            **_batch(logits, draft_token_ids, cu_num_draft_tokens, max_draft_len, outputs)
        )
        self._run("verify_greedy", call)
        return outputs

    def verify_sample(
        self,
        logits: torch.Tensor,  # [num_rows, vocab_size]
        draft_token_ids: torch.Tensor,  # [num_drafts]
        cu_num_draft_tokens: torch.Tensor,  # [num_reqs]
        max_draft_len: int,
        *,
        rule: str,
        draft_probs: torch.Tensor | None,  # [num_drafts, vocab_size]
        **parameters: torch.Tensor | None,  # [num_reqs] or [num_drafts]
    ) -> Outputs:
        """Run the kernel of ``verify_sample``."""
        outputs = _new_outputs(cu_num_draft_tokens, max_draft_len)
        call = _VerifySample(
            **_batch(logits, draft_token_ids, cu_num_draft_tokens, max_draft_len, outputs),
            **{name: _address(tensor) for name, tensor in parameters.items()},
            draft_probs=_address(draft_probs),
            draft_stride=0 if draft_probs is None else draft_probs.stride(0),
            block_rule=RULES[rule],
        )
        self._run("verify_sample", call)
        return outputs

    def verify_seeded(
        self,
        logits: torch.Tensor,  # [num_rows, vocab_size]
        draft_token_ids: torch.Tensor,  # [num_drafts]
        cu_num_draft_tokens: torch.Tensor,  # [num_reqs]
        max_draft_len: int,
        **parameters: torch.Tensor | None,  # [num_reqs]
    ) -> Outputs:
        """Run the kernel of ``verify_seeded``."""
        outputs = _new_outputs(cu_num_draft_tokens, max_draft_len)
        call = _VerifySeeded(
            **_batch(logits, draft_token_ids, cu_num_draft_tokens, max_draft_len, outputs),
            **{name: _address(tensor) for name, tensor in parameters.items()},
        )
        self._run("verify_seeded", call)
        return outputs

    def verify_tree(
        self,
        logits: torch.Tensor,  # [num_rows, vocab_size]
        draft_token_ids: torch.Tensor,  # [num_drafts]
        cu_num_draft_tokens: torch.Tensor,  # [num_reqs]
        max_draft_len: int,
        **parameters: torch.Tensor | None,  # [num_reqs] or [num_drafts]
    ) -> TreeOutputs:
        """Run the kernel of ``verify_tree``."""
        tokens, counts = _new_outputs(cu_num_draft_tokens, max_draft_len)
        paths = torch.full_like(tokens, -7)
        call = _VerifyTree(
            **_batch(logits, draft_token_ids, cu_num_draft_tokens, max_draft_len, (tokens, counts)),
            **{name: _address(tensor) for name, tensor in parameters.items()},
            paths=paths.data_ptr(),
        )
        self._run("verify_tree", call)
        return tokens, counts, paths

    def grammar_mask(
        self,
        logits: torch.Tensor,  # [num_rows, vocab_size]
        bitmask: torch.Tensor,  # [num_masked, num_words]
        row_indices: torch.Tensor,  # [num_masked]
    ) -> None:
        """Run the kernel of ``grammar_mask``."""
        call = _GrammarMask(
            logits=logits.data_ptr(),
            bitmask=bitmask.data_ptr(),
            row_indices=row_indices.data_ptr(),
            num_masked=bitmask.shape[0],
            num_words=bitmask.shape[1],
            num_rows=logits.shape[0],
            vocab_size=logits.shape[1],
            row_stride=logits.stride(0),
            dtype=DTYPES[logits.dtype],
        )
        self._run("grammar_mask", call)

    def _run(self, op: str, call: ctypes.Structure) -> None:
        broken, message = BrokenRule(), ctypes.create_string_buffer(MESSAGE_BYTES)
        launch = _Launch(
            num_cores=self.num_cores,
            mode=MODES[self.mode],
            tile=self.tile,
            options=EmulatorOptions(
                self.checks, self.auto_sync, self.nan_mode, self.strict_positions
            ),
            stats=ctypes.pointer(self.stats),
            error=ctypes.pointer(broken),
            message=ctypes.cast(message, ctypes.c_char_p),
            message_size=MESSAGE_BYTES,
        )
        run = getattr(_load(self.folder / f"{op}.so"), f"spec_run_{op}")
        status = run(ctypes.byref(launch), ctypes.byref(call))
        if status == REFUSED:
            raise ValueError(message.value.decode())
        if status == BROKEN:
            raise EmulatorError(broken)


@functools.cache
def _load(library: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(library))


def _address(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _new_outputs(cu_num_draft_tokens: torch.Tensor, max_draft_len: int) -> Outputs:
    num_reqs = cu_num_draft_tokens.shape[0]
    # What the kernel leaves out would show.
    tokens = cu_num_draft_tokens.new_full((num_reqs, max_draft_len + 1), -7)
    return tokens, cu_num_draft_tokens.new_full((num_reqs,), -7)


def _batch(
    logits: torch.Tensor,
    draft_token_ids: torch.Tensor,
    cu_num_draft_tokens: torch.Tensor,
    max_draft_len: int,
    outputs: Outputs,
) -> dict[str, Any]:
    return {
        "logits": logits.data_ptr(),
        "drafts": draft_token_ids.data_ptr(),
        "ends": cu_num_draft_tokens.data_ptr(),
        "tokens": outputs[0].data_ptr(),
        "counts": outputs[1].data_ptr(),
        "num_reqs": cu_num_draft_tokens.shape[0],
        "num_rows": logits.shape[0],
        "vocab_size": logits.shape[1],
        "row_stride": logits.stride(0),
        "max_draft_len": max_draft_len,
        "dtype": DTYPES[logits.dtype],
    }
