"""Who may import what, beyond the layers that import-linter checks; and that importing is cheap."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Callable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import jaxtyping
import pytest

from tests.processes import python

SOURCE = Path(__file__).resolve().parents[2] / "src" / "inout"

# Where each third-party library may be imported: a phrase for the message, and the test.
ALLOWED: dict[str, tuple[str, Callable[[Path], bool]]] = {
    "numba": ("folders called cpu", lambda path: path.parent.name == "cpu"),
    "triton": ("folders called gpu", lambda path: path.parent.name == "gpu"),
    "matplotlib": ("viz/", lambda path: path.parts[0] == "viz"),
    "sklearn": ("estimators/", lambda path: path.parts[0] == "estimators"),
    "polars": ("deduction/", lambda path: path.parts[0] == "deduction"),
    "nltk": (
        "grammars/, latent/ and learning/latent_grammars.py",
        lambda path: (
            path.parts[0] in ("grammars", "latent")
            or path.parts == ("learning", "latent_grammars.py")
        ),
    ),
}


def imported_names(text: str, path: Path) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of each thing a module imports, at its top or inside a function."""
    package = ("inout", *path.parent.parts)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*parents, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def broken_rules(text: str, path: Path, top_level: set[str]) -> list[str]:
    """One message for each import of the module that breaks a rule."""
    messages = []
    for line, name in imported_names(text, path):
        root, *rest = name.split(".")
        if root in ALLOWED:
            place, allowed = ALLOWED[root]
            if not allowed(path):
                messages.append(f"{path}:{line}: {root} is imported only in {place}")
        # The root package imports every layer: `from inout import X` would go round the contract.
        of_root = root == "inout" and (not rest or (len(rest) == 1 and rest[0] not in top_level))
        if of_root and path.parts[0] not in ("cli", "__init__.py"):
            messages.append(f"{path}:{line}: {name} comes from the root package; name its layer")
    return messages


def test_every_library_is_imported_only_in_its_place():
    files = sorted(SOURCE.rglob("*.py"))
    assert files, f"no sources below {SOURCE}"
    top_level = {path.stem for path in SOURCE.iterdir()}
    messages = [
        message
        for path in files
        for message in broken_rules(
            path.read_text(encoding="utf-8"), path.relative_to(SOURCE), top_level
        )
    ]
    assert not messages, "\n".join(messages)


def imports_of_modules(texts: dict[str, str]) -> dict[str, set[str]]:
    """The modules of the package that each one imports, at its top or later, types aside."""
    modules = {path: path.removesuffix(".py").removesuffix("/__init__") for path in texts}
    found: dict[str, set[str]] = {}
    for path, text in texts.items():
        module = modules[path]
        names = (name for _, name in imported_names(runtime_only(text), Path(path)))
        places = ["/".join(name.split(".")[1:]) for name in names if name.startswith("inout.")]
        known = [
            # `from package import module` and `from module import name` look the same.
            place if place in modules.values() else place.rpartition("/")[0]
            for place in places
        ]
        found[module] = {place for place in known if place and place != module}
    return found


def runtime_only(text: str) -> str:
    """The module without what stands below TYPE_CHECKING."""
    tree = ast.parse(text)
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    ]
    return ast.unparse(tree)


