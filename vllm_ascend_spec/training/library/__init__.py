"""What stands between our output folder and the speculators library, which trains.

Only ``arguments.py`` and ``option_words.py`` import lightly; the rest runs in the process of phase
``fit``.
"""
