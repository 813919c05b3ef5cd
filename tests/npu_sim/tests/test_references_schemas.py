"""Every reference takes what the installed torch_npu's schema of its op says."""

import inspect

import pytest
import torch
from npu_sim import custom_ops
from npu_sim.references import load_all
from npu_sim.references.registry import HOST_ONLY, META

# Functions in Python, which have no schema.
PYTHON = ("triton::", "fla_npu::")
NAMES = sorted(name for name in load_all() if not name.startswith(PYTHON))


def schema_of(name):
    """Give an op's schema, or skip: torch_npu and vllm-ascend's sources bring them."""
    if name.startswith("_C_ascend::"):
        try:
            custom_ops.binding_file()
        except custom_ops.CustomOpsError as error:
            pytest.skip(str(error))
        custom_ops.define()
    base, _, overload = name.partition(".")
    try:
        return torch._C._get_schema(base, overload)
    except RuntimeError:
        if not hasattr(torch, "npu"):
            pytest.skip("torch_npu is not loaded: run with the simulator")
        raise


@pytest.mark.parametrize("name", NAMES)
def test_signature(name):
    schema = schema_of(name)
    parameters = inspect.signature(load_all()[name].__wrapped__).parameters
    takes_more = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    positional = [p.name for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional == [a.name for a in schema.arguments if not a.kwarg_only]
    for argument in schema.arguments:
        parameter = parameters.get(argument.name)
        if parameter is None:
            assert takes_more, f"{argument.name} is not a parameter"
            assert argument.has_default_value(), f"{argument.name} would be refused"
            continue
        assert (parameter.kind is parameter.KEYWORD_ONLY) == argument.kwarg_only, argument.name
        if argument.has_default_value():
            given = None if parameter.default == [] else parameter.default
            default = None if argument.default_value == [] else argument.default_value
            assert given == default, argument.name
        else:
            assert parameter.default is inspect.Parameter.empty, argument.name
    names = {argument.name for argument in schema.arguments}
    extra = [p.name for p in parameters.values() if p.kind is not p.VAR_KEYWORD]
    assert set(extra) <= names


def test_tables_name_references():
    assert set(META) <= set(NAMES)
    assert set(HOST_ONLY) <= set(NAMES)


def test_every_custom_op_that_has_a_reference_can_be_traced():
    # They give nothing back.
    in_place = {
        "_C_ascend::npu_scatter_pa_kv_cache",
        "_C_ascend::npu_scatter_nd_update_sk",
        "_C_ascend::inplace_partial_rotary_mul",
    }
    custom = {name for name in NAMES if name.startswith("_C_ascend::")}
    assert custom - in_place <= set(META)
