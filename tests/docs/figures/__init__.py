"""The figures in the documents' tables, made from the records.

A comment above a table names it, ``<!-- figures: NAME -->``. Its header is the page's own; its rows
are written anew by ``python -m tests.docs.figures``.
"""
