"""Parts from outside: found by path, by file or by entry point; every refusal is one paragraph with the cause."""

import importlib
import sys
from importlib.metadata import EntryPoint

import pytest
from fedassay.adapters.target import find_object
from fedassay.audit import parts as outside
from fedassay.audit.parts import build, call, find_outside, is_path, label, name_and_options, path_of, version_of

SOURCE = """\
def small(shape, classes, *, width=8):
    return (shape, classes, width)

THING = 7
"""


def test_a_function_is_found_by_the_path_of_its_module(own_module):
    module = own_module(SOURCE)
    assert find_outside("model", f"{module}:small")(1, 2) == (1, 2, 8)


def test_a_named_module_is_searched_in_the_working_directory_last(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    (tmp_path / "lies_where_we_are.py").write_text(SOURCE)
    assert find_outside("model", "lies_where_we_are:small")(1, 2) == (1, 2, 8)
    assert sys.path[-1] == str(tmp_path)


@pytest.mark.parametrize("find", [lambda name: find_outside("model", name), find_object])
def test_a_module_of_the_working_directory_that_a_library_hides_is_named_with_both_files(find, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    for name in ("queue", "time"):
        (tmp_path / f"{name}.py").write_text(SOURCE)
        with pytest.raises(ValueError, match=rf"finds the module {name} in .*(lib|itself).*, and not in .*{name}\.py"):
            find(f"{name}:small")


@pytest.mark.parametrize("find", [lambda name: find_outside("model", name), find_object])
def test_a_named_file_takes_no_place_of_a_module_of_python_or_of_a_library(find, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("queue", "typing", "numpy", "this", "matplotlib", "__main__", "fedassay"):
        (tmp_path / f"{name}.py").write_text(SOURCE)
        before, loaded = list(sys.path), sys.modules.get(name)
        with pytest.raises(ValueError, match=rf"a module of the name {name}: rename the file .*{name}\.py"):
            find(f"{name}.py:small")
        assert (sys.path, sys.modules.get(name)) == (before, loaded)


@pytest.mark.parametrize("find", [lambda name: find_outside("model", name), find_object])
def test_a_neighbour_of_a_named_file_takes_no_place_either(find, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "beside_others.py").write_text(f"import this_is_beside\n{SOURCE}")
    for name in ("this_is_beside", "wave"):
        (tmp_path / f"{name}.py").write_text("own = 1")
    (tmp_path / "filelock.py").write_text("own = 1")
    with pytest.raises(ValueError, match=r"filelock\.py would hide the library filelock: rename it"):
        find("beside_others.py:small")
    (tmp_path / "filelock.py").unlink()
    assert find("beside_others.py:small")(1, 2) == (1, 2, 8)
    assert importlib.import_module("wave").__file__ != str(tmp_path / "wave.py")
    for name in ("beside_others", "this_is_beside", "wave"):
        sys.modules.pop(name, None)


def test_a_function_is_found_in_a_file_below_any_folder_where_modules_are_searched(own_module, tmp_path):
    own_module("")
    (tmp_path / "own" / "deep").mkdir()
    (tmp_path / "own" / "deep" / "in_a_file.py").write_text("from neighbour_of_it import small\n")
    (tmp_path / "own" / "deep" / "neighbour_of_it.py").write_text(SOURCE)
    before = list(sys.path)
    try:
        assert find_outside("model", "deep/in_a_file.py:small")(1, 2) == (1, 2, 8)
    finally:
        sys.path[:] = before
        for name in ("in_a_file", "neighbour_of_it"):
            sys.modules.pop(name, None)


def test_an_entry_point_is_found_by_its_name_and_an_unknown_one_is_not(own_module, monkeypatch):
    point = EntryPoint(name="theirs", value=f"{own_module(SOURCE)}:small", group="fedassay.models")
    monkeypatch.setattr(outside, "entry_points", lambda group: [point] if group == "fedassay.models" else [])
    assert find_outside("model", "theirs")(1, 2) == (1, 2, 8)
    with pytest.raises(ValueError, match="unknown data set 'theirs'; known: digits; name your own as package"):
        find_outside("dataset", "theirs", ["digits"])


@pytest.mark.parametrize(
    ("source", "name", "reason"),
    [
        ("raise RuntimeError('no licence')", "small", "cannot import {module}: RuntimeError: no licence"),
        ("import no_such_module_anywhere", "small", "ModuleNotFoundError: No module named"),
        ("def f(:", "small", "SyntaxError"),
        (SOURCE, "smal", "{module} has no 'smal'; it has: small"),
        (SOURCE, "", "{module} has no ''; it has: small"),
        ("import json", "json", "is a module: name an object in it, such as json:Name"),
    ],
)
def test_what_cannot_be_found_is_reported_with_the_part_and_the_cause(own_module, source, name, reason):
    module = own_module(source)
    with pytest.raises(ValueError, match=f"^model '{module}:{name}'.*{reason.format(module=module)}"):
        find_outside("model", f"{module}:{name}")


def test_a_file_that_is_not_there_and_one_whose_name_is_taken_are_reported(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "twins_of_parts.py").write_text(SOURCE)
    find_outside("model", "one/twins_of_parts.py:small")
    with pytest.raises(ValueError, match=r"'no/file\.py:f': there is no file no/file\.py; the folder of the suite"):
        find_outside("model", "no/file.py:f")
    with pytest.raises(ValueError, match=r"loaded another module of the name twins_of_parts, .*: rename the file two/"):
        find_outside("model", "two/twins_of_parts.py:small")
    sys.modules.pop("twins_of_parts")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"widht": 3}, "^part has no option 'widht'; it has: width"),
        ({"shape": 3}, "^part has no option 'shape'; it has: width"),
        ({"width": "x"}, "^part: TypeError: "),
    ],
)
def test_options_are_checked_by_name_and_an_exception_is_reported_with_its_type(options, message):
    with pytest.raises(ValueError, match=message):
        call("part", lambda shape, classes, *, width=8: shape * width * 1.0, options, 2.0, 3)


