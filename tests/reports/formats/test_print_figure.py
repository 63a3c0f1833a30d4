"""A figure in a page: a narrow screen shows its panels one below the other, and nothing scrolls sideways."""

import re

from fedassay.reports.figures.sheet import WIDTH


def test_each_figure_has_its_panels_which_refer_to_its_drawing(quick_page):
    cards = re.findall(r'<div class="card".*?</figure>', quick_page, re.DOTALL)
    assert len(cards) > 3
    for card in cards:
        (drawing,) = set(re.findall(r'<use href="#([^"]+)"', card[card.index('<div class="panels">') :]))
        assert card.count(f'<g id="{drawing}"') == 1


def test_screens_narrower_than_a_drawing_show_the_panels_and_others_the_drawing(quick_page):
    assert ".panels { display: none; }" in quick_page
    (widest,) = re.findall(r"@media screen and \(max-width: (\d+)px\) \{\s+\.card", quick_page)
    # The margins of main, and the padding and border of the box, on both sides.
    assert int(widest) + 1 == WIDTH + 2 * 28 + 2 * 20 + 2 * 1
