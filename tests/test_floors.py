"""The three floors, and the one place of each heavy library, kept by walking the syntax trees."""

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
GROUND = ("selfevolve.answers", "selfevolve.sampling")
MIDDLE = ("aske", "validity", "novelty")
OURS = ("selfevolve", *MIDDLE)
HEAVY = (
    *("torch", "transformers", "trl", "peft", "accelerate", "datasets", "vllm", "sentence_transformers"),
    *("sklearn", "scipy", "sympy", "math_verify", "mathruler", "matplotlib", "numpy", "httpx"),
)


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def modules(root: Path) -> dict[str, Path]:
    """Return our modules' files by dotted name."""
    found = {}
    for package in OURS:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(name: str, path: Path) -> Iterator[tuple[str, int]]:
    """Yield every module that a file imports, anywhere in it, with its line; relative ones made absolute."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            # "from a import b" may import the module a.b
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__", "find_spec"):
                yield str(node.args[0].value), node.lineno


def floor_breaches(root: Path) -> list[str]:
    found = []
    for name, path in modules(root).items():
        ground = next((g for g in GROUND if within(name, g)), None)
        middle = next((m for m in MIDDLE if within(name, m)), None)
        if ground is None and middle is None:
            continue
        allowed = (ground,) if ground else (middle, *GROUND)
        for imported, line in imports(name, path):
            ours = any(within(imported, package) for package in OURS)
            if ours and not any(within(imported, package) for package in allowed):
                found.append(f"{path.relative_to(root)}:{line} imports {imported}")
    return found


def outside(root: Path, library: str, home: str | None) -> list[str]:
    return [
        f"{path.relative_to(root)}:{line} imports {imported}"
        for name, path in modules(root).items()
        for imported, line in imports(name, path)
        if within(imported, library) and name != home
    ]


def test_imports_point_down_only():
    assert floor_breaches(ROOT) == []


def test_trl_is_imported_in_one_place():
    assert outside(ROOT, "trl", "selfevolve.train.trl_backend") == []


@pytest.mark.parametrize(
    ("library", "home"),
    [("vllm", "selfevolve.sampling.vllm_sampler"), ("httpx", "selfevolve.sampling._http_client")],
)
def test_a_serving_library_is_imported_in_one_place(library, home):
    assert outside(ROOT, library, home) == []
    assert outside(ROOT, library, None) != []


@pytest.mark.parametrize("library", ["requests", "aiohttp", "openai"])
def test_other_clients_are_not_imported(library):
    assert outside(ROOT, library, None) == []


@pytest.mark.parametrize("library", ["torch", "transformers", "trl", "sympy", "math_verify", "scipy", "sklearn"])
def test_settings_and_command_line_name_no_heavy_library(library):
    light = ("selfevolve.config", "selfevolve.cli", "selfevolve.rundir", "selfevolve.errors", "selfevolve.estimate")
    for name, path in modules(ROOT).items():
        if any(within(name, package) for package in light):
            assert not [line for imported, line in imports(name, path) if within(imported, library)], name


@pytest.mark.parametrize(
    "module", ["selfevolve", "selfevolve.config", "selfevolve.cli", "selfevolve.rundir", "selfevolve.sampling"]
)
def test_import_loads_nothing_heavy(module):
    code = f"import sys, {module}; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_code_folder_is_a_package():
    """The installer takes packages only: a folder without __init__.py would be missing from an installed copy."""
    folders = {path.parent for path in modules(ROOT).values()}
    assert [str(f.relative_to(ROOT)) for f in folders if not (f / "__init__.py").is_file()] == []


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("name", "text", "breach"),
    [
        ("validity__vote", "import novelty", True),
        ("validity__vote", "from selfevolve import rewards", True),
        ("validity__vote", "import selfevolve.config as c", True),
        ("validity__vote", "def f():\n    from selfevolve.errors import UserError", True),
        ("validity__vote", "import importlib; importlib.import_module('novelty.judge')", True),
        ("validity__vote", "from selfevolve.answers import vote\nfrom selfevolve import sampling", False),
        ("validity__vote", "from .prompts import x\nfrom . import y\nimport re", False),
        ("selfevolve__answers__vote", "from ..sampling import Reply", True),
        ("selfevolve__answers__vote", "from .. import errors", True),
        ("selfevolve__answers__vote", "from .extract import boxed", False),
        ("selfevolve__assess", "import validity, novelty, selfevolve.answers", False),
        ("selfevolve__answersheet", "import validity", False),
    ],
)
def test_breaches_are_seen(tmp_path, name, text, breach):
    assert bool(floor_breaches(write(tmp_path, **{name: text}))) is breach


def test_a_second_home_of_a_library_is_seen(tmp_path):
    root = write(tmp_path, selfevolve__train__trl_backend="import trl", selfevolve__stages="from trl.x import y")
    assert outside(root, "trl", "selfevolve.train.trl_backend") == ["selfevolve/stages.py:1 imports trl.x.y"]
