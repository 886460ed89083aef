"""The ceilings of the house style, checked over the syntax trees of the whole project."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = sorted((ROOT / "trioproxy").rglob("*.py"))
OTHERS = sorted(path for folder in ("tests", "bench") for path in (ROOT / folder).rglob("*.py"))
BANNED = {"utils", "util", "helpers", "common", "manager", "base", "misc"}
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.TryStar, ast.With, ast.AsyncWith, ast.Match)
# A `with` is scaffolding rather than a branch: nurseries and scopes sit inside each other by nature.
BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.TryStar, ast.Match)
Function = ast.FunctionDef | ast.AsyncFunctionDef

every_module = pytest.mark.parametrize("path", [*PACKAGE, *OTHERS], ids=lambda path: str(path.relative_to(ROOT)))
every_shipped = pytest.mark.parametrize("path", PACKAGE, ids=lambda path: str(path.relative_to(ROOT)))


def functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, Function):
            yield node


def where(path: Path, node: Function) -> str:
    return f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"


def ceiling(path: Path) -> int:
    if path.is_relative_to(ROOT / "tests"):
        return 500
    return 200 if path.is_relative_to(ROOT / "trioproxy" / "policy") else 400


def own(node: ast.AST) -> Iterator[ast.AST]:
    """The children of a node, without what functions inside it contain."""
    return (child for child in ast.iter_child_nodes(node) if not isinstance(child, (*Function.__args__, ast.ClassDef)))


def depth(node: ast.AST) -> int:
    """How deep branches sit inside each other; an `elif` is no deeper than its `if`."""
    deepest = 0
    for child in own(node):
        chained = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        deepest = max(deepest, depth(child) + (isinstance(child, BRANCHES) and not chained))
    return deepest


def blocks(node: ast.AST) -> int:
    """As `depth`, with every block that indents."""
    return max((blocks(child) + isinstance(child, BLOCKS) for child in own(node)), default=0)


@every_module
def test_module_stays_under_its_ceiling(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= ceiling(path), f"{path.name} has {lines} lines, {ceiling(path)} are allowed"


@every_module
def test_module_has_a_telling_name_and_says_what_it_is(path: Path) -> None:
    assert path.stem not in BANNED, f"{path.stem} names no concept"
    assert path.stem.startswith("__") or not path.stem.startswith("_"), "an application has no private modules"
    empty = path.stem == "__init__" and not path.read_text().strip()
    assert empty or ast.get_docstring(ast.parse(path.read_bytes())), "the module docstring is missing"


@every_module
def test_functions_stay_under_sixty_lines(path: Path) -> None:
    long = [where(path, node) for node in functions(path) if (node.end_lineno or 0) - node.lineno + 1 > 60]
    assert long == []


@every_shipped
def test_functions_take_at_most_five_parameters(path: Path) -> None:
    def count(node: Function) -> int:
        names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        return len([name for name in names if name not in {"self", "cls", "task_status"}])

    # What click calls takes its options as parameters; nobody else calls it.
    called = (node for node in functions(path) if not (path.parent.name == "cli" and node.decorator_list))
    assert [where(path, node) for node in called if count(node) > 5] == []


@every_shipped
def test_branches_nest_at_most_three_deep(path: Path) -> None:
    deep = [where(path, node) for node in functions(path) if depth(node) > 3 or blocks(node) > 5]
    assert deep == []


@every_shipped
def test_decisions_are_synchronous(path: Path) -> None:
    pure = {"policy", "codec"} & set(path.relative_to(ROOT).parts) or path.stem in {"errors", "journal"}
    waiting = [where(path, node) for node in functions(path) if isinstance(node, ast.AsyncFunctionDef)]
    assert not pure or waiting == []


def test_the_checks_see_what_they_are_for() -> None:
    """A ceiling that cannot fail proves nothing."""
    tree = ast.parse("def f():\n if a:\n  for b in c:\n   while d:\n    if e: pass\n elif g: pass")
    assert depth(tree.body[0]) == 4
    chain = ast.parse("def f():\n if a: pass\n elif b: pass\n elif c: pass\n elif d: pass")
    assert depth(chain.body[0]) == 1
    assert PACKAGE
    assert OTHERS