def test_no_import_hides_a_cycle():
    """An import inside a function may be there for start-up's sake, not to break a cycle."""
    files = sorted(SOURCE.rglob("*.py"))
    texts = {str(p.relative_to(SOURCE)): p.read_text(encoding="utf-8") for p in files}
    list(TopologicalSorter(imports_of_modules(texts)).static_order())
    planted = {"a.py": "import inout.b", "b.py": "def f():\n    from .a import g"}
    with pytest.raises(CycleError):
        list(TopologicalSorter(imports_of_modules(planted)).static_order())


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("import numba", "forest/query.py"),
        ("from numba import njit", "kernels/forest/op.py"),
        ("def f():\n    import numba.core as nc", "kernels/forest/reference.py"),
        ("import triton.language as tl", "kernels/chain/cpu/scaled.py"),
        ("from matplotlib import pyplot", "forest/query.py"),
        ("import polars as pl", "forest/builder.py"),
        ("import inout", "forest/query.py"),
        ("from inout import Forest", "deduction/program.py"),
        ("from .. import Forest", "deduction/program.py"),
    ],
)
def test_a_planted_import_is_found(text: str, path: str):
    assert len(broken_rules(text, Path(path), {"forest", "deduction"})) == 1


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("from numba import njit", "kernels/forest/cpu/scaled.py"),
        ("import numbatools, torch", "forest/query.py"),
        ("from inout import forest", "deduction/program.py"),
        ("from ..forest import Forest", "deduction/program.py"),
        ("from .plan import plan", "deduction/program.py"),
        ("import inout", "cli/main.py"),
    ],
)
def test_an_honest_import_passes(text: str, path: str):
    assert broken_rules(text, Path(path), {"forest", "deduction"}) == []


# Imports the package, then every kernel file, and tells what came along and what was compiled.
# What is about treebanks imports nltk, and nltk imports whatever it finds.
PROBE = """
import importlib, json, pkgutil, sys
import inout
treebanks = {"LPCFG", "LatentGrammar", "LatentParser", "latent", "fit_latent_grammar"}
for name in set(inout.__all__) - treebanks:
    getattr(inout, name)
modules = sorted(sys.modules)
for found in pkgutil.walk_packages(inout.__path__, "inout."):
    if ".cpu." in found.name:
        importlib.import_module(found.name)
compiled = sorted(
    f"{name}.{key}: {value.signatures}"
    for name, module in list(sys.modules.items())
    if name.startswith("inout.")
    for key, value in vars(module).items()
    if getattr(value, "nopython_signatures", None)
)
print(json.dumps({"modules": modules, "compiled": compiled}))
"""


def test_importing_compiles_nothing_and_leaves_optional_libraries_alone():
    answer = python("-c", PROBE)
    assert answer.returncode == 0, answer.stderr
    told = json.loads(answer.stdout.splitlines()[-1])
    assert told["compiled"] == []
    # numba looks at the version of scipy if there is one, which imports nothing but its root.
    unwanted = {
        "nltk",
        "matplotlib",
        "sklearn",
        "triton",
        "scipy.linalg",
        "scipy.sparse",
        "scipy.special",
    }
    # Most programs never need polars, and it takes half a second to import.
    assert not (unwanted | {"polars"}) & set(told["modules"])
    assert {"torch", "numba"} <= set(told["modules"])


def test_the_command_starts_without_torch():
    code = (
        "import sys, inout.cli; inout.ProgramError; inout.cli.main(['solve', '--help']); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'numba', 'numpy', 'lark')))"
    )
    answer = python("-c", code)
    assert answer.returncode == 0, answer.stderr
    assert "--facts" in answer.stdout


def test_public_names_are_those_that_exist():
    import inout

    # Names that are listed twice, or imported in another form, would be lost at run time.
    stub = ast.parse((SOURCE / "__init__.pyi").read_text(encoding="utf-8"))
    listed = [alias for node in stub.body for alias in node.names]
    assert sorted(alias.asname for alias in listed) == inout.__all__
    assert all(alias.name == alias.asname for alias in listed)
    for name in inout.__all__:
        assert getattr(inout, name).__name__.rpartition(".")[2] == name
    assert set(inout.__all__) <= set(dir(inout))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        inout.nothing  # noqa: B018


@pytest.mark.skipif(os.environ.get("INOUT_TYPECHECK") == "0", reason="INOUT_TYPECHECK=0")
def test_annotations_are_enforced_in_the_tests():
    from inout._core.errors import CycleError

    with pytest.raises(jaxtyping.TypeCheckError):
        CycleError(3)
