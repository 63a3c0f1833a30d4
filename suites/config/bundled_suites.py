"""Find the suite files that come with the package."""

from importlib import resources


def bundled_suites() -> dict[str, str]:
    """Return a dictionary from the name of each bundled suite to its TOML text; suites that repeat a paper's
    experiments have names ``papers/NAME``.
    """
    folder = resources.files(__package__.rpartition(".")[0])
    places = {"": folder, "papers/": folder / "papers"}
    files = [(prefix + entry.name, entry) for prefix, place in places.items() for entry in place.iterdir()]
    return {
        name.removesuffix(".toml"): entry.read_text(encoding="utf-8")
        # The package's own suites first, then those of papers; a folder lists its files in no fixed order.
        for name, entry in sorted(files, key=lambda file: ("/" in file[0], file[0]))
        if name.endswith(".toml")
    }
