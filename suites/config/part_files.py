"""Find the files that define defenses and attacks by reading their text, without importing them.

Importing every defense to find one takes seconds, because most of them load torch. The text of a file holds the class
that it defines, the classes that it derives from and its docstrings. A class with ``ABC`` among its own bases is a
common base of parts and not a part itself.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module, resources
from importlib.resources.abc import Traversable
from typing import Any, Literal

Kind = Literal["defense", "attack"]
PACKAGE = __package__.split(".")[0]
_Name = tuple[str, str]
"""Module and class."""


@dataclass(frozen=True, kw_only=True)
class PartFile:
    """One defense or attack of the package and the file that defines it.

    Args:
        name: of the part: that of its file, or of its class where a file defines several parts.
        module: dotted, with the package's name.
        class_name: of the part.
        summary: first line of the file's docstring, or of the class's where a file defines several parts.
        doc: of the class, or empty.
        observer: the constant that its class names as its observer, or empty.
    """

    name: str
    module: str
    class_name: str
    summary: str
    doc: str
    observer: str = ""

    def load(self) -> Any:
        """Import the file of a defense or attack and return its class."""
        return getattr(import_module(self.module), self.class_name)


_FOLDERS: dict[Kind, tuple[str, ...]] = {
    "defense": ("defenses",),
    "attack": tuple(
        f"attacks.{folder}"
        for folder in ("gradient", "labels", "membership", "attributes", "text", "vertical", "transfer")
    ),
}
_CONTROL = "Control"
"""How the names of classes of controls begin, of which a file may define several."""
# The folders of attacks do not hold the file of these classes, so each of them is named.
_BASES: dict[Kind, tuple[str, ...]] = {"defense": ("DefensePart",), "attack": ("AttackPart", "Attack", "UploadAttack")}


def own_parts(kind: Kind) -> dict[str, PartFile]:
    """Return a dictionary from the names of the package's own defenses (or of its attacks) to their files, in
    alphabetical order.
    """
    return part_files(_FOLDERS[kind], _BASES[kind])


@lru_cache(maxsize=8)
def part_files(folders: tuple[str, ...], bases: tuple[str, ...]) -> dict[str, PartFile]:
    """Return a dictionary from names to the files that define a defense or attack. Such a file has a public class that
    derives from one of ``bases``; if a file has several such classes, the first one counts. Controls are named by their
    classes.

    Args:
        folders: dotted, below the package, such as ``defenses``; their sub-folders are read as well.
        bases: classes that all parts derive from, directly or through classes of these folders.

    Raises:
        ValueError: two files of one name that both define a part.
    """
    parts: dict[str, PartFile] = {}
    for module, tree, own in _classes_from(folders, bases):
        if not own:
            continue
        controls = [node for node in own if node.name.startswith(_CONTROL)]
        for part in [_named_by_class(module, node) for node in controls] or [_named_by_file(module, tree, own[0])]:
            if part.name in parts:
                raise ValueError(
                    f"two defenses or attacks have the same name {part.name!r}: {parts[part.name].module} and {module}"
                )
            parts[part.name] = part
    return dict(sorted(parts.items()))


def _named_by_file(module: str, tree: ast.Module, node: ast.ClassDef) -> PartFile:
    doc = ast.get_docstring(node) or ""
    summary = (ast.get_docstring(tree) or doc).partition("\n")[0]
    return PartFile(
        name=module.rpartition(".")[2],
        module=module,
        class_name=node.name,
        summary=summary,
        doc=doc,
        observer=_assigned(node, "observer"),
    )


def _named_by_class(module: str, node: ast.ClassDef) -> PartFile:
    name, doc = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", node.name).lower(), ast.get_docstring(node) or ""
    summary = " ".join(doc.partition("\n\n")[0].split())
    return PartFile(name=name, module=module, class_name=node.name, summary=summary, doc=doc)


@lru_cache(maxsize=8)
def part_classes(folder: str, base: str, *, other_than: str = "") -> dict[str, PartFile]:
    """Return every public class in the files of a folder that derives from the class ``base`` of that folder, but not
    from ``other_than``. The key of a class is its name in lower case with underscores.
    """
    found, others = (
        {
            part.name: part
            for module, _, own in _classes_from((folder,), (root,))
            for part in (_named_by_class(module, node) for node in own)
        }
        for root in (base, other_than)
    )
    return {name: part for name, part in sorted(found.items()) if name not in others}


def texts_of(attribute: str, folder: str) -> Iterator[str]:
    """Yield the text that each class of a folder's files assigns to the class attribute of the given name."""
    for _, text in _sources(resources.files(PACKAGE).joinpath(*folder.split(".")), f"{PACKAGE}.{folder}"):
        for node in [line for found in _classes(ast.parse(text)) for line in found.body]:
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if attribute in map(ast.unparse, targets):
                    yield str(node.value.value)


