"""What a release is made of fits together: fragments, sessions, versions, addresses."""

import ast
import re
import tomllib
from pathlib import Path

import leafwise

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]


def test_fragments_are_well_named() -> None:
    """towncrier finds each fragment: `<topic>.<kind>.md`, with a text that stands for itself."""
    kinds = [each["directory"] for each in PYPROJECT["tool"]["towncrier"]["type"]]
    named = re.compile(rf"[a-z0-9-]+\.({'|'.join(kinds)})\.md")
    fragments = {*(ROOT / "changelog.d").glob("*.md")} - {ROOT / "changelog.d" / "README.md"}
    wrong = [path.name for path in fragments if not named.fullmatch(path.name)]
    assert not wrong
    texts = {path.name: path.read_text(encoding="utf-8") for path in fragments}
    assert [name for name, text in texts.items() if not text.strip() or text[0] in "#-* "] == []
    readme = (ROOT / "changelog.d" / "README.md").read_text(encoding="utf-8")
    assert [kind for kind in kinds if f"`{kind}`" not in readme] == []


def test_sessions_that_are_named_exist() -> None:
    """Workflows name sessions of noxfile.py, and CONTRIBUTING.md names all of them."""
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    sessions = {
        each.name
        for each in tree.body
        if isinstance(each, ast.FunctionDef)
        and any("nox.session" in ast.unparse(decorator) for decorator in each.decorator_list)
    }
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == sessions
    read = [*(ROOT / ".github").rglob("*.yml"), ROOT / ".readthedocs.yaml"]
    named = {
        word
        for path in read
        for line in re.findall(
            r"(?:nox -s |sessions: )([a-z_ ]+)", path.read_text(encoding="utf-8")
        )
        for word in line.split()
    }
    assert named
    assert named <= sessions


def test_supported_versions_are_said_once() -> None:
    """Classifiers, workflows and the page on support name the same versions."""
    pythons = re.findall(r":: (3\.\d+)\n", "\n".join(PROJECT["classifiers"]) + "\n")
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    for name in ("tests", "nightly"):
        workflow = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8")
        assert re.findall(r"^ +(3\.\d+)$", workflow, re.MULTILINE) == pythons
    page = (ROOT / "docs" / "reference" / "support.md").read_text(encoding="utf-8").lower()
    floors = dict(each.split(">=") for each in PROJECT["dependencies"] if "jaxlib" not in each)
    floors["python"] = pythons[0]
    assert [name for name, floor in floors.items() if f"\n| {name} | {floor} |" not in page] == []


def test_addresses_agree() -> None:
    """The citation and the forms lead where the wheel's metadata lead; versions agree, too."""
    urls = PROJECT["urls"]
    assert all(
        each.startswith((urls["Repository"], urls["Documentation"])) for each in urls.values()
    )
    assert leafwise.__version__ == PROJECT["version"]
    for name in ("CITATION.cff", ".github/ISSUE_TEMPLATE/config.yml"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert urls["Documentation"] in text
        assert urls["Repository"] in text
