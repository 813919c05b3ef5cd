"""What differs between the versions of vLLM and vllm-ascend that are supported, one file a subject.

A file here asks :mod:`ranges` which version is installed, and the rest of the package asks these
files. No other file compares versions or tries whether a name of theirs can be imported, patches
(``compat/``) aside, which name their own range.
"""
