"""Which targets cannot have trees on a GPU, by their config.json, and the engine's attention."""

from __future__ import annotations

from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_ascend_spec.config.cuda_trees import BACKEND, cause_in_cache
from vllm_ascend_spec.config.engine import attention_backend_of
from vllm_ascend_spec.config.tree_rules import cause_in_config
from vllm_ascend_spec.devices import cpu, cuda

SHORT = "a sliding window below 64 yet; leave it out"
# What real models' configs say of their attention.
CONFIGS: dict[str, tuple[dict[str, Any], str | None]] = {
    "Llama": ({"model_type": "llama"}, None),
    "Mistral": ({"model_type": "mistral", "sliding_window": 4096}, None),
    "Qwen2": ({"model_type": "qwen2", "sliding_window": 32, "use_sliding_window": False}, None),
    "gpt-oss": ({"model_type": "gpt_oss", "sliding_window": 128}, None),
    "Gemma 3": ({"text_config": {"sliding_window": 1024}, "model_type": "gemma3"}, None),
    "as many as bits": ({"sliding_window": 64}, None),
    "one less": ({"sliding_window": 63}, SHORT),
    "in a text part": ({"text_config": {"sliding_window": 16}}, SHORT),
    "Bloom": ({"model_type": "bloom"}, "ALiBi yet; leave it out"),
    "Falcon": ({"model_type": "falcon", "alibi": True}, "ALiBi yet; leave it out"),
    "Falcon 2": ({"model_type": "falcon", "alibi": False}, None),
    "MPT": ({"model_type": "mpt", "attn_config": {"alibi": True}}, "ALiBi yet; leave it out"),
    "Jais": ({"position_embedding_type": "alibi"}, "ALiBi yet; leave it out"),
    "GPT-2": ({"position_embedding_type": "absolute"}, None),
    "DeepSeek": ({"kv_lora_rank": 512}, "multi-head latent attention yet; leave it out"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_target_by_its_config(name: str) -> None:
    config, cause = CONFIGS[name]
    assert cause_in_config(config, cuda.DEVICE) == cause


def test_a_cpu_follows_paths_whatever_the_window() -> None:
    assert cause_in_config({"sliding_window": 16, "alibi": True}, cpu.DEVICE) is None


class Backend(Enum):
    """As vLLM's."""

    FLASH_ATTN = "a.b"
    TRITON_ATTN = "c.d"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, None),
        ({"attention_backend": None, "attention_config": None}, None),
        ({"attention_backend": "auto"}, None),
        ({"attention_backend": "flash_attn"}, "FLASH_ATTN"),
        ({"attention_backend": Backend.TRITON_ATTN}, BACKEND),
        ({"attention_config": {"backend": "TRITON_ATTN"}}, BACKEND),
        ({"attention_config": SimpleNamespace(backend=Backend.FLASH_ATTN)}, "FLASH_ATTN"),
        ({"attention_config": SimpleNamespace(backend=None)}, None),
    ],
)
def test_the_attention_that_is_asked_for(given: dict[str, Any], name: str | None) -> None:
    assert attention_backend_of(SimpleNamespace(**given)) == name


def test_vllms_name_of_the_backend() -> None:
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    path = AttentionBackendEnum[BACKEND].get_path()
    assert path.endswith("triton_attn.TritonAttentionBackend")


@pytest.mark.parametrize("dtype", ["auto", "bfloat16", "float16"])
def test_caches_that_are_not_quantized(dtype: str) -> None:
    assert cause_in_cache(dtype) is None


def test_quantized_caches_are_refused() -> None:
    from typing import get_args

    from vllm.config.cache import CacheDType

    quantized = {name for name in get_args(CacheDType) if cause_in_cache(name) is not None}
    assert quantized == set(get_args(CacheDType)) - {"auto", "bfloat16", "float16", "float32"}
    assert "fp8" in quantized
