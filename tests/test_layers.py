"""Imports point down the layers, and never back (docs/design/architecture.md)."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "systolic"

# A package may import those on lines below its own, and itself.
LAYERS = [
    {"__main__"},
    {"cli"},
    {"as_lightning"},
    {"pytorch"},
    {"tuner"},
    {"trainer"},
    {"preflight"},
    {"demos"},
    {
        "plugins",
        "callbacks",
        "loggers",
        "checkpoint",
        "metrics",
        "data",
        "optim",
        "profilers",
        "diagnostics",
        "doctor",
        "core",
        "precision",
        "strategies",
    },
    {"compiler"},
    {"runtime"},
    {"hardware"},
    {"sharding"},
    {"distributed"},
    {"compat"},
    {"utilities"},
    {"exceptions", "_collector"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
MODULES = sorted(p for p in SOURCE.rglob("*.py") if p != SOURCE / "__init__.py")


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported_packages(path: Path) -> set[str]:
    """The top-level packages of systolic that a module imports, at any depth of nesting."""
    package = ["systolic", *path.relative_to(SOURCE).parts[:-1]]
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            full = [*base, *(node.module.split(".") if node.module else [])]
            names = [[*full, alias.name] for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        else:
            continue
        found |= {name[1] for name in names if name[0] == "systolic" and len(name) > 1}
    return {name for name in found if name in RANK}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_down(path: Path) -> None:
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert own in RANK, f"{own} has no place in the layers"
    upwards = {name for name in imported_packages(path) if name != own and RANK[name] < RANK[own]}
    assert not upwards, f"{path.relative_to(SOURCE)} imports {sorted(upwards)}, which stand above {own}"


def test_compiler_does_not_know_the_trainer() -> None:
    for path in (SOURCE / "compiler").rglob("*.py"):
        assert not imported_packages(path) & {"trainer", "callbacks", "core", "data"}


def test_files_stay_short() -> None:
    sizes = {str(p.relative_to(SOURCE)): p.read_text().count("\n") for p in MODULES}
    assert {name: n for name, n in sizes.items() if n > 500} == {}
    assert sorted(sizes.values())[len(sizes) // 2] <= 150


SHORT = {
    "its path is one of Lightning's, or Python's": {
        "__main__.py",
        "callbacks/checkpoint.py",
        "callbacks/rich_model_summary.py",
        "plugins/io.py",
        "trainer/states.py",
        "utilities/enums.py",
        "utilities/exceptions.py",
    },
    "two or more files share it, and none of them may import the others": {
        "callbacks/_console.py",
        "callbacks/_errors.py",
        "callbacks/progress/_ticker.py",
        "cli/_command.py",
        "compiler/_users.py",
        "compiler/driver/_capture_lock.py",
        "compiler/lowering/_array_math.py",
        "core/_numbers.py",
        "data/_errors.py",
        "distributed/_signals.py",
        "doctor/_finding.py",
        "trainer/_symbols.py",
        "utilities/_entries.py",
        "utilities/_installed.py",
        "utilities/_modes.py",
        "utilities/_out_of_memory.py",
        "utilities/_overrides.py",
    },
    "another concept than that of the file that uses it": {
        "compiler/capture/_inference_mode.py",
        "compiler/driver/_entry.py",
        "pytorch/cli/_help.py",
        "trainer/_installed_callbacks.py",
        "trainer/_overfit.py",
    },
    "a list that grows by a line with each of its kind": {"compiler/passes/_bounded_rules.py"},
}
"""Files under 30 lines, by what they are for."""


def test_short_files_have_a_reason() -> None:
    short = {str(p.relative_to(SOURCE)) for p in MODULES if p.name != "__init__.py" and p.read_text().count("\n") < 30}
    assert short == set().union(*SHORT.values())


DOORS = ("_torch_internals.py", "_jax_internals.py")


def is_private(module: str, names: list[str]) -> bool:
    """Whether an import is of names that PyTorch or JAX do not promise; Pallas is imported where kernels are written."""
    library, *inner = module.split(".")
    hidden = any(part.startswith("_") or part in ("experimental", "extend") for part in inner)
    return (
        library in ("torch", "jax", "jaxlib")
        and "pallas" not in (*inner, *names)
        and (hidden or any(n.startswith("_") for n in names))
    )


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_the_insides_of_pytorch_and_jax_have_one_door(path: Path) -> None:
    if path.name in DOORS:
        return
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            assert not is_private(node.module, [alias.name for alias in node.names]), ast.unparse(node)
        elif isinstance(node, ast.Import):
            assert not any(is_private(alias.name, []) for alias in node.names), ast.unparse(node)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("torch", "jax"):
            assert not node.attr.startswith("_") or node.attr.startswith("__"), f"{path.name}:{node.lineno} {ast.unparse(node)}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_only_the_process_layer_knows_the_processes(path: Path) -> None:
    if path.is_relative_to(SOURCE / "distributed") or path.name in DOORS:
        return
    text = path.read_text()
    for name in ("jax.process_", "jax.distributed", "multihost_utils", "_src.distributed"):
        assert name not in text, f"{path.relative_to(SOURCE)} asks JAX about processes itself: {name}"


FACES = ("runtime", "hardware", "sharding", "distributed", "compiler", "compat", "preflight", "doctor")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_packages_import_each_other_relatively_and_by_their_faces(path: Path) -> None:
    for node in ast.walk(parsed(path)):
        if not isinstance(node, ast.ImportFrom):
            continue
        assert node.level or (node.module or "").split(".")[0] != "systolic", f"{path.name}: {ast.unparse(node)} is absolute"
        if node.level == len(path.relative_to(SOURCE).parts):
            room, *inner = (node.module or "").split(".")
            assert not inner or room not in FACES, f"{path.relative_to(SOURCE)} imports {node.module} past its face"


COMPILER = SOURCE / "compiler"
# Rooms of the compiler: each may import those behind it, by their faces; and the files beside the rooms.
ROOMS = ["driver", "capture", "passes", "kernels", "lowering"]
IN_ROOMS = sorted(path for room in ROOMS for path in (COMPILER / room).rglob("*.py"))


@pytest.mark.parametrize("path", IN_ROOMS, ids=lambda p: str(p.relative_to(COMPILER)))
def test_rooms_of_the_compiler_import_downwards_by_the_face(path: Path) -> None:
    own = ROOMS.index(path.relative_to(COMPILER).parts[0])
    for node in ast.walk(parsed(path)):
        if not isinstance(node, ast.ImportFrom) or node.level != 2 or node.module is None:
            continue
        room, *inner = node.module.split(".")
        if room in ROOMS:
            assert ROOMS.index(room) > own, f"{path.relative_to(COMPILER)} imports {node.module}, which stands above it"
            # kernels are lowerings themselves, and use what lowerings use
            assert not inner or room == "lowering", f"{path.relative_to(COMPILER)} imports {node.module} past its face"


DERIVED_FROM = ("callback", "finetuning", "prediction_writer")
"""Files of classes that users derive from: their overrides say `trainer: L.Trainer`, which narrows any type but Any."""


def test_no_function_takes_a_trainer_of_no_type() -> None:
    untyped = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in MODULES
        if path.parent.name not in ("callbacks", "core") or path.stem not in (*DERIVED_FROM, "_module")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.arg) and node.arg in ("trainer", "run")
        if node.annotation is None or ast.unparse(node.annotation) == "Any"
    ]
    assert untyped == []


def test_parameters_of_any_type_stay_few() -> None:
    """Users' values whose attributes are read, and hooks that users override with types of their own; 5.2% in November 2026."""
    annotations = [
        ast.unparse(parameter.annotation)
        for path in MODULES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for parameter in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        if parameter.annotation is not None
    ]
    assert len(annotations) > 3000
    assert annotations.count("Any") / len(annotations) < 0.06


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_nobody_outside_touches_private_attributes_of_the_trainer(path: Path) -> None:
    if path.is_relative_to(SOURCE / "trainer"):
        return
    reaches = [
        f"{path.relative_to(SOURCE)}:{node.lineno} {ast.unparse(node)}"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
        if ast.unparse(node.value).rpartition(".")[2] in ("trainer", "_trainer")
    ]
    assert reaches == []


