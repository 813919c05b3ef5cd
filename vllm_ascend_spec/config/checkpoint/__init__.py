"""Is a draft's checkpoint there, whole, and made for its target? Reads JSON and headers only.

``folder`` and ``hub`` find it, ``safetensors`` and ``files`` read what is in it, ``config_json``
checks the config, ``tensors`` compares both with a table of ``families``. What a method wants of
its checkpoint stands in the method's record, the tensors of an architecture in ``families``.
"""
