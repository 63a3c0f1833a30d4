"""Say in plain words what an implementation check compares, for readers who do not know the terms of its name."""

_PLAIN = {
    "epsilon of the law": "the ε that follows from the published noise",
    "curve of the law": "the error rates that follow from the published noise",
    "epsilon of the shuffled law": "the ε of shuffled reports that follows from the published noise",
    "pure epsilon of the releases": "the ε of the published values, at δ = 0",
    "epsilon of the releases": "the ε of the published values",
    "law fits the reports": "whether reports have the published noise",
    "sensitivity as sampled": "how far one unit moves the result, where participants are drawn at random",
    "sensitivity": "how far one unit moves the result",
    "broadcast model": "the model that the server sends to all",
    "all clients in independent runs": "repeated runs with all clients",
    "lots and cohorts as sampled": "which records and clients take part",
    "canary arrives": "whether the planted unit reaches the result",
    "noise scale in every round": "the size of the noise in each single round",
    "noise of its own in every replica": "whether each run has noise of its own",
    "noise of its own in every run": "whether each run has noise of its own",
    "noise given other clients": "whether the noise follows from that of other clients",
    "noise given other rounds": "whether the noise follows from that of other rounds",
    "noise distribution": "how the noise is distributed",
    "noise scale": "the size of the noise",
    "extreme rows": "records with extreme values",
    "public state": "what the server keeps between rounds",
    "side channels": "other values that an adversary receives",
    "floating point": "the last digits of numbers",
    "weights": "the noise of single layers",
    "sampling": "how records and clients are drawn at random",
    "masked words": "masked numbers",
}
_FOLLOWS = "follows from the aggregates"
_LONGEST_FIRST = sorted(_PLAIN, key=len, reverse=True)


def plain_names(words: str) -> str:
    """Return words that start with the name of a check with its plain words instead; other words stay as they are."""
    name = next((name for name in _LONGEST_FIRST if words.startswith(name)), None)
    if name is None:
        return words
    rest = words.removeprefix(name).strip()
    return f"{_PLAIN[name]}: {rest}" if rest else _PLAIN[name]


def item_phrase(item: str) -> str:
    """Return an item that implementation checks looked at; a record writes ``client #`` for a client of any number."""
    return item.replace("client #", "a client")


def item_in_plain_words(item: str) -> str:
    """Return what was not looked at, without its reason, which follows a colon, unless the reason is that something
    else determines it: without that one, a claim about the item would seem untested.
    """
    name, _, reason = item_phrase(item).partition(":")
    return f"{plain_names(name)} (it {_FOLLOWS})" if reason.endswith(_FOLLOWS) else plain_names(name)