def imported_modules(path: Path) -> set[Path]:
    """The files of systolic that a module names in imports of any kind, those for type checkers included.

    A name that a package's face passes on counts as an import of the face, except where the module lies in that package:
    then of the file that the name is taken from.
    """
    package = path.parent
    found: set[Path] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom):
            base = package
            for _ in range(node.level - 1):
                base = base.parent
            if not node.level:
                if (node.module or "").split(".")[0] != "systolic":
                    continue
                base = SOURCE.parent
            base = base.joinpath(*(node.module or "").split(".")) if node.module else base
            found |= {_file(base / alias.name) or _file(base) or base for alias in node.names}
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            found |= {_file(SOURCE.parent.joinpath(*name)) or path for name in names if name[0] == "systolic"}
    return {one for one in found if one.suffix == ".py"} - {path}


def _file(module: Path) -> Path | None:
    """The file of a module or of a package's face."""
    if module.with_suffix(".py").is_file():
        return module.with_suffix(".py")
    return module / "__init__.py" if (module / "__init__.py").is_file() else None


def circles(graph: dict[Path, set[Path]]) -> list[list[str]]:
    """Groups of modules each of which imports itself by way of the others."""
    reached: dict[Path, set[Path]] = {}
    for start in graph:
        seen: set[Path] = set()
        waiting = [*graph[start]]
        while waiting:
            one = waiting.pop()
            if one not in seen:
                seen.add(one)
                waiting += graph.get(one, ())
        reached[start] = seen
    groups = {frozenset(b for b in reached[a] | {a} if a in reached.get(b, ())) for a in graph if a in reached[a]}
    return sorted(sorted(str(path.relative_to(SOURCE)) for path in group) for group in groups)


