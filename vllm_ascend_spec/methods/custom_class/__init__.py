"""Drafts from a user-defined class, named by ``speculative_config.model``."""

from __future__ import annotations

from vllm_ascend_spec.config.method import ALWAYS, Method
from vllm_ascend_spec.methods.custom_class.checks import check_custom_class

METHOD = Method(
    name="custom_class",
    about="a class of the person's own",
    options=ALWAYS | {"model"},
    required=("model", "num_speculative_tokens"),
    checks=(check_custom_class,),
    # It drafts on the host, so it is the same everywhere.
    drafters=dict.fromkeys(
        ("vllm", "ascend"), ("vllm_ascend_spec.methods.custom_class.drafter:CustomClassDrafter",)
    ),
)
