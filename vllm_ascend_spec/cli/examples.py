r"""The examples at the end of each command's help; tests parse all and run those that a CPU can.

A line that ends with ``\`` goes on.
"""

from __future__ import annotations

EAGLE = '{"method": "eagle", "model": "examples/zoo/eagle", "num_speculative_tokens": 3}'
NGRAM = '{"method": "ngram", "num_speculative_tokens": 5}'

# Keyed by command path.
EXAMPLES: dict[tuple[str, ...], tuple[str, ...]] = {
    (): (
        "vllm-ascend-spec info",
        f"vllm-ascend-spec check examples/zoo/target \\\n    --speculative-config '{EAGLE}'",
        f"vllm-ascend-spec serve examples/zoo/target \\\n    --speculative-config '{EAGLE}'",
        "vllm-ascend-spec check --help",
    ),
    ("serve",): (
        f"vllm-ascend-spec serve examples/zoo/target \\\n    --speculative-config '{EAGLE}'",
        "vllm-ascend-spec serve --help=all",
    ),
    ("env",): ('eval "$(vllm-ascend-spec env)"',),
    ("check",): (
        f"vllm-ascend-spec check examples/zoo/target --max-num-seqs 64 \\\n"
        f"    --speculative-config '{EAGLE}'",
        f"vllm-ascend-spec check --device npu --json examples/zoo/target \\\n"
        f"    --speculative-config '{EAGLE}'",
        "vllm-ascend-spec check -- vllm serve examples/zoo/target --port 8100 \\\n"
        "    --speculative-model '[ngram]' --num-speculative-tokens 5",
        f"vllm-ascend-spec check --light --strict examples/zoo/target \\\n"
        f"    --speculative-config '{NGRAM}'",
    ),
    ("plan",): (
        "vllm-ascend-spec plan --max-num-seqs 256 --num-speculative-tokens 3 --graphs 12",
        "vllm-ascend-spec plan --max-num-seqs 256 --tiers '[[1,64,3],[65,256,1]]' --json",
        "vllm-ascend-spec plan --max-num-seqs 64 --tiers 0,1,3 --load normal:40,12",
        "vllm-ascend-spec plan --max-num-seqs 256 --num-speculative-tokens 3 \\\n"
        "    --memory-mib 2048 --graph-mib 40 --row-kib 100",
    ),
    ("info",): ("vllm-ascend-spec info", "vllm-ascend-spec info --json > report.json"),
    ("bench",): (
        "vllm-ascend-spec bench serve --output bench-results/serve.json",
        "vllm-ascend-spec bench sweep --concurrency 1,8 --html bench-results/sweep.html",
    ),
    ("bench", "serve"): (
        "vllm-ascend-spec bench serve --modes eager --batches 1,8 --rounds 3",
        "vllm-ascend-spec bench serve --output bench-results/ngram.json \\\n"
        f"    --speculative-config '{NGRAM}'",
    ),
    ("bench", "sweep"): (
        "vllm-ascend-spec bench sweep --concurrency 1,8 --html bench-results/sweep.html",
        "vllm-ascend-spec bench sweep --num-speculative-tokens 1,3 \\\n"
        '    --speculative-config \'{"method": "suffix"}\' --categories edits,code',
        "vllm-ascend-spec bench sweep --record docs/records/sweep-cpu.json \\\n"
        "    --html bench-results/sweep.html",
    ),
    ("bench", "accuracy"): (
        "vllm-ascend-spec bench accuracy --temperatures 0,0.8",
        f"vllm-ascend-spec bench accuracy --tasks examples/zoo/tasks.jsonl \\\n"
        f"    --speculative-config '{NGRAM}'",
    ),
    ("train",): (
        "vllm-ascend-spec train examples/zoo/target --prompts prompts.jsonl --output my-head",
        "vllm-ascend-spec train examples/zoo/target --prompts logs.jsonl --output adapted \\\n"
        "    --from examples/zoo/eagle3 --holdout 16",
        "vllm-ascend-spec train examples/zoo/target --prompts chats/ --output small-head \\\n"
        "    --method eagle3 --draft-vocab-size 2048 --dtype float32 --steps 600",
    ),
    ("migrate",): (
        "vllm-ascend-spec migrate -- vllm serve MODEL --speculative-model '[ngram]' \\\n"
        "    --num-speculative-tokens 5 --ngram-prompt-lookup-max 4",
        "vllm-ascend-spec migrate start.sh > new.sh",
        "vllm-ascend-spec migrate --write deployment.yaml",
        "vllm-ascend-spec migrate < start.sh",
    ),
    ("completion",): (
        'eval "$(vllm-ascend-spec completion bash)"',
        "vllm-ascend-spec completion zsh > ~/.zfunc/_vllm-ascend-spec",
        "vllm-ascend-spec completion fish > ~/.config/fish/completions/vllm-ascend-spec.fish",
    ),
}