def test_an_object_takes_no_options(own_module):
    path = f"{own_module(SOURCE)}:THING"
    assert build("dataset", path, {}) == 7
    with pytest.raises(ValueError, match="has no option 'width'"):
        build("dataset", {"part": path, "width": 1}, {})


@pytest.mark.parametrize("spec", [{}, {"part": 3}, {"width": 2}, 3, None, ["mlp"]])
def test_a_part_is_a_name_or_a_table_that_holds_one(spec):
    with pytest.raises(ValueError, match="name"):
        name_and_options("model", spec)


def test_a_label_holds_name_and_options_and_a_plain_name_stays():
    assert label("model", "mlp") == label("model", {"part": "mlp"}) == "mlp"
    assert label("model", {"part": "a:b", "width": 3, "act": "relu"}) == 'a:b(act="relu", width=3)'
    assert label("model", {"part": "a:b", "act": "größer"}) == 'a:b(act="größer")'
    assert label("partition", {"kind": "dirichlet", "alpha": 0.5}) == "dirichlet(alpha=0.5)"


def test_only_names_with_a_colon_are_paths():
    assert is_path("model", "a:b")
    assert is_path("algorithm", {"name": "a:b"})
    assert not is_path("sampling", {"poisson": 0.1})
    assert not is_path("model", "mlp")


def test_the_version_changes_with_the_source_of_a_function_and_of_the_module_of_an_object(own_module):
    found = []
    for source in (SOURCE, SOURCE.replace("7", "8"), SOURCE):
        module = own_module(source, name="own_versions_of_parts")
        importlib.invalidate_caches()
        found.append(
            [version_of(find_outside("model", f"{module}:{name}"), f"{module}:{name}") for name in ("small", "THING")]
        )
    assert found[0] == found[2]
    assert all(a != b for a, b in zip(found[0], found[1], strict=True))


def test_what_no_worker_process_could_import_has_no_path():
    def local():
        pass

    for part in (local, lambda: 1):
        with pytest.raises(ValueError, match="cannot be found by worker processes"):
            path_of(part)
    assert path_of(importlib.import_module) == "importlib:import_module"
