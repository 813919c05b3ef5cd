"""Check that a draft's checkpoint exists, is complete, and was made for its target.

Only JSON and headers are read. ``folder`` and ``hub`` find the checkpoint, ``safetensors`` and
``files`` read it, ``config_json`` checks the config, ``tensors`` compares both with a table of
``architectures``, which has the tensors of each architecture. The record of a method says what the
method requires of its checkpoint.
"""
