"""The names that vLLM had for the method before it became one, and the warning about them."""

from __future__ import annotations

from collections.abc import Iterable

from vllm_ascend_spec.config.engine import SpecInput

# From vllm/config/speculative.py:MTPModelTypes; vLLM turns each into "mtp".
NAMES = frozenset(
    f"{family}_mtp"
    for family in (
        "bailing_hybrid",
        "bailing_hybrid_v3",
        "deepseek",
        "dots3_note",
        "ernie",
        "exaone4_5",
        "exaone_moe",
        "gemma4",
        "glm4_moe",
        "glm4_moe_lite",
        "glm5_next",
        "glm_ocr",
        "hy_v3",
        "hy_v4",
        "inkling",
        "kimi_k3",
        "longcat_flash",
        "mimo",
        "mimo_v2",
        "minimax_m3",
        "nemotron_h",
        "pangu_ultra_moe",
        "qwen3_5",
        "qwen3_next",
        "qwen4_exp",
        "step3p5",
    )
)


def warn_of_mtp(request: SpecInput) -> Iterable[str]:
    """Warn if an old name is used."""
    if (name := request.spec.get("method")) in NAMES:
        yield f"Method {name!r} is an old name of 'mtp'; the model determines its family."
