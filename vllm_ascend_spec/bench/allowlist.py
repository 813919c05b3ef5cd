"""Names of the variables and options that a record or report may show; all others are hidden.

A value is shown if its name is listed here and it looks like a value of its kind
(:mod:`vllm_ascend_spec.bench.redaction`). Listed names matter for speed or behaviour and never hold
secrets.
"""

from __future__ import annotations

# Counts, switches and names. If a value is a path, a record shows only that the variable is set.
VARIABLES = frozenset(
    (
        # threads and devices
        *("OMP_NUM_THREADS", "OMP_PLACES", "OMP_PROC_BIND", "OMP_WAIT_POLICY", "KMP_AFFINITY"),
        *("KMP_BLOCKTIME", "GOMP_CPU_AFFINITY", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
        *("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES"),
        # PyTorch, Triton
        *("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "TORCH_COMPILE_DISABLE"),
        *("TORCHDYNAMO_DISABLE", "TORCHINDUCTOR_COMPILE_THREADS", "TORCHINDUCTOR_MAX_AUTOTUNE"),
        *("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NPU_ALLOC_CONF"),
        *("TRITON_INTERPRET", "TRITON_ALL_BLOCKS_PARALLEL", "TRITON_F32_DEFAULT"),
        # CANN, torch_npu, vllm-ascend
        *("ASCEND_HOME_PATH", "ASCEND_LAUNCH_BLOCKING", "ASCEND_GLOBAL_LOG_LEVEL", "SOC_VERSION"),
        *("TASK_QUEUE_ENABLE", "CPU_AFFINITY_CONF", "COMBINED_ENABLE", "INF_NAN_MODE_ENABLE"),
        *("INF_NAN_MODE_FORCE_DISABLE", "HCCL_BUFFSIZE", "HCCL_DETERMINISTIC"),
        *("HCCL_OP_EXPANSION_MODE", "LCCL_DETERMINISTIC", "DYNAMIC_EPLB"),
        *("VLLM_ASCEND_ENABLE_BATCH_MEMCPY", "VLLM_ASCEND_ENABLE_FLASHCOMM1"),
        *("VLLM_ASCEND_ENABLE_NZ", "VLLM_ASCEND_ROPE_UB_SIZE_KB", "VLLM_VERSION"),
        # vLLM
        *("VLLM_BATCH_INVARIANT", "VLLM_CPU_ATTN_SPLIT_KV", "VLLM_CPU_CI_ENV"),
        *("VLLM_CPU_INT4_W4A8", "VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_NUM_OF_RESERVED_CPU"),
        *("VLLM_CPU_OMP_THREADS_BIND", "VLLM_DISABLED_KERNELS", "VLLM_DISABLE_COMPILE_CACHE"),
        *("VLLM_DISABLE_SHARED_EXPERTS_STREAM", "VLLM_ENABLE_CUDAGRAPH_GC"),
        *("VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_FLOAT32_MATMUL_PRECISION"),
        *("VLLM_KV_CACHE_LAYOUT", "VLLM_LOGGING_LEVEL", "VLLM_PLUGINS", "VLLM_SERVER_DEV_MODE"),
        *("VLLM_SSM_CONV_STATE_LAYOUT", "VLLM_TARGET_DEVICE", "VLLM_USE_AOT_COMPILE"),
        *("VLLM_USE_FLASHINFER_SAMPLER", "VLLM_USE_STANDALONE_COMPILE"),
        *("VLLM_USE_V2_MODEL_RUNNER", "VLLM_V1_OUTPUT_PROC_CHUNK_SIZE"),
        *("VLLM_WORKER_MULTIPROC_METHOD",),
        # this package
        *("VLLM_ASCEND_SPEC_ASCENDC", "VLLM_ASCEND_SPEC_DEVICE"),
    )
)
# Lists of files, shown without their folders.
FILE_LISTS = frozenset(("LD_PRELOAD",))

COMMANDS = frozenset(
    (
        "accuracy",
        "adaptive",
        "bench",
        "check",
        "completion",
        "env",
        "info",
        "migrate",
        "plan",
        "propose",
        "serve",
        "step",
        "sweep",
        "verify",
        "npu-sim",
    )
)
FLAGS = frozenset(
    (
        *("--async-scheduling", "--no-async-scheduling"),
        *(
            "--cells-only",
            "--cold",
            "--compiled",
            "--control",
            "--enable-eplb",
            "--enable-expert-parallel",
            "--enforce-eager",
            "--idle",
            "--markdown",
            "--quick",
        ),
        # of plan
        *("--allow-eager", "--json"),
        *("--sequence-parallel", "--no-sequence-parallel"),
        # of check and migrate
        *("--light", "--strict", "--write"),
    )
)
JSON_OPTIONS = frozenset(
    (
        "--additional-config",
        "--compilation-config",
        "--kv-transfer-config",
        "--speculative-config",
    )
)
PATH_OPTIONS = frozenset(
    (
        "--html",
        "--lm-eval-path",
        "--load",
        "--model",
        "--output",
        "--peer-python",
        "--png",
        "--prompts",
        "--record",
        "--repetitive",
        "--step-times",
        "--tasks",
    )
)
PLAIN_OPTIONS = frozenset(
    (
        *("--acceptance", "--backend", "--clients", "--batch", "--batches", "--device", "--dtype"),
        *("--graph-mode", "--kinds", "--limit-s", "--max-tokens", "--modes", "--num-prompts"),
        *("--draft-length", "--start-timeout"),
        *("--rounds", "--temperature", "--temperatures", "--threads", "--vocab", "--workloads"),
        # of plan
        *("--eager-factor", "--graph-mib", "--graphs", "--memory-mib", "--num-speculative-tokens"),
        *("--tiers", "--row-kib", "--tp"),
        # of sweep and accuracy
        *("--at-once", "--categories", "--concurrency", "--kv-cache-mib", "--lm-eval"),
        *("--rounding", "--samples", "--tolerance"),
        # of vllm serve
        *("--block-size", "--load-format", "--max-model-len", "--max-num-batched-tokens"),
        *("--data-parallel-size", "--max-num-seqs", "--pipeline-parallel-size", "--seed"),
        *("--cudagraph-capture-sizes", "--tensor-parallel-size"),
    )
)

# Keys of the JSON of an option.
PATH_KEYS = frozenset(("capture_load", "model"))
PLAIN_KEYS = frozenset(
    (
        # --additional-config
        *("ascend_spec", "capture", "capture_graphs", "draft_length", "draft_lengths"),
        *("draft_loop", "verify_backend", "verify_rule"),
        # --compilation-config
        *("cudagraph_capture_sizes", "cudagraph_mode", "mode"),
        # --speculative-config
        *("attention_backend", "disable_padded_drafter_batch", "draft_sample_method"),
        *("disable_by_batch_size", "hybrid_model_method"),
        *("draft_tensor_parallel_size", "enforce_eager", "kv_cache_dtype", "max_model_len"),
        *("method", "moe_backend", "num_speculative_tokens", "parallel_drafting"),
        *("num_speculative_tokens_per_batch_size", "prompt_lookup_max", "prompt_lookup_min"),
        *("quantization", "rejection_sample_method", "synthetic_acceptance_length"),
        *("suffix_decoding_max_cached_requests", "suffix_decoding_max_spec_factor"),
        *("suffix_decoding_max_tree_depth", "suffix_decoding_min_token_prob"),
        *("synthetic_acceptance_rates", "tensor_parallel_size", "use_heterogeneous_vocab"),
        *("use_local_argmax_reduction",),
    )
)
