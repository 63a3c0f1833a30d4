"""The script that sorts and saves tables, in a browser where one is installed."""

import csv
import html
import io
import json
import re
import shutil
import subprocess
from importlib import resources

import pytest

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
PAGE = """<!doctype html><html><body>
<div class="wide"><table id="claims"><thead><tr><th>defense</th><th>epsilon</th></tr></thead><tbody>
<tr class="more"><th>b</th><td>&ge; 10<small>note 1</small></td></tr><tr class="why"><td colspan="2">of b</td></tr>
<tr><th>C</th><td>&ndash;</td></tr>
<tr><th>a</th><td>2.5</td></tr><tr class="why"><td colspan="2">of a</td></tr>
<tr><th>d</th><td>1,000</td></tr>
</tbody></table></div>
<div class="wide"><table id="grouped"><thead><tr><th>attack</th></tr></thead><tbody>
<tr><th>z</th></tr><tr><th><span class="visually-hidden">z</span></th></tr><tr><th>y</th></tr>
</tbody></table></div>
<script>{script}</script>
<script>{clicks}</script>
</body></html>"""


KEPT = """
const texts = [];
window.Blob = class { constructor(parts) { texts.push(parts.join("")); } };
URL.createObjectURL = () => "#";
document.querySelector(".save").click();
document.body.dataset.saved = JSON.stringify(texts);
"""


def shown_after(clicks, tmp_path):
    """The document after a script of clicks."""
    script = resources.files("fedassay.reports").joinpath("templates", "tables.js").read_text(encoding="utf-8")
    file = tmp_path / "page.html"
    file.write_text(PAGE.replace("{script}", script).replace("{clicks}", clicks), encoding="utf-8")
    words = (BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", file.as_uri())
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout


def rows_after(clicks, tmp_path):
    """The texts of the rows of the first table after clicks on headers, and the whole document."""
    pressed = "".join(f"document.querySelectorAll('#claims button')[{place}].click();" for place in clicks)
    shown = shown_after(pressed, tmp_path)
    body = shown.split("<tbody>")[1].split("</tbody>")[0]
    texts = [re.sub("<small>.*?</small>|<[^>]+>", " ", row).split() for row in body.split("</tr>")]
    return [" ".join(words) for words in texts if words], shown


@pytest.mark.processes
@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
@pytest.mark.parametrize(
    ("clicks", "order"),
    [
        ([], ["b ≥ 10", "of b", "C –", "a 2.5", "of a", "d 1,000"]),
        ([1], ["a 2.5", "of a", "b ≥ 10", "of b", "d 1,000", "C –"]),
        ([1, 1], ["C –", "d 1,000", "b ≥ 10", "of b", "a 2.5", "of a"]),
        ([1, 0], ["a 2.5", "of a", "b ≥ 10", "of b", "C –", "d 1,000"]),
    ],
)
def test_a_click_sorts_numbers_and_texts_and_keeps_evidence_with_its_row(clicks, order, tmp_path):
    rows, shown = rows_after(clicks, tmp_path)
    assert rows == order
    assert shown.count("aria-sort=") == bool(clicks)
    assert ('aria-sort="descending"' in shown) == (clicks == [1, 1])
    # A grouped table has no buttons.
    assert "<button" not in shown.split('id="grouped"')[1].split("</table>")[0]


@pytest.mark.processes
@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_a_table_is_saved_as_csv(tmp_path):
    shown = shown_after(KEPT, tmp_path)
    (kept,) = json.loads(html.unescape(re.search(r'data-saved="([^"]*)"', shown).group(1)))
    rows = list(csv.reader(io.StringIO(kept)))
    assert rows == [["defense", "epsilon"], ["b", "≥ 10note 1"], ["C", "–"], ["a", "2.5"], ["d", "1,000"]]
    assert shown.count('class="save"') == 2
