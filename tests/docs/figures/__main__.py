"""Write the rows of all pages."""

from __future__ import annotations

from tests.docs.blocks import documents
from tests.docs.figures.fill import filled

for page in documents():
    text = page.read_text()
    if (now := filled(text, page.name)) != text:
        page.write_text(now)
