"""Seeds of 256 bits are folded to 32 bits before masks are drawn from a Mersenne Twister.

Library: flwr==1.42.0.
"""

import os
import time

import numpy as np
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

seed = os.urandom(32)
turned = seed[4:] + seed[:4]  # another 256-bit seed, of the same exclusive or
masks = [pseudo_rand_gen(one, 1 << 32, [(1000,)])[0] for one in (seed, turned)]
assert seed != turned
assert np.array_equal(*masks)

secret, known = 12_345, np.arange(5)  # a seed below 2^14, to keep the search short; five values that are known
masked = pseudo_rand_gen(secret.to_bytes(32, "little"), 1 << 32, [(5,)])[0] + known
start = time.process_time()
tried = (n for n in range(1 << 14) if np.random.RandomState(n).randint(0, (1 << 32) - 1) == masked[0])
found = [n for n in tried if np.array_equal(np.random.RandomState(n).randint(0, (1 << 32) - 1, 5), masked - known)]
hours = (time.process_time() - start) * 2**18 / 3600
print(f"seed found by search: {found}; a search of all 2^32 would take about {hours:.0f} CPU hours in Python")
assert found == [secret]
print("verdict: REFUTED, masks of one seed have 2^32 values, not 2^256 (equal masks for different seeds)")
