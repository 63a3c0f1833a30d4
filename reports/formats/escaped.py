"""Markdown made of other people's words: text that stays text, and pages that stay short."""

import re

LIMIT = 60 * 1024
"""Bytes of UTF-8. GitHub refuses comments of more than 65,536 characters."""
CUT = "\n*Cut here at 60 KiB: the whole of it is in report.html.*\n"


def cell(text: str) -> str:
    """Text that stays text inside a markdown table: on one line, without markup, links or HTML of its own."""
    flat = " ".join(text.split())
    escaped = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    quiet = re.sub(r"([\\`*|]|(?<!\w)_|_(?!\w)|(?<=\])[(\[])", r"\\\1", escaped)
    return quiet.replace("@", "@\u200b")


def cut(text: str, note: str = CUT) -> str:
    """The text, or as many whole lines of it as leave room for the note that it was cut."""
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
