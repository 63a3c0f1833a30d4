"""A figure in a page: what its box shows on a narrow screen, where the drawing keeps a width that can be read."""

import re


def test_each_figure_has_a_hint_that_only_screens_narrower_than_a_drawing_show(quick_page):
    captions = re.findall(r"<figcaption>.*?</figcaption>", quick_page, re.DOTALL)
    assert len(captions) > 3
    assert all('<p class="sideways">' in caption for caption in captions)
    assert ".sideways { display: none; }" in quick_page
    (widest,) = re.findall(r"@media screen and \(max-width: (\d+)px\) \{ figcaption \.sideways", quick_page)
    # The margins of main, and the padding and border of the box, on both sides.
    assert int(widest) + 1 == 700 + 2 * 28 + 2 * 20 + 2 * 1
    assert "min-width: 700px" in quick_page
