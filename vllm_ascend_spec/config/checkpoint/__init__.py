"""Is a draft's checkpoint there, whole, and made for its target? Reads JSON and headers only.

``folder`` and ``hub`` find it, ``safetensors`` and ``files`` read what is in it, ``config_json``
checks the config, ``tensors`` compares both with a table of ``families``. A method adds a function
to ``CHECKS``, an architecture a table to ``families``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vllm_ascend_spec.config.checkpoint.config_json import architecture_of
from vllm_ascend_spec.config.checkpoint.draft import Draft
from vllm_ascend_spec.config.checkpoint.families import eagle_llama, llama, unknown
from vllm_ascend_spec.config.checkpoint.folder import find_folder, find_target
from vllm_ascend_spec.config.checkpoint.problem import UnusableError, laid_to
from vllm_ascend_spec.config.checkpoint.tensors import check_tensors

__all__ = ["CHECKS", "Draft", "check_draft", "find_folder", "find_target"]

# What joins a token's embedding and the target's state is called so.
FUSION = frozenset(("fc", "eagle_linear"))
EAGLE = re.compile(r"Eagle\w+ForCausalLM")


def check_draft(
    option: str, spec: Mapping[str, Any], folder: Path, target: Path | None, load_format: str
) -> None:
    """Check the draft of a validated ``speculative_config`` in a local folder.

    Args:
        option: names the draft's folder in messages.
        spec: method, model and options.
        folder: the draft's.
        target: the target's, or None if the two need not fit or it is elsewhere.
        load_format: of the target.

    Raises:
        CheckpointError: saying what is there and what is valid.
    """
    own = spec.get("draft_load_config")
    if isinstance(own, Mapping):
        load_format = str(own.get("load_format", "auto"))
    if load_format != "dummy":
        draft = Draft(option, spec["model"], folder, target, load_format, spec.get("quantization"))
        CHECKS[spec["method"]](draft)


def check_eagle(draft: Draft) -> None:
    """Check an EAGLE head, against its target if there is one.

    Raises:
        CheckpointError: saying what is there and what is valid.
    """
    found = draft.read("vocab_size", "hidden_size")
    with laid_to(draft.option, draft.model):
        if not any(FUSION.intersection(name.split(".")) for name in found.tensors):
            raise UnusableError(
                "is not an EAGLE head (no tensor fc.weight); for an ordinary model use "
                "method 'draft_model'"
            )
        table = eagle_llama.table_of(architecture_of(found.config), found.config)
        if table is not None and found.usual_names:
            check_tensors(found.tensors, table, quantized=found.quantized)


def check_draft_model(draft: Draft) -> None:
    """Check an ordinary draft model, against its target if there is one.

    Raises:
        CheckpointError: saying what is there and what is valid.
    """
    found = draft.read("vocab_size")
    with laid_to(draft.option, draft.model):
        architecture = architecture_of(found.config, llama.BY_MODEL_TYPE)
        if "fc.weight" in found.tensors or EAGLE.fullmatch(architecture):
            raise UnusableError("is an EAGLE head; use method 'eagle'")
        table = llama.table_of(architecture, found.config)
        if not found.usual_names:
            return
        if table is None:
            unknown.check(found.tensors, found.text, quantized=found.quantized)
        else:
            check_tensors(found.tensors, table, quantized=found.quantized)


CHECKS = {"eagle": check_eagle, "draft_model": check_draft_model}
