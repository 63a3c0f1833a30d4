"""Terms on a page: explained at their first use in each section, and defined in the glossary in the same words."""

import re
from pathlib import Path

import html5lib
import pytest
from fedassay.reports.formats.page import html, html_of_several
from fedassay.reports.formats.templates import TERMS, explained
from markupsafe import escape

GLOSSARY = Path(__file__).parents[3] / "docs" / "glossary.md"


def links(page):
    return re.findall(r'<a class="term" href="#term-([a-z0-9-]+)"', page)


@pytest.mark.parametrize("term", TERMS, ids=[term.key for term in TERMS])
def test_each_term_is_defined_in_its_section_of_the_glossary_in_the_same_words(term):
    parts = re.split(r"^## (.+)$", GLOSSARY.read_text(encoding="utf-8"), flags=re.MULTILINE)
    # The anchor of a heading has hyphens for its blanks.
    texts = {title.lower().replace(" ", "-"): text for title, text in zip(parts[1::2], parts[2::2], strict=True)}
    section = texts[term.section]
    assert re.search(rf"\*\*[^*]*\b{re.escape(term.name)}\b", section, re.IGNORECASE)
    assert term.meaning in " ".join(section.replace("**", "").split())


def test_no_two_terms_share_a_spelling_or_an_id():
    spellings = [spelling for term in TERMS for spelling in term.printed]
    assert len(spellings) == len(set(spellings))
    assert len({term.key for term in TERMS}) == len(TERMS)


def test_the_first_use_in_each_section_is_explained_and_no_other():
    page, found = explained("<section><p>AUC and AUC</p></section><section><p>TPR, AUC</p></section>")
    assert links(page) == ["auc", "tpr", "auc"]
    assert page.count("<abbr") == 3
    assert [term.name for term in found] == ["AUC", "TPR"]


@pytest.mark.parametrize(
    "kept",
    [
        "<svg><text>AUC</text></svg>",
        "<pre>AUC</pre>",
        '<a href="#x">AUC</a>',
        "<summary>AUC</summary>",
        "<h3>AUC</h3>",
        '<p title="AUC">text</p>',
        "<p>AUCs, my-AUC, AUC_2, canary-like</p>",
    ],
)
def test_drawings_code_links_headings_attributes_and_longer_words_stay_as_they_are(kept):
    assert explained(kept) == (kept, [])


def test_the_longest_term_wins_and_a_header_has_no_link():
    page, found = explained(
        "<p>NOT REFUTED</p><thead><tr><th>AUC</th></tr></thead><tbody><tr><td>FPR</td></tr></tbody>"
    )
    assert links(page) == ["not-refuted", "fpr"]
    assert [term.name for term in found] == ["NOT REFUTED", "AUC", "FPR"]


@pytest.mark.simulations
def test_a_page_explains_what_it_uses_and_nothing_else(quick_folder, quick_page):
    for page in (quick_page, html_of_several([quick_folder, quick_folder])):
        explanations = re.findall(r'<div id="term-([a-z0-9-]+)">', page)
        assert set(links(page)) <= set(explanations)
        assert "psnr" in explanations
        assert "zero-out" not in explanations
        body = page[: page.index('id="terms"')]
        for term in TERMS:
            if term.key.removeprefix("term-") in explanations:
                assert f'<abbr title="{escape(term.meaning)}">' in body


@pytest.mark.simulations
def test_names_made_of_terms_and_of_markup_stay_text(run_maker, make_claim):
    for defense in ("AUC", "<b>ε", "a&epsilon;b"):
        run_maker.verdict_row(run_maker.sign(defense, make_claim()), defense=defense, verdict="NOT_REFUTED")
    page = html(run_maker.write())
    html5lib.HTMLParser(strict=True).parse(page)
    assert "<b>ε" not in page
