"""The documents' tables that are made: figures from the records, the reference from the code.

A comment above a table names it, ``<!-- figures: NAME -->``. Its header is the page's own; its rows
are written anew by ``python -m tests.docs.figures``.
"""
