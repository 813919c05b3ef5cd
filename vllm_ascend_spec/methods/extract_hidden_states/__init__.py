"""Export hidden states of the target, to train drafts such as EAGLE's; no useful drafts."""

from __future__ import annotations

from vllm_ascend_spec.config.method import Method
from vllm_ascend_spec.methods.extract_hidden_states.checks import check_extract_hidden_states

OURS = "vllm_ascend_spec.methods.extract_hidden_states.drafter:KeepsHiddenStates"

METHOD = Method(
    name="extract_hidden_states",
    about="none that pay; the target's hidden states are kept",
    options=frozenset({"method", "num_speculative_tokens", "draft_model_config", "enforce_eager"}),
    required=("num_speculative_tokens", "draft_model_config"),
    checks=(check_extract_hidden_states,),
    drafters={
        "vllm": (OURS, "vllm.v1.spec_decode.extract_hidden_states:ExtractHiddenStatesProposer"),
        "ascend": (
            OURS,
            "vllm_ascend.spec_decode.extract_hidden_states_proposer:"
            "AscendExtractHiddenStatesProposer",
        ),
    },
)
