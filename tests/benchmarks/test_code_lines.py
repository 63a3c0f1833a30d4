"""Code lines: what counts, and that the sizes of the repository are the sums of its folders."""

import pytest

BENCHMARK = "code_lines"
MODULE = '''"""A docstring
of two lines."""

# A comment.
import json  # One.


class Three(dict):
    """Not counted."""

    text = """counted,
    though a string"""  # Four and five.

    def six(self):
        """Not counted."""
        # Nor this.
        return "seven"
'''


def test_blanks_comments_and_docstrings_are_no_code(benchmark):
    assert benchmark.code_lines(MODULE) == 6


def test_folders_are_counted_down_to_a_depth(benchmark, tmp_path):
    for name in ("one.py", "a/two.py", "a/b/three.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(MODULE, encoding="utf-8")
    files = [path.relative_to(tmp_path) for path in tmp_path.rglob("*.py")]
    assert benchmark.by_folder(files, depth=1, root=tmp_path) == {".": (6, 1), "a": (12, 2)}
    assert benchmark.by_folder(files, depth=2, root=tmp_path) == {".": (6, 1), "a": (6, 1), "a/b": (6, 1)}


@pytest.mark.parametrize(("ceiling", "code"), [(10**9, 0), (1, 1)])
def test_a_size_above_its_ceiling_fails_the_check(benchmark, monkeypatch, capsys, ceiling, code):
    monkeypatch.setattr(benchmark, "sizes", lambda: {"product": 5})
    monkeypatch.setattr(
        benchmark.tomllib, "loads", lambda text: {"tool": {"fedassay": {"ceilings": {"product": ceiling}}}}
    )
    monkeypatch.setattr("sys.argv", ["code_lines.py", "--check"])
    assert benchmark.main() == code
    assert ("TOO MANY" in capsys.readouterr().out) is bool(code)
