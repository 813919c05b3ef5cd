"""What becomes of a step: named, sent as a text, read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_ascend_spec.graphs.step import (
    NO_GRAPH,
    OTHER,
    OTHER_K,
    PROMPTS,
    REASONS,
    UNEVEN,
    WIDE,
    GraphStep,
    step_of,
)

ENGINE = {"num_drafts": 3, "largest": 32}


def decode(num_tokens: int, num_reqs: int, longest: int, graph: str = NO_GRAPH) -> GraphStep:
    """Return a step without prompts."""
    batch = {"num_tokens": num_tokens, "num_reqs": num_reqs, "longest": longest}
    return step_of(graph, has_prompts=False, **batch, **ENGINE)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (decode(16, 4, 4, "FULL"), GraphStep("FULL", 3)),
        (decode(4, 4, 1, "PIECEWISE"), GraphStep("PIECEWISE", 0)),
        (decode(13, 4, 4, "PIECEWISE"), GraphStep("PIECEWISE")),
        (decode(36, 9, 4), GraphStep(NO_GRAPH, 3, WIDE)),
        (decode(33, 9, 4), GraphStep(NO_GRAPH, None, WIDE)),
        (decode(13, 4, 4), GraphStep(NO_GRAPH, None, UNEVEN)),
        (decode(8, 4, 2), GraphStep(NO_GRAPH, 1, OTHER_K)),
        (decode(16, 4, 4), GraphStep(NO_GRAPH, 3, OTHER)),
        # A prompt longer than any drafts, or one whose last piece is as long as they are.
        (decode(20, 4, 17), GraphStep(NO_GRAPH, None, PROMPTS)),
        (
            step_of(NO_GRAPH, num_tokens=16, num_reqs=4, longest=4, has_prompts=True, **ENGINE),
            GraphStep(NO_GRAPH, None, PROMPTS),
        ),
    ],
)
def test_a_step_is_named(found: GraphStep, wanted: GraphStep) -> None:
    assert found == wanted


@given(
    st.builds(
        GraphStep,
        st.sampled_from(["FULL", "PIECEWISE", "NONE"]),
        st.none() | st.integers(0, 64),
        st.sampled_from(["", *REASONS]),
        st.sampled_from(["", "FULL", "PIECEWISE", "NONE"]),
    )
)
def test_a_step_is_read_back(step: GraphStep) -> None:
    assert GraphStep.parse(str(step)) == step


@pytest.mark.parametrize("text", ["FULL", "PIECEWISE", "NONE"])
def test_vllms_own_texts_are_steps_of_which_less_is_known(text: str) -> None:
    assert GraphStep.parse(text) == GraphStep(text)


@pytest.mark.parametrize("text", ["", "full", "FULL K=3", "FULL, K=x", "?: why"])
def test_other_texts_are_none(text: str) -> None:
    assert GraphStep.parse(text) is None
