"""Check the types of every Python block of README.md and docs/: `nox -s types` runs this.

The blocks of one page are one module, on the lines where they stand in the page. A statement
marked `# raises:` may be a type error too, and so may a block below `<!-- types: REASON -->`;
nothing else may. README.md and the tutorial pass both checkers' strict rules, less those of pyright
that JAX itself does not pass; on other pages a function may be without annotations.
"""

import ast
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sybil import Document
from test_code_blocks import PAGES, RAISES, ROOT, python_blocks

PYRIGHT = {
    "typeCheckingMode": "strict",
    # What JAX leaves unannotated.
    **dict.fromkeys(
        (
            "reportUnknownArgumentType",
            "reportUnknownLambdaType",
            "reportUnknownMemberType",
            "reportUnknownParameterType",
            "reportUnknownVariableType",
        ),
        False,
    ),
    "reportMissingTypeStubs": False,  # chex and others have none
    "reportDuplicateImport": False,  # a block may repeat one for those who start there
    "reportUnusedExpression": False,  # a page may show a value
}
UNTYPED = {"import-untyped"}  # the same, for mypy
UNANNOTATED = {
    "no-any-return",
    "no-untyped-call",
    "no-untyped-def",
    "untyped-decorator",
    "var-annotated",
    "reportMissingParameterType",
}
EXEMPT = re.compile(r"<!-- types: .+ -->\s*\Z")
OF_JAX = "PyTreeDef?"  # a class that mypy cannot find in `jax.tree_util`
PLANTED = """
```python
import leafwise as lw


@lw.pytree
class Planted:
    a: int


Planted("refused")  # raises: StaticFieldError
Planted("found")
```
"""

Finding = tuple[str, int, str, str]  # module, line, rule, message


def module_of(text: str, path: Path) -> tuple[str, set[int]]:
    """Return a page's blocks, each on its own lines, and the lines that may be in error."""
    lines = [""] * text.count("\n")
    exempt: set[int] = set()
    for block in python_blocks(Document(text, str(path))):
        first = text.count("\n", 0, block.start) + 1
        written = block.parsed.rstrip("\n").split("\n")
        lines[first : first + len(written)] = written
        if EXEMPT.search(text, 0, block.start):
            exempt.update(range(first + 1, first + 1 + len(written)))
    source = "\n".join(lines) + "\n" if any(lines) else ""
    for statement in ast.parse(source).body:
        span = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        if any(RAISES.search(lines[line - 1]) for line in span):
            exempt.update(span)
    return source, exempt


def run(command: list[str], folder: Path) -> str:
    """Return what a type checker prints."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode > 1:
        sys.exit(done.stdout + done.stderr)
    return done.stdout


def run_mypy(folder: Path) -> Iterator[Finding]:
    """Yield what mypy says of the modules, with the options, and so the cache, of `mypy src`."""
    files = map(str, folder.glob("*.py"))
    done = run([sys.executable, "-m", "mypy", "--output=json", *files], ROOT)
    for found in map(json.loads, done.splitlines()):
        if found["severity"] == "error":
            yield Path(found["file"]).stem, found["line"], found["code"], found["message"]


def run_pyright(folder: Path) -> Iterator[Finding]:
    """Yield what pyright, strict, says of the modules."""
    (folder / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    command = ["pyright", "--pythonpath", sys.executable, "--outputjson"]
    for found in json.loads(run(command, folder))["generalDiagnostics"]:
        line = found["range"]["start"]["line"] + 1
        yield Path(found["file"]).stem, line, found.get("rule", "syntax"), found["message"]


def main() -> None:
    """Print each type error with its page and line, and fail if there is one."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        texts = {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in PAGES}
        texts[Path("planted.md")] = PLANTED
        pages: dict[str, Path] = {}
        allowed: dict[str, set[int]] = {}
        problems: list[str] = []
        for path, text in texts.items():
            source, exempt = module_of(text, path)
            if source:
                name = "_".join(path.with_suffix("").parts).replace("-", "_").lower()
                (folder / f"{name}.py").write_text(source, encoding="utf-8")
                pages[name], allowed[name] = path, exempt
            if "type: ignore" in source or "pyright: ignore" in source:
                problems.append(f"{path}: what readers copy must not silence their type checker")
        with ThreadPoolExecutor() as pool:
            found = pool.map(list, (run_mypy(folder), run_pyright(folder)))
    for name, line, rule, message in sorted({each for tool in found for each in tool}):
        strict = pages[name].parts[:2] in {("README.md",), ("docs", "tutorial")}
        relaxed = UNTYPED if strict else UNTYPED | UNANNOTATED
        if line in allowed[name] or rule in relaxed or OF_JAX in message:
            continue
        problems.append(f"{pages[name]}:{line}: {message.splitlines()[0]} [{rule}]")
    planted = [each for each in problems if each.startswith("planted.md:12:")]
    if len(planted) != 2:
        sys.exit(f"each checker must find the planted error, and found: {planted}")
    if problems := [each for each in problems if each not in planted]:
        sys.exit("\n".join(problems))
    print(f"{len(pages) - 1} pages, no type error")


if __name__ == "__main__":
    main()
