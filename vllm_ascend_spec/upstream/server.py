"""Import the parts of vLLM's HTTP server from where each version keeps them."""

from __future__ import annotations

from vllm_ascend_spec.upstream.ranges import vllm_is

if vllm_is(">=0.33"):
    from vllm.entrypoints.common.cli_args import make_arg_parser, validate_parsed_serve_args
elif vllm_is(">=0.30"):
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
else:
    from vllm.entrypoints.openai.cli_args import make_arg_parser, validate_parsed_serve_args

if vllm_is(">=0.30"):
    from vllm.entrypoints.serve.middleware.authenticate import AuthenticationMiddleware
else:
    from vllm.entrypoints.serve.utils.server_utils import AuthenticationMiddleware

__all__ = ["AuthenticationMiddleware", "make_arg_parser", "validate_parsed_serve_args"]
