"""The stages of the training: one file each, with ``RECIPE`` and ``train(work, out, recipe)``.

A stage reads the target, and what else it names, from ``out``, and writes its checkpoint there.
"""

# In an order in which they can run.
STAGES = (
    "target",
    "eagle",
    "eagle3",
    "eagle3_aligned",
    "draft",
    "medusa",
    "mlp_speculator",
    "mtp_mimo",
    "mtp_deepseek",
    "mtp_deepseek_v32",
    "mtp_qwen35",
    "eagle3_qwen3_moe",
    "eagle3_gpt_oss",
    "mtp_gemma4",
    "eagle3_qwen25_vl",
    "pard",
    "peagle",
    "dflash",
    "dspark",
)
