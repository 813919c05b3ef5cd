"""Checkpoints of heads with random weights, drafters on them, and steps for those."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.config.checkpoints import HIDDEN, VOCAB, WEIGHTS
from tests.config.heads import write_medusa, write_mlp
from tests.methods.engine import drafter_of, make_batch, make_step
from tests.speculation import make_speculation
from vllm_ascend_spec.methods.drafter import DrafterContext

WRITERS = {"medusa": write_medusa, "mlp_speculator": write_mlp}


def randomize(folder: Path, seed: int = 0) -> dict[str, torch.Tensor]:
    """Give a checkpoint random weights, and return them."""
    generator = torch.Generator().manual_seed(seed)
    tensors = load_file(folder / WEIGHTS)
    for name, tensor in sorted(tensors.items()):
        if tensor.is_floating_point():
            tensors[name] = torch.randn(tensor.shape, generator=generator).to(tensor.dtype)
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})
    return tensors


def make_drafter(
    method: str,
    folder: Path | str,
    *,
    num_drafts: int = 2,
    dtype: torch.dtype = torch.float32,
    load_format: str = "auto",
    hidden: int = HIDDEN,
    vocab: int = VOCAB,
    tensor_parallel_size: int = 1,
    noise: Any = None,
    **asked: Any,
) -> Any:
    """Return a drafter with its weights; ``asked`` are values of its speculation."""
    options = {"model": str(folder)} | asked.pop("options", {})
    vllm_config: Any = SimpleNamespace(
        load_config=SimpleNamespace(load_format=load_format, download_dir=None),
        model_config=SimpleNamespace(
            dtype=dtype, get_hidden_size=lambda: hidden, get_vocab_size=lambda: vocab
        ),
        scheduler_config=SimpleNamespace(max_num_seqs=4),
        parallel_config=SimpleNamespace(tensor_parallel_size=tensor_parallel_size),
    )
    parameters = SimpleNamespace(sampling_params=None)
    runner: Any = SimpleNamespace(
        requests={str(i): parameters for i in range(4)},
        input_batch=SimpleNamespace(req_ids=[str(i) for i in range(4)]),
        noise_of_drafts=noise,
    )
    drafter = drafter_of(method, "vllm").create(
        DrafterContext(
            vllm_config=vllm_config,
            device=torch.device("cpu"),
            runner=runner,
            speculation=make_speculation(method, max_k=num_drafts, options=options, **asked),
        )
    )
    drafter.load_model(None)
    return drafter


def make_heads_step(
    sampled: list[list[int]],
    states: torch.Tensor,  # [num_rows, HIDDEN]
    num_draft_tokens: list[int] | None = None,
    num_drafts: int = 2,
    **given: Any,
) -> Any:
    """Return a step that sampled these tokens from these rows."""
    drafts = num_draft_tokens
    verification = None if drafts is None else SimpleNamespace(num_draft_tokens=drafts)
    batch = make_batch(*([1, 2, *tokens] for tokens in sampled))
    known = {"sample_hidden_states": states, "verification": verification}
    return make_step(batch, *sampled, num_drafts=num_drafts, **known, **given)
