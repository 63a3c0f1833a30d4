"""Escape names and reasons from records as plain text in Markdown, and keep a page below GitHub's size limit."""

import re

LIMIT = 60 * 1024
"""Bytes of UTF-8. GitHub refuses comments of more than 65,536 characters."""
CUT = "\n*Cut at 60 KiB. The complete report is report.html.*\n"


def cell(text: str) -> str:
    """Return text escaped for a Markdown table: on one line, without active markup, links, HTML or mentions."""
    flat = " ".join(text.split())
    escaped = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # An underscore inside a word is no markup, and escaping it would make labels unreadable in the source.
    quiet = re.sub(r"([\\`*|]|(?<!\w)_|_(?!\w)|(?<=\])[(\[])", r"\\\1", escaped)
    return quiet.replace("@", "@\u200b")


def cut(text: str, note: str = CUT) -> str:
    """Return the text; if it is longer than ``LIMIT``, keep only as many whole lines as fit together with ``note``."""
    if len(text.encode()) <= LIMIT:
        return text
    room = LIMIT - len(note.encode())
    kept: list[str] = []
    for line in text.splitlines(keepends=True):
        room -= len(line.encode())
        if room < 0:
            break
        kept.append(line)
    return "".join(kept) + note
