"""The page is what HTML says a page is, and what a keyboard and a screen reader need is there."""

import re

import html5lib
import pytest
from fedassay.reports.formats.page import html_of_several


@pytest.fixture(scope="module")
def pages(quick_folder, quick_page):
    return {"one": quick_page, "several": html_of_several([quick_folder, quick_folder])}


@pytest.mark.simulations
@pytest.mark.parametrize("name", ["one", "several"])
def test_the_page_is_valid_html(name, pages):
    html5lib.HTMLParser(strict=True).parse(pages[name])


@pytest.mark.simulations
@pytest.mark.parametrize("name", ["one", "several"])
def test_whatever_scrolls_can_be_reached_by_the_keyboard_and_has_a_name_and_so_has_each_figure(name, pages):
    boxes = re.findall(r'<div class="(wide|card)"([^>]*)>', pages[name])
    assert {kind for kind, _ in boxes} == {"wide", "card"}
    for kind, attributes in boxes:
        assert ('tabindex="0"' in attributes) == (kind == "wide")
        assert re.search(r'aria-label="[^"]+"', attributes)


@pytest.mark.parametrize("name", ["one", "several"])
def test_no_header_of_a_table_is_empty(name, pages):
    headers = re.findall(r"<th\b[^>]*>(.*?)</th>", pages[name], re.DOTALL)
    assert headers
    assert [header for header in headers if not re.sub(r"<[^>]*>", "", header).strip()] == []
