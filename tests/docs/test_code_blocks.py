"""Run every Python block of README.md and docs/.

The blocks of one page run in order and share one namespace. Where a statement must fail,
one of its lines ends in `# raises: NameOfError`; the statements after it still run.
A block that must not run is not a `python` block: fence it as `text`. One with the title
"JAX says" must be, but for what `...` stands for, in what JAX raised or logged in the block before.
"""

import ast
import codeop
import contextlib
import io
import logging
import re
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sybil import Document, Example, Region
from sybil.parsers.markdown.lexers import FencedCodeBlockLexer

ROOT = Path(__file__).parents[2]
AT_NIGHT = ("property-tests.md", "slow-loop.md", "slow-compile.md", "many-devices.md", "loops.md")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RAISES = re.compile(r"# raises: ([\w.]+)\s*$")


PRINTED: list[str] = []  # what the last block printed, until a text was compared with it
# Where a page's own code is, which names it as it likes, and what no two runs have in common.
VARYING = re.compile(r"[\w./-]+\.(?:py|md)\b(?::\d+)?|\b0x[0-9a-f]+")


def compare_printed(example: Example) -> None:
    """See that the text is what the block above it printed; `...` leaves lines out."""
    printed = "".join(PRINTED)
    PRINTED.clear()
    if not printed:
        return
    got, shown = (" ".join(VARYING.sub("_", each).split()) for each in (printed, example.parsed))
    pattern = r".*".join(map(re.escape, shown.split("...")))
    assert re.fullmatch(pattern, got), f"{example.path}:{example.line}: it printed\n{printed}"


SAID: list[str] = []  # what JAX raised and logged in the last block
RAISED: list[tuple[int, BaseException]] = []  # with the line


class Listener(logging.Handler):
    """Adds what JAX logs to what it said."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the text of a record."""
        SAID.append(record.getMessage())


def compare_said(example: Example) -> None:
    """See that the parts of the text are in what JAX said, in order, however lines are broken."""
    rest = " ".join("\n".join(SAID).split())
    for part in example.parsed.split("..."):
        wanted = " ".join(part.split())
        _, found, rest = rest.partition(wanted)
        assert found == wanted, f"{example.path}:{example.line}: {wanted!r} is not in {SAID}"


def texts_of(error: BaseException | None) -> Iterator[str]:
    """Yield the text of an error after those that led to it, as a traceback shows them."""
    if error is not None:
        yield from texts_of(error.__cause__)
        yield f"{type(error).__name__}: {error}"


def run_block(example: Example) -> None:
    """Run one block, statement by statement, numbered as in its page."""
    SAID.clear()
    PRINTED.clear()
    # Blank lines in front make tracebacks and `inspect.getsource` show the page itself.
    before = "\n" * (example.line + example.parsed.line_offset)
    lines = (before + example.parsed).split("\n")
    compiler = codeop.Compile()  # remembers `from __future__` for later statements
    for statement in ast.parse("\n".join(lines), example.path).body:
        written = lines[statement.lineno - 1 : statement.end_lineno]
        wanted = [found[1] for line in written if (found := RAISES.search(line))]
        code = compiler(ast.Module([statement], []), example.path, "exec")
        try:
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(code, example.namespace)  # noqa: S102  # it is what this file is for
            PRINTED.append(output.getvalue())
        except Exception as error:
            if not wanted or wanted[0] not in {kind.__name__ for kind in type(error).__mro__}:
                raise
            SAID.extend(texts_of(error))
            RAISED.append((statement.lineno, error.with_traceback(None)))
            PRINTED.clear()  # the text below is that of the error
        else:
            assert not wanted, f"{example.path}:{statement.lineno} did not raise {wanted[0]}"


def blocks(fence: str, evaluate: Callable[[Example], None]) -> Callable[[Document], Any]:
    """Return what finds blocks; sybil's own parser would pass over `python title="..."`."""
    lexer = FencedCodeBlockLexer(fence, mapping={"source": "source"})

    def find(document: Document) -> Iterator[Region]:
        for region in lexer(document):
            region.parsed, region.evaluator = region.lexemes["source"], evaluate
            yield region

    return find


python_blocks = blocks(r"py(thon)?(?![\w-])[^\n]*", run_block)
said_blocks = blocks('text title="JAX says"', compare_said)
# One that follows a block which printed something is its output.
printed_blocks = blocks("text", compare_printed)


def run_page(path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a page's blocks and return how many there were."""
    document = Document.parse(str(path), python_blocks, said_blocks, printed_blocks)
    listener = Listener()
    logging.getLogger("jax").addHandler(listener)
    monkeypatch.setattr(logging.getLogger("jax"), "propagate", False)
    # A real module, so that classes of the page can be pickled and annotations resolved.
    module = types.ModuleType(f"page_{path.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    document.namespace = module.__dict__
    try:
        return sum(example.evaluate() is None for example in document)
    finally:
        logging.getLogger("jax").removeHandler(listener)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        # The page on property tests runs them all: half a minute. The script of the slow loop
        # is what test_tutorials.py runs.
        pytest.param(page, id=name, marks=[pytest.mark.nightly] * name.endswith(AT_NIGHT))
        for page in PAGES
        for name in [str(page.relative_to(ROOT))]
    ],
)
def test_page_runs(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Python block of the page runs, and fails only where it says so."""
    run_page(page, monkeypatch)


@pytest.mark.slow
def test_each_error_of_jax_leads_to_its_section(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `leafwise explain` names of an error is the section that it is raised in."""
    from tests.kit.inside import SECTIONS, section_for  # which need extras

    RAISED.clear()
    page = ROOT / "docs" / "how-to" / "troubleshooting.md"
    run_page(page, monkeypatch)
    lines = page.read_text(encoding="utf-8").splitlines()
    links = [(number, section_for(error)) for number, error in RAISED]
    for number, link in links:
        heading = next(line[4:] for line in lines[number::-1] if line.startswith("### "))
        section = re.sub(r"[^\w-]+", "-", re.sub(r"[^\w\s-]", "", heading)).lower()
        assert link.endswith(f"/how-to/troubleshooting/#{section}")
    assert {link.rpartition("#")[2] for _, link in links} == set(SECTIONS)


@pytest.mark.parametrize(
    ("block", "failure"),
    [
        (
            "```python\n1 / 0  # raises: ArithmeticError\n```\n"
            '```text title="JAX says"\ndivision ... one\n```',
            AssertionError,
        ),
        ("```python\nprint(1)\n```\n\n```text\n2\n```", AssertionError),
        ("```python\n1 / 0\n```", ZeroDivisionError),
        ("```python\n1 / 0  # raises: KeyError\n```", ZeroDivisionError),
        ("```python\n1 + 1  # raises: ZeroDivisionError\n```", AssertionError),
        ("```python\n1 / 0  # raises: ArithmeticError\nassert False\n```", AssertionError),
    ],
)
def test_failures_are_seen(
    block: str, failure: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception not announced, another than announced, or none at all fails the page."""
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{block}\n")
    with pytest.raises(failure):
        run_page(page, monkeypatch)
