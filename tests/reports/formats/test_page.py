"""The page is what HTML says a page is, for a keyboard, a screen reader and a narrow screen too."""

import re
from html.parser import HTMLParser

import html5lib
import numpy as np
import pytest
from fedassay.reports.formats.page import html, html_of_several
from page_script import without_marks, without_script

REFERENCES = {"href", "src", "srcset", "xlink:href", "action", "data", "poster"}
VOID = {"meta", "br", "wbr", "link", "img", "hr", "input"}


class Outline(HTMLParser):
    """Checks that every element is closed, and collects what the page refers to."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.references, self.words = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.references += [
            value for name, value in attributes if name in ("href", "src", "xlink:href", "action", "data")
        ]

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.references += [value for name, value in attributes if name in REFERENCES]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if {"style", "script"}.isdisjoint(self.open):
            self.words.append(text)


def outline(page):
    parser = Outline()
    parser.feed(page)
    assert parser.open == []
    return parser


def test_the_page_is_well_formed_and_needs_nothing_else(quick_page):
    found = outline(without_script(quick_page))
    assert {"script", "link", "iframe"}.isdisjoint(found.tags)
    assert all(reference.startswith(("#", "data:image/png;base64,")) for reference in found.references)
    assert re.findall(r"url\((?!#)", quick_page) == []
    assert "@import" not in quick_page


def test_a_run_with_colour_images_and_many_defenses_stays_under_a_megabyte(run_maker):
    pixels = np.random.default_rng(0).random((3, 3, 64, 64))
    for attack in ("a", "b", "c", "d"):
        for number in range(8):
            psnr = np.array([9.0, 8.0, 7.0])
            artifact = run_maker.arrays(
                f"{attack}{number}", "images", originals=pixels, reconstructions=pixels, psnr=psnr
            )
            row = {"attack": attack, "defense": f"defense_{number}", "metric": "psnr", "scope": "record", "record": 0}
            run_maker.row(**row, value=9.0, artifact=artifact)
    page = html(run_maker.write())
    assert page.count("data:image/png") == 3 * 8 * 6
    assert "Left out to keep the page small: d on main." in page
    assert len(page.encode()) < 1_000_000


def test_every_figure_has_a_title_a_description_and_its_table(quick_page):
    count = outline(quick_page).tags.count("figure")
    assert count == 5
    titles = quick_page.count("<figcaption><h3>") + quick_page.count("<figcaption><p>")
    assert titles == count
    assert quick_page.partition("<figure")[2].count('role="img" aria-label="') == count
    assert quick_page.count("<summary>The table behind this figure</summary>") == count


def test_a_control_is_marked_and_its_refutation_is_as_it_must_be(quick_page):
    page = without_marks(quick_page)
    assert page.count("<small>control: should be REFUTED</small>") == 2
    assert page.count('<span class="chip REFUTED control">REFUTED</span><small>as intended</small>') == 2


def test_a_correct_claim_that_is_refuted_stands_out(run_maker, make_claim):
    signed = run_maker.sign("dp_fedavg", make_claim())
    row = {"role": "audit", "metric": "epsilon_low", "claim_id": signed.claim_id, "defense": "dp_fedavg", "seed": None}
    run_maker.row(**row, value=5.0, verdict="REFUTED", route="eps_low")
    assert '<span class="chip REFUTED attention">REFUTED</span>' in without_marks(html(run_maker.write()))


def test_text_from_the_records_cannot_become_markup(run_maker, make_claim):
    bad = "<script>alert('x')</script>"
    run_maker.manifest["command"] = run_maker.manifest["suite"]["description"] = bad
    run_maker.gate = {"verdict_line": bad, "exit_code": 12}
    signed = run_maker.sign(bad, make_claim())
    audit = {"role": "audit", "metric": "epsilon_low", "claim_id": signed.claim_id, "seed": None, "ceiling": 4.5}
    run_maker.row(**audit, defense=bad, value=1.0, verdict="NOT_REFUTED", reason=bad)
    run_maker.row(defense=bad, attack=bad, value=0.5, federation=bad)
    run_maker.row(defense=bad, metric="none", status="failed", reason=bad)
    page = html(run_maker.write())
    assert "<script" not in without_script(page)
    assert page.count("&lt;script&gt;alert") > 8
    outline(page)


def test_an_unfinished_run_has_a_page_that_states_how_far_it_came(run_maker):
    run_maker.manifest["finished"] = None
    run_maker.row(value=0.6)
    page = html(run_maker.write())
    assert "UNFINISHED: 1 of 108 planned cells on record; this run has no outcome yet" in page
    assert "No defense of this run states a claim" in page
    assert "not finished" in page


def test_every_part_has_an_id_of_its_own_and_every_link_inside_the_page_a_target(quick_page):
    ids = re.findall(r"<(?:div|section|figure|h2|details) id=\"([^\"]+)\"", quick_page)
    assert len(ids) == len(set(ids))
    links = re.findall(r"<a href=\"#([^\"]+)\"", quick_page)
    assert set(links) <= set(ids)
    assert {"claims", "attacks", "utility"} <= set(links)


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


def test_each_figure_has_its_panels_which_refer_to_its_drawing(quick_page):
    cards = re.findall(r'<div class="card".*?</figure>', quick_page, re.DOTALL)
    assert len(cards) > 3
    for card in cards:
        (drawing,) = set(re.findall(r'<use href="#([^"]+)"', card[card.index('<div class="panels">') :]))
        assert card.count(f'<g id="{drawing}"') == 1
