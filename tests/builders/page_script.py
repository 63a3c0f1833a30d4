"""The one script of a page, and the page without it, or without the marks of its terms."""

import base64
import hashlib
import re


def without_script(page):
    """Return the page without its script; exactly one is there, and the page's policy lets no other one run."""
    first, script, last = re.split(r"<script>(.*?)</script>", page, maxsplit=1, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', first)
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    assert "script" not in policy.replace(f"script-src 'sha256-{digest}'", "")
    return first + last


def without_marks(page):
    """Return the page as it is before its terms get links and explanations."""
    return re.sub(r'<abbr title="[^"]*">(.*?)</abbr>', r"\1", re.sub(r'<a class="term"[^>]*>(.*?)</a>', r"\1", page))
