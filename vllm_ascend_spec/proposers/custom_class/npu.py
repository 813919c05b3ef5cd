"""The proposer around a person's class, as vllm-ascend's runner calls it.

vllm-ascend has no such method; its runner asks every proposer to load a model and to join warm-up.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.proposers.custom_class.proposer import SpecCustomClassProposer


class SpecNpuCustomClassProposer(SpecCustomClassProposer):
    """Drafts on the host, so there is nothing to warm up."""

    def dummy_run(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the class runs no model that vllm-ascend would know of."""
