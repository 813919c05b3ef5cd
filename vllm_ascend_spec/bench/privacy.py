"""What a record, report or error may show of environment, command line and other people's texts.

Environment, arguments and JSON options are shown by an allow-list: the name has to be listed here,
and the value has to look like one of its kind. All else becomes :data:`HIDDEN`. Listed names matter
for speed or behaviour and never hold secrets.

Texts of others, such as server logs (vLLM logs ``--api-key``), have no names to go by.
:func:`redact` removes what this process knows to be secret: each value with a secret's name in its
environment or command line, the password in a URL, and access keys of well-known services.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from vllm_ascend_spec.access_keys import ACCESS_KEY

HIDDEN = "…"
LONGEST = 200
# Numbers, switches, names and lists of them. No quotes, slashes, "@", "=": no path, URL or JSON.
PLAIN = re.compile(r"[A-Za-z0-9_.,:;|+{}()\[\] -]*")
PATH = re.compile(r"[A-Za-z0-9_.+/ -]+")
FILE = re.compile(r"[A-Za-z0-9_.+-]+")
# The name of an option or key that is not listed is shown if it looks like a word.
OPTION_NAME = re.compile(r"--[a-z]+([_-][a-z]+)*|-[a-z]")
KEY_NAME = re.compile(r"[a-z]+([_-][a-z]+)*")
# Does not match `max_tokens`, `tokenizer`, `suffix_decoding_min_token_prob`.
SECRET = re.compile(
    r"token(?!s|iz|_prob|_tree)|secret|passw|passphrase|credential|apikey|authorization|cookie"
    r"|(?:^|[-_.])(?:keys?|pass|pwd|pat|auth)(?:$|[-_.])",
    re.IGNORECASE,
)
# Variables of the shell that are named like a password, but hold working directories.
FOLDERS = ("PWD", "OLDPWD")
SHORTEST = 4  # shorter ones are words like "yes", and no secrets
# A key and its value in incomplete JSON, or in a similar notation. Looked for where a word begins:
# from each of its letters, a long one would take the square of its length.
PAIR = re.compile(r"""(?<![\w.-])([\w.-]+)["']?\s*[:=]\s*(?:"([^"]*)"?|'([^']*)'?|([^\s"',}]+))""")
URL_USER = re.compile(r"(?<=://)[^\s/@'\"]+@")


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return what may be shown of the environment, in alphabetical order."""
    return {
        name: VARIABLES[name](variables[name])
        for name in sorted(VARIABLES.keys() & variables.keys())
    }


def arguments(argv: Sequence[str]) -> list[str]:
    """Return what may be shown of a command line, without the command itself.

    An option that is not listed is shown without its value, whatever the value looks like.
    """
    shown: list[str] = []
    taker: str | None = None  # the option that takes the next argument
    for argument in argv:
        name, is_joined, value = argument.partition("=")
        if taker is not None and name not in OPTIONS and argument not in FLAGS:
            shown.append(OPTIONS.get(taker, _hide)(argument))
            taker = None
        elif not argument.startswith("-"):
            shown.append(argument if argument in COMMANDS else HIDDEN)
        else:
            option = _if_fits(OPTION_NAME, name)
            shown.append(f"{option}={OPTIONS.get(name, _hide)(value)}" if is_joined else option)
            taker = None if is_joined or argument in FLAGS else name
    return shown


def options(values: Any, key: str = "") -> Any:
    """Return what may be shown of a JSON value, e.g. of ``--speculative-config``.

    Args:
        values: the value, or a part of it.
        key: the listed key that it belongs to; empty at the top, where only objects are shown.
    """
    if isinstance(values, Mapping):
        return {_if_fits(KEY_NAME, str(name)): _value(str(name), values[name]) for name in values}
    if values is None:
        return None
    if key and isinstance(values, list | tuple):
        return [options(value, key) for value in values]
    if key and isinstance(values, str):
        return KEYS[key](values)
    return values if key and isinstance(values, bool | int | float) else HIDDEN


def _value(name: str, value: Any) -> Any:
    key = name.replace("-", "_")
    return options(value, key) if key in KEYS else HIDDEN


def path(text: str) -> str:
    """Return a relative path or a hub's name, the last part of an absolute path, or else HIDDEN.

    A result of this function is returned unchanged.
    """
    text = text.removeprefix(HIDDEN) if text.startswith(f"{HIDDEN}/") else text
    if not text.startswith("/"):
        return _if_fits(PATH, text)  # URLs have a colon
    return f"{HIDDEN}/{PurePosixPath(text).name}" if _fits(PATH, text) else HIDDEN


def file_names(text: str) -> str:
    """Return file names that are separated by colons or spaces, without their folders."""
    names = (PurePosixPath(item).name for item in re.split(r"[:\s]+", text) if item)
    return ":".join(_if_fits(FILE, name) for name in names)


def plain(text: str) -> str:
    """Return a value that is no path, URL or JSON; else :data:`HIDDEN`."""
    return _if_fits(PLAIN, text)


def _json(text: str) -> str:
    try:
        return json.dumps(options(json.loads(text)), ensure_ascii=False)
    except (ValueError, RecursionError):
        return HIDDEN


