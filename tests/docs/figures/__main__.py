"""Write the rows of all pages, and the drawings."""

from __future__ import annotations

from tests.docs.blocks import documents
from tests.docs.figures.drawings import DRAWINGS, FOLDER, svg
from tests.docs.figures.fill import filled

for page in documents():
    text = page.read_text()
    if (now := filled(text, page.name)) != text:
        page.write_text(now)
for name, drawing in DRAWINGS.items():
    (FOLDER / f"{name}.svg").write_text(svg(drawing()))
