"""Finds parts, such as attacks and defenses: parts of a folder by their file names, and parts from outside the package
by ``package.module:Name``, by ``file.py:Name`` or by an entry point.

One mechanism serves all kinds of parts. A part is named by text, so that worker processes and resumed runs find it too.
A table gives its options: ``{ part = "mypackage.models:Small", width = 32 }``.
"""

import hashlib
import importlib
import inspect
import json
import pkgutil
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from .wording import nearest

_OF_TRAIN = ("torch", "torchvision", "skimage", "sklearn", "lpips")
"""Modules that the extra ``train`` installs."""


class NotInstalled(ModuleNotFoundError):
    """A library of an extra is not installed; the message names the command that installs it."""


@contextmanager
def extras_named() -> Iterator[None]:
    """Raise NotInstalled instead of the error of an import that fails because the extra ``train`` is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _OF_TRAIN:
            raise
        words = f"this needs {error.name}, which is not installed: pip install '{_PACKAGE}[train]'"
        raise NotInstalled(words, name=error.name) from None


@cache
def names_in(package: str) -> tuple[str, ...]:
    """Return the names of the Python files in a package's folder, in alphabetical order, without importing them."""
    found = importlib.import_module(package)
    # Sorted, so that the order of tables does not depend on the file system.
    return tuple(sorted(entry.name for entry in pkgutil.iter_modules(found.__path__) if not entry.ispkg))


def part_in(package: str, name: str) -> Any:
    """Import the file ``name`` of a package's folder and return what it defines under its own name."""
    return getattr(importlib.import_module(f"{package}.{name}"), name)


KINDS = {
    "dataset": "data set",
    "model": "model",
    "algorithm": "algorithm",
    "partition": "partition",
    "preparation": "preparation",
    "sampling": "sampling rule",
    "attack": "attack",
    "estimator": "estimator",
    "defense": "defense",
    "canary": "canary",
}
"""Every kind of part, with its name in error messages."""
_KEYS = {"algorithm": "name", "partition": "kind"}
"""Kinds whose tables hold a name of the catalogue under another key than ``part``."""
_ALSO = {"dataset": ", or as a path such as ./data.npz"}
_PACKAGE = __package__.partition(".")[0]
_NOT_OWN = {_PACKAGE, "joblib", "numpy", "pandas", "PIL", "pydantic", "scipy", "sklearn", "torch", "torchvision"}
"""The package and the libraries between it and a part, or that parts call; their lines show no fault of a part."""
_SEARCHED = "the folder of the suite file, the current folder and the installed packages were searched"
_PYTHON, _INSTALLED = (
    tuple(sysconfig.get_path(one) for one in kinds) for kinds in (("stdlib", "platstdlib"), ("purelib", "platlib"))
)
_TAKEN = [*sorted(_NOT_OWN - {_PACKAGE}), "dp_accounting", "filelock", "fpdf", "jinja2", "lpips", "matplotlib", "rich"]
_TAKEN += ["skimage", "typer", "yaml"]
"""Libraries that the package needs, some of which are loaded late."""
_SEEN: dict[str, tuple[ModuleSpec, str]] = {}
"""The specification of each module of a part, with the digest of its file when it was first used."""
Spec = str | Mapping[str, Any]
"""A part in a suite: its name, or a table with the name as ``part`` and its options as the other keys."""


def group(kind: str) -> str:
    """Return the name of the entry-point group for parts of one kind: ``fedassay.models`` for ``model``."""
    return f"fedassay.{kind[:-1]}ies" if kind.endswith("y") else f"fedassay.{kind}s"


def points(kind: str) -> dict[str, EntryPoint]:
    """Return the entry points of one kind, keyed by name, without importing anything."""
    return {point.name: point for point in entry_points(group=group(kind))}


def name_and_options(kind: str, spec: object) -> tuple[str, dict[str, Any]]:
    """Split a part of a suite into its name and its options.

    Raises:
        ValueError: unless ``spec`` is a name or a table that holds one.
    """
    if isinstance(spec, str):
        return spec, {}
    if not isinstance(spec, Mapping):
        raise ValueError(f"{KINDS[kind]} must be a name or a table with the key part, got {str(spec)[:80]!r}")
    options, key = dict(spec), _KEYS.get(kind, "part")
    name = options.pop("part" if "part" in options else key, None)
    if not isinstance(name, str):
        raise ValueError(f"the table of the {KINDS[kind]} needs a name as its key {key}, got {str(dict(spec))[:80]}")
    return name, options