def _sources(folder: Traversable, package: str) -> Iterator[tuple[str, str]]:
    """Module and text of every file below a folder."""
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        # Only packages: `__pycache__` and folders of data hold no parts.
        if entry.is_dir() and entry.joinpath("__init__.py").is_file():
            yield from _sources(entry, f"{package}.{entry.name}")
        elif entry.name.endswith(".py") and entry.name != "__init__.py":
            yield f"{package}.{entry.name.removesuffix('.py')}", entry.read_text(encoding="utf-8")


def _bases(module: str, tree: ast.Module) -> Iterator[tuple[_Name, tuple[_Name, ...]]]:
    """Each class of a file with the classes that it derives from."""
    homes = dict(_imported(module, tree))
    for node in _classes(tree):
        # A generic base such as `Base[T]` is a subscript, whose value is the class.
        named = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
        names = [base.id for base in named if isinstance(base, ast.Name)]
        yield (module, node.name), tuple(homes.get(name, (module, name)) for name in names)


def _imported(module: str, tree: ast.Module) -> Iterator[tuple[str, _Name]]:
    """Each name that a file imports relatively, with the module and class that it comes from."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level:
            above = module.split(".")[: -node.level]
            # One dot is the file's own package, so as many names are cut off as there are dots.
            home = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield alias.asname or alias.name, (home, alias.name)


def _classes(tree: ast.Module) -> Sequence[ast.ClassDef]:
    return [node for node in tree.body if isinstance(node, ast.ClassDef)]


def _classes_from(
    folders: Sequence[str], roots: tuple[str, ...]
) -> Iterator[tuple[str, ast.Module, list[ast.ClassDef]]]:
    """Each file of the folders, with its public classes that derive from one of ``roots`` and are not abstract."""
    # All folders are parsed before the first class is chosen: it may derive from a class of a later file.
    root = resources.files(PACKAGE)
    trees = {
        module: ast.parse(text)
        for folder in folders
        for module, text in _sources(root.joinpath(*folder.split(".")), f"{PACKAGE}.{folder}")
    }
    bases = {name: found for module, tree in trees.items() for name, found in _bases(module, tree)}
    for module, tree in trees.items():
        named = [
            node for node in _classes(tree) if node.name not in roots and node.name[0] != "_" and not _is_abstract(node)
        ]
        yield module, tree, [node for node in named if _derives((module, node.name), bases, roots)]


def _assigned(node: ast.ClassDef, attribute: str) -> str:
    """The text of what a class assigns to an attribute with a type; empty if it assigns nothing."""
    lines = (line for line in node.body if isinstance(line, ast.AnnAssign) and ast.unparse(line.target) == attribute)
    return next((ast.unparse(line.value) for line in lines if line.value is not None), "")


def _is_abstract(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "ABC" for base in node.bases)


def _derives(name: _Name, bases: dict[_Name, tuple[_Name, ...]], roots: tuple[str, ...]) -> bool:
    return name[1] in roots or any(_derives(one, bases, roots) for one in bases.get(name, ()))
