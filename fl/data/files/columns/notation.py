"""Recognises texts that are no categories: numbers and dates in a notation that is not read, and names of records.

Such a column would otherwise become one indicator per row, from which nothing can be learnt.
"""

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

MOST_LEVELS = 100
"""A column of more different texts is more likely a name or a number of the record than a category."""
FEWEST_ROWS = 20
"""In fewer training rows, a category of many levels may have another level in each row."""
IDENTIFYING = 0.9
"""Share of the training rows with a text of their own from which on the texts are taken for names of the records."""
SHARE_OF_NUMBERS = 0.5
"""A column is taken for numbers, or for one notation, if more than this share of its cells is."""

_LONGEST = 40
"""No number or date has more signs."""
_SIGN = r"[+\-\u2212]?"
_NUMBER = r"(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?"
_MONEY = r"[$\u20ac\u00a3\u00a5]"
_TIME = r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?\s*([aApP][mM]|Z|[+-]\d{2}:?\d{2})?"
_DAY = (
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}|\d{1,2}[. -]+[A-Za-z]{3,9}[. -]+\d{2,4}"
    r"|[A-Za-z]{3,9} \d{1,2}, \d{4})"
)
_PLAIN = re.compile(rf"[+-]?{_NUMBER}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Notation:
    """A notation that is not read as numbers.

    Args:
        what: what the texts look like, with an example that is not taken from the data.
        remedy: how to have them read as numbers.
    """

    what: str
    remedy: str


# A text counts for each of these that it matches.
_KNOWN = {
    rf"{_SIGN}[1-9]\d{{0,2}}([,.' \u00a0\u202f\u2019]\d{{3}})+([.,]\d+)?": Notation(
        what='numbers whose thousands are separated, such as "12,000"', remedy="remove the separators"
    ),
    rf"{_SIGN}\d*,\d+([eE][+-]?\d+)?": Notation(
        what='numbers with a decimal comma, such as "12,5"', remedy='set decimal = ","'
    ),
    rf"{_SIGN}[\d.,]+\s*[%\u2030]": Notation(what='percentages, such as "12 %"', remedy="remove the percent sign"),
    rf"({_SIGN}{_MONEY}\s*{_SIGN}[\d.,]+|{_SIGN}[\d.,]+\s*{_MONEY})": Notation(
        what='amounts of money, such as "$12"', remedy="remove the currency sign"
    ),
    rf"{_SIGN}0[xX][0-9a-fA-F]+": Notation(
        what='hexadecimal numbers, such as "0x1f"', remedy="write them as decimal numbers"
    ),
    rf"{_SIGN}\d+(_\d+)+": Notation(what='numbers with underscores, such as "12_000"', remedy="remove the underscores"),
    rf"({_DAY}([T ]\s*{_TIME})?|{_TIME})": Notation(
        what='dates or times, such as "2001-12-31"', remedy="write them as numbers, such as days since a fixed date"
    ),
    rf"(\u2212|\+\s|-\s)\s*{_NUMBER}": Notation(
        what="numbers whose minus sign is no hyphen", remedy='write the sign as "-", without a blank after it'
    ),
    rf"{_SIGN}\d+([.,\u066b]\d+)?": Notation(
        what="numbers in digits of another script", remedy="write them with the digits 0 to 9"
    ),
}
_PATTERNS = {re.compile(pattern): notation for pattern, notation in _KNOWN.items()}


def check_categories(texts: np.ndarray, train: np.ndarray, place: str) -> None:
    """Raise ValueError, with the first row at fault, if a column's texts are no categories.

    texts: (n,) the cells of the column, empty where missing; train: (n,) booleans, the training rows.

    They are none if most of them are numbers or dates in another notation, if nearly every training row has a text of
    its own, or if there are more than ``MOST_LEVELS`` different ones.
    """
    remedy = "list it in drop if it is not needed, or in categories if it is a category"
    found = notation_of(texts)
    if found:
        notation, first = found
        raise ValueError(
            f"{place} holds {notation.what}, first in row {first + 1}, which are not read as numbers: "
            f"{notation.remedy}; or {remedy}"
        )
    known = texts[train & (texts != "")]
    levels = len(np.unique(known))
    if len(known) >= FEWEST_ROWS and levels > IDENTIFYING * len(known):
        raise ValueError(
            f"{place} has {levels} different texts in {len(known)} training rows, so that it names or describes "
            f"single records: {remedy}"
        )
    if levels > MOST_LEVELS:
        raise ValueError(
            f"{place} has {levels} different texts, more than {MOST_LEVELS}: list it in drop if it names the record, "
            "or in categories if it is a category"
        )


def notation_of(texts: np.ndarray) -> tuple[Notation, int] | None:
    """Return the notation of most of the texts ``(n,)``, and the first row that has it; None where there is none.

    Empty texts do not count. Plain numbers count for any notation, because ``12`` occurs next to ``12,5``; plain
    numbers alone have none.
    """
    different, first, counts = np.unique(np.char.strip(texts), return_index=True, return_counts=True)
    hits, rows, given, plain = Counter[Notation](), dict[Notation, int](), 0, 0
    for text, row, count in zip(different.tolist(), first.tolist(), counts.tolist(), strict=True):
        if not text:
            continue
        given += count
        if len(text) > _LONGEST:
            continue
        if _PLAIN.fullmatch(text):
            plain += count
            continue
        for pattern, notation in _PATTERNS.items():
            if pattern.fullmatch(text):
                hits[notation] += count
                rows[notation] = min(row, rows.get(notation, row))
    if not hits:
        return None
    # Of equal counts the first: 1,000 is a thousand and a number with a decimal comma.
    notation = max(_PATTERNS.values(), key=hits.__getitem__)
    most = hits[notation]
    usual = most + plain > SHARE_OF_NUMBERS * given and most > SHARE_OF_NUMBERS * (given - plain)
    return (notation, rows[notation]) if usual else None


def plain_numbers(texts: np.ndarray) -> int:
    """Return how many of the texts ``(n,)`` are plain numbers."""
    different, counts = np.unique(texts, return_counts=True)
    return sum(
        count
        for text, count in zip(different.tolist(), counts.tolist(), strict=True)
        if len(text) <= _LONGEST and _PLAIN.fullmatch(text)
    )


def same_but_for_case(texts: np.ndarray) -> list[str]:
    """Return the different texts that differ from another one only by case or blanks, in the order of the alphabet."""
    different = np.unique(texts).tolist()
    forms = {text: "".join(text.split()).casefold() for text in different}
    counts = Counter(forms.values())
    return [text for text in different if counts[forms[text]] > 1]