def label(kind: str, spec: Spec) -> str:
    """Return a part of a suite as one line: its name, followed by its options in brackets if it has any."""
    name, options = name_and_options(kind, spec)
    inside = ", ".join(
        f"{key}={json.dumps(value, sort_keys=True, ensure_ascii=False)}" for key, value in sorted(options.items())
    )
    return f"{name}({inside})" if inside else name


def is_path(kind: str, spec: object) -> bool:
    """Return whether a suite names a part by a path, ``package.module:Name`` or ``file.py:Name``."""
    name = spec.get("part", spec.get(_KEYS.get(kind, "part"))) if isinstance(spec, Mapping) else spec
    return isinstance(name, str) and ":" in name


def find_outside(kind: str, name: str, known: Iterable[str] = ()) -> Any:
    """Import a part from outside this package and return it: a class, a function or an object.

    ``known``: names of the package's own parts of this kind, for the message.

    Raises:
        ValueError: for an unknown name, or a module that does not import or lacks the name; one paragraph that names
            the part, the cause and the nearest known names.
    """
    if ":" in name:
        return _named(name, f"{KINDS[kind]} {name!r}", installed=False)
    offered = points(kind)
    if name in offered:  # Only this entry point is loaded: another package's broken one must not stop the run.
        return load(offered[name])
    raise ValueError(
        f"unknown {KINDS[kind]} {name!r}; known: {nearest(name, [*known, *offered])}; "
        "name your own as package.module:Name or file.py:Name (in a suite file: part = 'file.py:Name')"
        f"{_ALSO.get(kind, '')}"
    )


def load(point: EntryPoint) -> Any:
    """Import and return the object that an entry point names.

    Raises:
        ValueError: as ``find_outside``.
    """
    return _named(f"{point.module}:{point.attr}", f"entry point {point.name!r}", installed=True)


def build(kind: str, spec: object, known: Mapping[str, Any]) -> Any:
    """Find the part that a suite names and call it with its options; an object is returned as it is.

    ``known``: the package's own parts of this kind by name, each a class or a function.

    Raises:
        ValueError: as ``find_outside`` and ``call``.
    """
    name, options = name_and_options(kind, spec)
    part, what = known[name] if name in known else find_outside(kind, name, known), f"{KINDS[kind]} {name}"
    if callable(part):
        return call(what, part, options)
    if options:
        raise ValueError(f"{what} has no option {min(options)!r}, because it is an object and takes no options")
    return part


def check_members(what: str, part: object, interface: type) -> None:
    """Raise ValueError unless a part has every public member of an interface."""
    members = dict.fromkeys((*inspect.get_annotations(interface), *vars(interface)))
    wanted = [name for name in members if not name.startswith("_")]
    if lacking := [name for name in wanted if not hasattr(part, name)]:
        raise ValueError(f"{what} must have {', '.join(wanted)}, but {type(part).__name__} lacks {', '.join(lacking)}")


def call(what: str, function: Callable[..., Any], options: Mapping[str, Any], *given: Any) -> Any:
    """Call a part's function or class with its options, after the arguments ``given`` by the package.

    Raises:
        ValueError: for an option that it does not have, one that is missing, or any exception of its own; the message
            starts with ``what``.
    """
    _check_options(what, function, options, len(given))
    try:
        return function(*given, **options)
    except Exception as error:
        raise ValueError(f"{what}: {described(error)}") from error


def described(error: BaseException) -> str:
    """Return an exception of a user's own code as one phrase: its message, its type unless that is ValueError, and the
    place that raised it.
    """
    words = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
    return words + raised_at(error)


def raised_at(error: BaseException) -> str:
    """Return `` (file.py, line N)``, the last line of the user's own code that an exception passed through; empty for
    an exception that no such code raised.
    """
    seen: set[int] = set()
    found: BaseException | None = error
    # A wrapper of the package has no frame of the user's code; the exception that caused it has.
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        own = [(frame, line) for frame, line in traceback.walk_tb(found.__traceback__) if _is_own(frame)]
        if own:
            frame, line = own[-1]
            return f" ({Path(frame.f_code.co_filename).name}, line {line})"
        found = found.__cause__ or found.__context__
    return ""


