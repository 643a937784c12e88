"""Reports that were written as HTML pages, as text."""

import html
import re
from pathlib import Path


def text_of(page: Path) -> str:
    """Return what a page shows."""
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))
