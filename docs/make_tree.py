"""Write the tree of README.md: a line a file, taken from its docstring.

``python docs/make_tree.py`` rewrites the tree in README.md; with ``--check`` it only says whether it is in step.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("selfevolve", "aske", "validity", "novelty")
LEAVES = {  # folders whose files are not listed
    "assets": "the pages' CSS and JavaScript",
    "backbones": "weights, model cards and training logs",
    "trunk": "the common trunk, to tune a backbone of your own from",
}
OTHERS = {
    "initialisation.jsonl": "the initialisation set that ships with the testbed",
    "standard.yaml": "texts for real models",
    "testbed.yaml": "control tokens of the testbed",
}
TAIL = {
    "aske_v1.py": "the module by which verifiers finds the Ask-E environment",
    "recipes/": "testbed/, qwen3-4b-base/, octothinker-3b/, aske/, accelerate/, and a real model on a CPU",
    "tests/": "one folder a package, cases/, benchmarks/",
    "docs/": "index.md is the entrance; design/ and log.md",
}
WIDTH = 34  # where the notes begin


def note(path: Path) -> str:
    """Return the first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")[0].replace("\n", " ").split(". ")[0].rstrip(".")


def line(depth: int, name: str, about: str) -> str:
    """Return one line of the tree."""
    return (("  " * depth + name).ljust(WIDTH) + about)[:150].rstrip()


def walk(folder: Path, depth: int) -> list[str]:
    """Return the lines of a folder: files first, then folders."""
    lines = []
    for path in sorted(folder.iterdir(), key=lambda p: (p.is_dir(), p.name)):
        if path.name.startswith(("__pycache__", ".")):
            continue
        if path.is_dir():
            init = path / "__init__.py"
            about = LEAVES.get(path.name) or (note(init) if init.is_file() else "")
            lines.append(line(depth, path.name + "/", about))
            lines += [] if path.name in LEAVES else walk(path, depth + 1)
        elif path.suffix == ".py" and not path.name.startswith("__"):
            lines.append(line(depth, path.name, note(path)))
        elif path.name in OTHERS:
            lines.append(line(depth, path.name, OTHERS[path.name]))
    return lines


def tree() -> str:
    """Return the tree."""
    lines = []
    for package in PACKAGES:
        lines += [line(0, package + "/", note(ROOT / package / "__init__.py")), *walk(ROOT / package, 1)]
    return "\n".join([*lines, *(line(0, name, about) for name, about in TAIL.items())])


def with_tree(readme: str) -> str:
    """Return the README with its tree brought in step."""
    return re.sub(r"(## The tree\n\n)```\n.*?\n```", lambda found: f"{found[1]}```\n{tree()}\n```", readme, flags=re.S)


def main() -> int:
    """Rewrite or check the tree."""
    path = ROOT / "README.md"
    before = path.read_text(encoding="utf-8")
    after = with_tree(before)
    if "--check" in sys.argv[1:]:
        print("in step" if before == after else "README.md's tree is out of step: run python docs/make_tree.py")
        return int(before != after)
    path.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