def _is_own(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return module not in _NOT_OWN and module not in sys.stdlib_module_names


def version_of(part: Any, name: str = "") -> str:
    """Return a part's version; the version of a part from outside the package includes a digest of the part's source.

    The digest is needed because authors edit their part without changing its version. ``name``: the text that names the
    part; for an object, such as a data set, its module holds the source.
    """
    version = str(getattr(part, "version", "1"))
    home = getattr(part, "__module__", None)
    module = sys.modules.get(home) if isinstance(home, str) else None
    if ":" in name and (module is None or not (isinstance(part, type) or callable(part))):
        module = sys.modules.get(_module_name(name.rpartition(":")[0]))
    if module is not None and module.__name__.startswith(f"{_PACKAGE}."):
        return version
    return f"{version}+{_digest(module or part)}"


def path_of(part: Any) -> str:
    """Return the text ``package.module:Name`` by which a class or a function is found again.

    Raises:
        ValueError: for one that no import finds: of a notebook or of a program's own file, local to a function, or a
            lambda.
    """
    home, name = getattr(part, "__module__", None), getattr(part, "__qualname__", None)
    if home is None or name is None or "<" in name or "." in name or home == "__main__":
        raise ValueError(
            f"{name or part!r} cannot be found by worker processes or by a resumed run: define it under a name in a "
            "module (a .py file) that they can import"
        )
    return f"{home}:{name}"


def written(kind: str, value: Any) -> Any:
    """Return a part in the form in which a suite names it, if Python code gives the part as an object; text and tables
    are returned unchanged.

    A function or class becomes its path, and an instance of a data class a table of its path and its fields.

    Raises:
        ValueError: as ``path_of``, and for an object that neither worker processes nor a resumed run could build.
    """
    if value is None or isinstance(value, str | Mapping | int | float | list | tuple):
        return value
    if callable(value):
        return path_of(value)
    if not is_dataclass(value):
        raise ValueError(
            f"{KINDS[kind]} cannot be an object of type {type(value).__name__}, which worker processes and resumed "
            "runs cannot build again: give a function of a module that returns it, or the name of such a function"
        )
    return {"part": path_of(type(value)), **{one.name: getattr(value, one.name) for one in fields(value) if one.init}}


def _check_options(what: str, function: Callable[..., Any], options: Mapping[str, Any], given: int) -> None:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # Some functions in C have no signature; the call itself then decides.
        return
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    taken = {one.name for one in positional[:given]}
    own = [
        one for one in parameters if one.name not in taken and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]
    names = [one.name for one in own]
    for key in options:
        if key not in names:
            raise ValueError(f"{what} has no option {key!r}; it has: {nearest(key, names) if names else 'none'}")
    if missing := [one.name for one in own if one.default is one.empty and one.name not in options]:
        raise ValueError(f"{what} needs a value for {', '.join(missing)}")


def import_first_from(folder: str) -> None:
    """Put the folder of a file that the user names on the import path, before all but Python's own modules. The folder
    stays there, because a part may import more modules when it runs, and worker processes inherit this import path.

    Raises ValueError if the folder holds a module of the name of a library of this package, which it would replace.
    """
    for name in _TAKEN:
        for place in (Path(folder, f"{name}.py"), Path(folder, name, "__init__.py")):
            if place.is_file():
                raise NoFile(f"{place} would hide the library {name}: rename it")
    own = [place for place in sys.path if place != folder]
    at = max((number for number, one in enumerate(own, start=1) if _is_python(str(one))), default=0)
    sys.path[:] = [*own[:at], folder, *own[at:]]


def _is_python(place: str) -> bool:
    """Whether a folder or a file is one of Python's own modules."""
    return place.startswith(_PYTHON) and "-packages" not in place


def _is_library(place: str) -> bool:
    """Whether a folder or a file is one of Python's own modules or of installed packages."""
    return _is_python(place) or place.startswith(_INSTALLED) or "site-packages" in place or "dist-packages" in place


def import_last_from_here() -> None:
    """Add the working directory as the last folder of the import path, so that Python finds a module there that the
    user names; no file in it can take the place of a module of Python or of an installed package.
    """
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)


def two_files(name: str, folder: Path) -> tuple[str, Path] | None:
    """Return the file from which Python loaded the module ``name``, and another file of this name in ``folder``; None
    if there is no other file. Files with equal content count as one, such as a checkout and its installed copy.
    """
    place, loaded = Path(folder, *name.split(".")), getattr(sys.modules[name], "__file__", None)
    own = next((file for file in (place.with_name(f"{place.name}.py"), place / "__init__.py") if file.is_file()), None)
    same = own is None or (loaded is not None and own.read_bytes() == Path(loaded).read_bytes())
    return None if own is None or same else (loaded or "Python itself", own)


