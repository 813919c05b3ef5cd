"""Engines of targets that are not the plain decoder, in addition to tests/ascend/matrix.py."""