def _hide(text: str) -> str:
    return HIDDEN


def _if_fits(form: re.Pattern[str], text: str) -> str:
    return text if _fits(form, text) else HIDDEN


def _fits(form: re.Pattern[str], text: str) -> bool:
    return len(text) <= LONGEST and bool(form.fullmatch(text)) and not ACCESS_KEY.search(text)


def redact(
    text: str,
    argv: Sequence[str] | None = None,
    variables: Mapping[str, str] | None = None,
) -> str:
    """Return ``text`` with every secret replaced by :data:`HIDDEN`.

    Args:
        text: what is to be shown.
        argv: command line, this process's by default.
        variables: environment, this process's by default.
    """
    argv = sys.argv[1:] if argv is None else argv
    variables = os.environ if variables is None else variables
    found = {variables[name] for name in variables if SECRET.search(name) and name not in FOLDERS}
    found.update(_in_arguments(argv))
    forms = {form for value in found if len(value) >= SHORTEST for form in _forms(value)}
    if forms:
        any_of = "|".join(map(re.escape, sorted(forms, key=len, reverse=True)))
        text = re.sub(rf"(?<![A-Za-z0-9])(?:{any_of})(?![A-Za-z0-9])", HIDDEN, text)
    return ACCESS_KEY.sub(HIDDEN, URL_USER.sub(f"{HIDDEN}@", text))


def _in_arguments(argv: Sequence[str]) -> Iterator[str]:
    """Yield the values of options, and of keys in their JSON, whose name is a secret's."""
    is_secret = False
    for argument in argv:
        name, is_joined, value = argument.partition("=")
        is_option = argument.startswith("-")
        if is_secret and not (is_option and is_joined):
            yield argument
        if is_option:
            is_secret = bool(SECRET.search(name))
            if is_secret and is_joined:
                is_secret = False
                yield value
        yield from _in_text(value if is_option and is_joined else argument)
        if len(argument.split()) > 1:
            yield from _in_command(argument)


def _in_command(text: str) -> Iterator[str]:
    """Yield the secrets in an argument that is itself a command, or a part of one."""
    # Besides shell syntax, also split without quotes: an unclosed one would swallow the rest.
    yield from _in_arguments(re.sub("[\"']", "", text).split())
    for end in ("", "'", '"', "\\"):
        try:
            words = shlex.split(text + end)
        except ValueError:
            continue
        yield from _in_arguments(words)
        return


def _in_text(text: str) -> Iterator[str]:
    """Yield the secret values of keys in an argument's own text."""
    for name, *values in PAIR.findall(text):
        if SECRET.search(name):
            yield from values
    if text[:1] in ("{", "["):
        try:
            yield from _secret_leaves(json.loads(text), is_secret=False)
        except (ValueError, RecursionError):
            return


def _secret_leaves(value: Any, *, is_secret: bool) -> Iterator[str]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _secret_leaves(part, is_secret=is_secret or bool(SECRET.search(name)))
    elif isinstance(value, list):
        for part in value:
            yield from _secret_leaves(part, is_secret=is_secret)
    elif is_secret and isinstance(value, str):
        yield value


def _forms(value: str) -> Iterator[str]:
    """Yield how a value may be written: as it is, in Python, in JSON, in a URL."""
    yield from (value, repr(value)[1:-1], json.dumps(value)[1:-1])
    yield quote(value, safe="", errors="replace")


def _table(kinds: Mapping[Callable[[str], str], str]) -> dict[str, Callable[[str], str]]:
    return {name: show for show, names in kinds.items() for name in names.split()}


