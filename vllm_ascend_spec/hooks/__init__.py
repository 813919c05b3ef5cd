"""Hooks where options enter: ``EngineArgs`` and the parser of ``vllm serve``.

They pass the registered methods and devices to ``config/``.
"""
