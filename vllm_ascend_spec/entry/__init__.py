"""Where options come in: the hooks at ``EngineArgs`` and at the parser of ``vllm serve``.

Joins ``config/`` with the methods and devices that there are.
"""
