"""Suites: files, trials, cells, runs: the only place where defenses and attacks meet."""