def check_not_shadowed(name: str, what: str) -> None:
    """Raise ValueError if a module of the working directory, which is searched last, has the same ``name`` as a loaded
    module of Python or of an installed package; ``what``: the text that names the module.
    """
    loaded, own = two_files(name, Path.cwd()) or ("", None)
    if own and (loaded == "Python itself" or _is_library(loaded)):
        raise ValueError(
            f"{what}: Python finds the module {name} in {loaded}, and not in {own}: rename the file in {own}"
        )


def check_name_free(path: Path, what: str) -> None:
    """Raise ValueError if a file that the user names would take the place of a module of Python or of a library, once
    its folder is searched first; ``what``: the text that names the file.
    """
    name = path.stem
    loaded = getattr(sys.modules.get(name), "__file__", None) or ""
    other = _is_library(loaded) and not path.samefile(loaded)
    if other or name in ("__main__", _PACKAGE, *_TAKEN) or name in sys.stdlib_module_names:
        raise NoFile(f"{what}: Python or a library has a module of the name {name}: rename the file {path}")


def _named(name: str, what: str, *, installed: bool) -> Any:
    place, _, attribute = name.rpartition(":")
    if not installed and not place.endswith(".py"):
        import_last_from_here()
    try:
        module = _from_file(place, what) if place.endswith(".py") else importlib.import_module(place)
    except NoFile:
        raise
    except (Exception, SystemExit) as error:  # A user's module may raise anything on import, sys.exit() included.
        reason = f"cannot import {place}: {type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError) and error.name == place.partition(".")[0] and not installed:
            reason += f"; {_SEARCHED}"
        raise ValueError(f"{what}: {reason}") from error
    if not installed and not place.endswith(".py"):
        check_not_shadowed(place, what)
    if not hasattr(module, attribute):
        own = [key for key, one in vars(module).items() if callable(one) and not key.startswith("_")]
        own = [key for key in own if getattr(vars(module)[key], "__module__", "") == module.__name__] or own
        raise ValueError(f"{what}: {place} has no {attribute!r}; it has: {nearest(attribute, own)}")
    found = getattr(module, attribute)
    if isinstance(found, ModuleType):
        raise ValueError(f"{what} is a module: name an object in it, such as {found.__name__}:Name")
    _check_fresh(module, what)
    return found


def _check_fresh(module: ModuleType, what: str) -> None:
    """Raise ValueError for a file that was edited after this function first saw its module: results of the old code
    would get the identity of the new one.
    """
    file, spec = getattr(module, "__file__", None), module.__spec__
    if not file or not Path(file).is_file() or spec is None:
        return
    digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    # A reloaded module has a new specification.
    known, first = _SEEN.setdefault(module.__name__, (spec, digest))
    if known is not spec:
        _SEEN[module.__name__] = (spec, digest)
    elif first != digest:
        raise ValueError(
            f"{what}: {Path(file).name} changed after Python loaded it: restart Python, or reload the module with "
            f"importlib.reload"
        )


class NoFile(ValueError):
    """Raised for a part's file that does not exist, or that Python cannot load under its name."""


def _from_file(place: str, what: str) -> ModuleType:
    """The module of a Python file, which is searched where modules are; imported as ``python FILE`` would."""
    # Last in libraries: a user who names queue.py has a file of this name.
    places = sorted((*map(str, sys.path), ""), key=_is_library)
    path = next((one for folder in places if (one := Path(folder, place)).is_file()), None)
    if path is None:
        raise NoFile(f"{what}: there is no file {place}; {_SEARCHED}")
    folder, name = str(path.resolve().parent), _module_name(place)
    check_name_free(path, what)
    # The file can import its neighbours, and worker processes, which inherit this path, find it by its name.
    if folder not in sys.path:
        import_first_from(folder)
    module = importlib.import_module(name)
    if module.__file__ is None or not path.samefile(module.__file__):
        raise NoFile(
            f"{what}: Python has loaded another module of the name {name}, from {module.__file__}, and loads one per "
            f"name: rename the file {place}"
        )
    return module


def _module_name(place: str) -> str:
    return Path(place).stem if place.endswith(".py") else place


def _digest(part: Any) -> str:
    try:
        source = inspect.getsource(part if isinstance(part, ModuleType) else inspect.getmodule(part) or part)
    except (OSError, TypeError):
        source = ""
    return hashlib.sha256(source.encode()).hexdigest()[:8]