# The allow-list: for each name how its value is shown.
VARIABLES = _table(
    {
        # Lists of files, shown without their folders.
        file_names: "LD_PRELOAD",
        # Counts, switches and names: threads and devices; PyTorch and Triton; CANN, torch_npu and
        # vllm-ascend; vLLM; this package. Of a path a record shows only that the variable is set.
        plain: """
OMP_NUM_THREADS OMP_PLACES OMP_PROC_BIND OMP_WAIT_POLICY KMP_AFFINITY KMP_BLOCKTIME
GOMP_CPU_AFFINITY MKL_NUM_THREADS OPENBLAS_NUM_THREADS CUDA_VISIBLE_DEVICES
ASCEND_RT_VISIBLE_DEVICES ASCEND_VISIBLE_DEVICES

ATEN_CPU_CAPABILITY ONEDNN_MAX_CPU_ISA TORCH_COMPILE_DISABLE TORCHDYNAMO_DISABLE
TORCHINDUCTOR_COMPILE_THREADS TORCHINDUCTOR_MAX_AUTOTUNE PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF
PYTORCH_NPU_ALLOC_CONF TRITON_INTERPRET TRITON_ALL_BLOCKS_PARALLEL TRITON_F32_DEFAULT

ASCEND_HOME_PATH ASCEND_LAUNCH_BLOCKING ASCEND_GLOBAL_LOG_LEVEL SOC_VERSION TASK_QUEUE_ENABLE
CPU_AFFINITY_CONF COMBINED_ENABLE INF_NAN_MODE_ENABLE INF_NAN_MODE_FORCE_DISABLE HCCL_BUFFSIZE
HCCL_DETERMINISTIC HCCL_OP_EXPANSION_MODE LCCL_DETERMINISTIC DYNAMIC_EPLB
VLLM_ASCEND_ENABLE_BATCH_MEMCPY VLLM_ASCEND_ENABLE_FLASHCOMM1 VLLM_ASCEND_ENABLE_NZ
VLLM_ASCEND_ROPE_UB_SIZE_KB VLLM_VERSION

VLLM_BATCH_INVARIANT VLLM_CPU_ATTN_SPLIT_KV VLLM_CPU_CI_ENV VLLM_CPU_INT4_W4A8
VLLM_CPU_KVCACHE_SPACE VLLM_CPU_NUM_OF_RESERVED_CPU VLLM_CPU_OMP_THREADS_BIND VLLM_DISABLED_KERNELS
VLLM_DISABLE_COMPILE_CACHE VLLM_DISABLE_SHARED_EXPERTS_STREAM VLLM_ENABLE_CUDAGRAPH_GC
VLLM_ENABLE_V1_MULTIPROCESSING VLLM_FLOAT32_MATMUL_PRECISION VLLM_KV_CACHE_LAYOUT VLLM_LOGGING_LEVEL
VLLM_PLUGINS VLLM_SERVER_DEV_MODE VLLM_SSM_CONV_STATE_LAYOUT VLLM_TARGET_DEVICE VLLM_USE_AOT_COMPILE
VLLM_USE_FLASHINFER_SAMPLER VLLM_USE_STANDALONE_COMPILE VLLM_USE_V2_MODEL_RUNNER
VLLM_V1_OUTPUT_PROC_CHUNK_SIZE VLLM_WORKER_MULTIPROC_METHOD

VLLM_ASCEND_SPEC_ASCENDC VLLM_ASCEND_SPEC_DEVICE
""",
    }
)
COMMANDS = frozenset(
    (
        *("accuracy", "adaptive", "bench", "check", "completion", "env", "info", "migrate"),
        *("npu-sim", "plan", "propose", "serve", "step", "sweep", "train", "verify"),
    )
)
FLAGS = frozenset(
    (
        *("--allow-eager", "--async-scheduling", "--cells-only", "--cold", "--compiled"),
        *("--control", "--enable-eplb", "--enable-expert-parallel", "--enforce-eager", "--idle"),
        *(
            "--json",
            "--light",
            "--markdown",
            "--modules",
            "--no-async-scheduling",
            "--no-enable-expert-parallel",
            "--no-enforce-eager",
            "--no-sequence-parallel",
            "--no-trust-remote-code",
        ),
        *("--quick", "--sequence-parallel", "--strict", "--trust-remote-code", "--write"),
    )
)
OPTIONS = _table(
    {
        _json: """
--additional-config --compilation-config --hf-overrides --kv-transfer-config --limit-mm-per-prompt
--speculative-config
""",
        path: """
--config --from --html --lm-eval-path --load --model --output --peer-python --png --prompts
--record --repetitive --step-times --tasks --tokenizer
""",
        # Of our benchmarks, of plan, of train, and of vllm serve.
        plain: """
--acceptance --at-once --backend --batch --batches --categories --clients --concurrency --device
--draft-length --dtype --graph-mode --kinds --kv-cache-mib --limit-s --lm-eval --max-tokens --modes
--num-prompts --rounding --rounds --samples --start-timeout --temperature --temperatures --threads
--tolerance --vocab --workloads

--eager-factor --graph-mib --graphs --memory-mib
--num-speculative-tokens --row-kib --tiers --tp

--checkpoint-minutes --draft-vocab-size --holdout --layers --learning-rate --method
--nproc-per-node --steps

--block-size --cudagraph-capture-sizes --data-parallel-size --gpu-memory-utilization
--kv-cache-dtype --kv-cache-memory-bytes --load-format --max-model-len --max-num-batched-tokens
--max-num-seqs --pipeline-parallel-size --quantization --seed --tensor-parallel-size -q -tp
""",
    }
)
# Keys of the JSON of an option.
KEYS = _table(
    {
        path: "capture_load model",
        # Of --additional-config, --compilation-config and --speculative-config.
        plain: """
ascend_spec capture capture_graphs draft_length draft_lengths draft_loop tree verify_backend
verify_rule

cudagraph_capture_sizes cudagraph_mode mode

attention_backend disable_by_batch_size disable_padded_drafter_batch draft_sample_method
draft_tensor_parallel_size enforce_eager hybrid_model_method kv_cache_dtype max_model_len method
moe_backend num_speculative_tokens num_speculative_tokens_per_batch_size parallel_drafting
prompt_lookup_max prompt_lookup_min quantization rejection_sample_method speculative_token_tree
suffix_decoding_max_cached_requests suffix_decoding_max_spec_factor suffix_decoding_max_tree_depth
suffix_decoding_min_token_prob synthetic_acceptance_length synthetic_acceptance_rates
tensor_parallel_size use_heterogeneous_vocab use_local_argmax_reduction
""",
    }
)
