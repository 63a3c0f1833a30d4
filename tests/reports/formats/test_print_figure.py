"""A figure in a page: a narrow screen shows its panels one below the other, and nothing scrolls sideways."""

import re


def test_each_figure_has_its_panels_which_refer_to_its_drawing(quick_page):
    cards = re.findall(r'<div class="card".*?</figure>', quick_page, re.DOTALL)
    assert len(cards) > 3
    for card in cards:
        (drawing,) = set(re.findall(r'<use href="#([^"]+)"', card[card.index('<div class="panels">') :]))
        assert card.count(f'<g id="{drawing}"') == 1
