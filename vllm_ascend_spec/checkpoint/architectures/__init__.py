"""The tensors of each architecture: one file per family, one function per architecture."""
