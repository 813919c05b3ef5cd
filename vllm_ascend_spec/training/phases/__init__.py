"""The phases of ``train``, in their order; each runs in a process of its own.

A phase is a module with ``NAME``, ``is_done(settings) -> bool`` and ``run(settings, show)``: it
reads what those before it left in the output folder, goes on where an earlier start ended, and
leaves its own. ``show`` takes a line for the person who waits. An engine holds its memory as long
as its process lives, hence the processes.
"""
