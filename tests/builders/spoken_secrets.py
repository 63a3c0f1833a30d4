"""A text of many speakers in a folder, long enough that each holds a secret."""

import gzip

import numpy as np
from fedassay.fl.data.data_folder import DataFolder
from fedassay.fl.data.shakespeare import CODES, FILE, LENGTH


def spoken(folder, *, speakers=41, windows=53):
    """Random letters and blanks by so many speakers, each with ``windows`` windows, the last of them for tests."""
    rng = np.random.default_rng(0)
    signs = np.array(list(CODES + " "))
    speeches = [f"S{number}:\n" + "".join(rng.choice(signs, size=windows * LENGTH + 1)) for number in range(speakers)]
    (folder / FILE).parent.mkdir(exist_ok=True)
    (folder / FILE).write_bytes(gzip.compress("\n\n".join(speeches).encode()))
    return DataFolder(folder)