PACKAGES = sorted({path.parent for path in MODULES if path.parent != SOURCE})
# What a run is made of gets the run, and a run is of a Trainer: their parts name these two types, for type checkers only.
WHOLES = {SOURCE / "trainer" / "_run.py", SOURCE / "trainer" / "_trainer.py"}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_modules_of_a_package_import_in_no_circle(package: Path) -> None:
    inside = {path for path in MODULES if path.parent == package}
    graph = {path: imported_modules(path) & inside for path in inside}
    for path in inside:
        graph[path] -= WHOLES & for_type_checkers(path)
    assert circles(graph) == []


def for_type_checkers(path: Path) -> set[Path]:
    """Modules beside a module that it imports below `if TYPE_CHECKING` only."""
    blocks = [n for n in ast.walk(parsed(path)) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    imports = [n for block in blocks for n in ast.walk(block) if isinstance(n, ast.ImportFrom) and n.level == 1 and n.module]
    return {path.parent / f"{node.module}.py" for node in imports}


def test_a_circle_that_type_checking_keeps_alive_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.SOURCE", tmp_path)
    (tmp_path / "_a.py").write_text("from ._b import x")
    (tmp_path / "_b.py").write_text("if TYPE_CHECKING:\n    from ._a import y")
    (tmp_path / "_c.py").write_text("from ._a import y\nfrom . import _b")
    modules = {tmp_path / name for name in ("_a.py", "_b.py", "_c.py")}
    assert circles({path: imported_modules(path) & modules for path in modules}) == [["_a.py", "_b.py"]]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_docstrings_begin_with_the_thing(path: Path) -> None:
    questions: list[str] = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            if text.split(maxsplit=1)[:1] in (["What"], ["Where"], ["Which"]):
                questions.append(text.splitlines()[0])
    assert questions == []
