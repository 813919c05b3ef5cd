"""``vllm`` and ``python`` for tests: copies of a process that has imported vLLM.

Importing vLLM takes a server longer than all else that it does with a small model, and it does so
in each of its processes. Where these programs come first on PATH, one process imports, and is
copied by ``fork`` for each command and for each engine and worker of it. Likewise for tests of
``train``: its trainer's library takes as long.
"""
