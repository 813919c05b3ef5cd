"""A target that reads images, Qwen2.5-VL."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.ascend.matrix import MODES, Case
from tests.pictures import DRAFT, HEAD, MEDIA, NGRAM, QWEN25_VL

# Qwen2.5-VL, of whose positions an image makes three dimensions.
VL_ENGINE: dict[str, Any] = {"model": QWEN25_VL, **MEDIA}
VL_CASES: dict[str, Case] = {
    f"{method}-{mode}": Case(
        method=method,
        mode=mode,
        engine=VL_ENGINE,
        requests=("pictures",),
        options=spec,
        watched=method != "ngram",
    )
    for method, spec in (("eagle3", HEAD), ("draft_model", DRAFT), ("ngram", NGRAM))
    for mode in MODES
}
# Images in pieces, beside requests that decode.
VL_CASES["eagle3-chunked"] = Case(
    method="eagle3",
    mode="default",
    engine={**VL_ENGINE, "max_num_batched_tokens": 40, "max_num_seqs": 4},
    requests=("pictures",),
    options=HEAD,
)
VL_CASES["eagle3-async"] = Case(
    method="eagle3",
    mode="full_decode_only",
    engine={**VL_ENGINE, "async_scheduling": True},
    requests=("pictures",),
    options=HEAD,
)
# K from step to step, each with its own full graphs.
VL_CASES["eagle3-changing"] = Case(
    method="eagle3",
    mode="full_decode_only",
    engine={**VL_ENGINE, "additional_config": {"ascend_spec": {"draft_length": "auto"}}},
    requests=("pictures",),
    options=HEAD,
)
# Images that no cache of prefixes keeps, and a request at a time.
VL_CASES |= {
    f"{name}-no-prefixes": replace(
        VL_CASES[name],
        engine={**VL_ENGINE, "enable_prefix_caching": False},
        requests=("pictures", "pictures_alone"),
        watched=False,
    )
    for name in (
        "eagle3-eager",
        *(f"{method}-full_decode_only" for method in ("eagle3", "draft_model", "ngram")),
    )
}
VL_CASES["eagle3-alone"] = replace(
    VL_CASES["eagle3-full_decode_only"], requests=("pictures_alone", "pictures"), watched=False
)
