"""The README says what is so, works on PyPI, and what a release is made of fits together."""

import ast
import dataclasses
import re
import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chex
import equinox
import jax
import jax.numpy as jnp
import jax_dataclasses
import pytest
from flax import struct

import leafwise
import leafwise as lw
from leafwise import errors
from leafwise.testing import Law

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

runs: list[object] = []


def node(
    decorate: Callable[[Any], Any] = lambda cls: cls,
    base: type = object,
    static: Any = Any,
    **fields: Any,
) -> Any:
    """Return a class with a dynamic and a static field, as a library declares it."""
    body = {
        "__annotations__": {"w": Any, "n": static},
        "__module__": __name__,
        "__post_init__": lambda self: runs.append(self),
        **fields,
    }
    return decorate(type("Node", (base,), body))


def of_jax(cls: Any) -> Any:
    return jax.tree_util.register_dataclass(dataclasses.dataclass(cls))


STATIC: Any = {"metadata": {"static": True}}
LIBRARIES: dict[str, Callable[[], Any]] = {
    "`register_dataclass`": lambda: node(of_jax, n=dataclasses.field(**STATIC)),
    "flax.struct": lambda: node(struct.dataclass, n=struct.field(pytree_node=False)),
    # It knows no static fields.
    "chex": lambda: node(chex.dataclass, n=dataclasses.field(**STATIC)),
    "equinox": lambda: node(base=equinox.Module, n=equinox.field(static=True)),
    "jax_dataclasses": lambda: node(
        jax_dataclasses.pytree_dataclass, static=jax_dataclasses.Static[Any]
    ),
    "leafwise": lambda: node(lw.pytree, static=lw.Static[Any]),
}

Declare = Callable[[], Any]


def raises(act: Callable[[], object]) -> bool:
    """Whether this raises; a warning is not enough."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            act()
        except Exception:  # noqa: BLE001  # each library has its own
            return True
    return False


def has_static_fields(declare: Declare) -> bool:
    """Whether a field can be no leaf."""
    return len(jax.tree.leaves(declare()(w=1, n=2))) == 1


def distinguishes_true(declare: Declare) -> bool:
    """Whether a function is traced for `True` after it was for `1`."""
    cls, traced = declare(), []

    @jax.jit
    def use(node: Any) -> Any:
        traced.append(node.n)
        return node.w

    for static in (1, True):
        use(cls(w=1.0, n=static))
    return len(traced) == 2


def refuses_at_construction(declare: Declare) -> bool:
    """Whether a static field refuses each of three values that it cannot hold."""
    cls = declare()
    outside = [raises(lambda value=value: cls(w=1, n=value)) for value in ([1], jnp.ones(2))]
    return all(outside) and raises(lambda: jax.jit(lambda x: cls(w=1, n=x).w)(1.0))


def is_frozen(declare: Declare) -> bool:
    """Whether an assignment to a field raises."""
    return raises(lambda: setattr(declare()(w=1, n=2), "w", 3))


def keeps_classes_apart(declare: Declare) -> bool:
    """Whether `cond` refuses branches that return two classes of the same fields."""
    one, other = declare()(w=1, n=2), declare()(w=1, n=2)
    return raises(lambda: jax.lax.cond(True, lambda: one, lambda: other))


def constructs_once(declare: Declare) -> bool:
    """Whether `__post_init__` does not run when JAX rebuilds an instance."""
    node = declare()(w=1, n=2)
    runs.clear()
    jax.tree.map(lambda leaf: leaf, node)
    return not runs


def is_explained(declare: Declare) -> bool:
    """Whether leafwise names the field that made a function retrace."""
    cls = declare()
    use = lw.jit(lambda node: node.w)
    use(cls(w=1, n=2))
    (reason,) = use.explain(cls(w=1.5, n=2)).reasons
    return bool(re.search(r"\bw\b", str(reason.path)))


CLAIMS: dict[str, Callable[[Declare], bool]] = {
    "static fields": has_static_fields,
    "`1` and `True` in one are two programs": distinguishes_true,
    "a list, an array or a tracer in one raises at construction": refuses_at_construction,
    "instances cannot be changed": is_frozen,
    "`lax.cond` refuses branches of two classes": keeps_classes_apart,
    "`__post_init__` runs only at construction": constructs_once,
    "`leafwise explain` names the field that retraced": is_explained,
}


def row(claim: str) -> str:
    """Return a row of the table, tried now."""
    cells = [claim]
    for declare in LIBRARIES.values():
        about_statics = " in one " in claim and not has_static_fields(declare)
        cells.append("" if about_statics else "yes" if CLAIMS[claim](declare) else "no")
    return f"| {' | '.join(cells)} |"


def test_the_table_holds() -> None:
    """Each cell says what the installed library does, and no row is untried."""
    header = f"| | {' | '.join(LIBRARIES)} |"
    table = README[README.index(header) :].partition("\n\n")[0].splitlines()
    assert table[2:] == [row(claim) for claim in CLAIMS]


@pytest.mark.slow
def test_the_tests_that_it_shows_pass() -> None:
    """What readers would copy into their tests passes."""
    namespace: dict[str, Any] = {"__name__": __name__}
    for block in re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL):
        exec(re.sub(r"(?m)^.*# raises: .*$", "", block), namespace)  # noqa: S102  # our own
    tests = [value for name, value in namespace.items() if name.startswith("test_")]
    assert len(tests) == 1
    assert f" {len(Law)} laws, " in README
    tests[0]()


def test_links_work_on_pypi() -> None:
    """Every link and picture of the published README leads to the project's sites."""
    hook = PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    assert hook["fragments"] == [{"path": "README.md"}]
    text = README
    for each in hook["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(targets) > 10
    urls = PYPROJECT["project"]["urls"]
    ours = (urls["Documentation"], urls["Repository"])
    assert [target for target in targets if not target.startswith(ours)] == []
    assert not re.search(r"\.md\b", "".join(each for each in targets if "readthedocs" in each))


def test_links_lead_to_files() -> None:
    """Every link of the README leads to a file of the project, and one to its site."""
    targets = re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", README)
    site = PYPROJECT["project"]["urls"]["Documentation"]
    assert [target for target in targets if not (ROOT / target).is_file()] == [site]


def test_the_seconds_are_those_that_were_measured() -> None:
    """What was won in the official examples is what the page on them says."""
    page = (ROOT / "docs" / "explanation" / "wild.md").read_text(encoding="utf-8")
    seconds = re.findall(r"[\d.]+ s\b|\d+ retraces", README.partition("## Install")[0])
    assert len(seconds) >= 6
    assert [each for each in seconds if each not in page] == []


def test_the_badges_are_true() -> None:
    """The badges say what pyproject.toml and the page on compatibility say."""
    project = PYPROJECT["project"]
    kinds = [each.split(" :: ")[-1] for each in project["classifiers"] if "Python :: 3." in each]
    page = (ROOT / "docs" / "reference" / "ecosystem.md").read_text(encoding="utf-8")
    oldest, newest = re.findall(r"with JAX (\d+\.\d+)", page, re.IGNORECASE)
    wanted = {
        "python": f"Python: {' | '.join(kinds)}",
        "jax": f"JAX: {oldest} to {newest}",
        "licence": f"licence: {project['license']}",
    }
    for name, text in wanted.items():
        badge = (ROOT / "docs" / "images" / f"badge-{name}.svg").read_text(encoding="utf-8")
        assert f"<title>{text}</title>" in badge
        assert f"docs/images/badge-{name}.svg" in README
    assert len(README.splitlines()) <= 140


def test_the_extras_are_listed() -> None:
    """The table of extras has each of them."""
    table = README.partition("| with |")[2].partition("\n\n")[0]
    named = re.findall(r"leafwise\[(\w+)\]|`(\w+)`", table)
    assert set(PYPROJECT["project"]["optional-dependencies"]) <= {a or b for a, b in named}


def test_the_commands_of_a_checkout() -> None:
    """The README has the command that `.ci/run` calls, and the one for the demo."""
    command = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()[-1]
    assert f"```sh\n{command}\n```" in README
    assert f"```sh\n{command.replace('-s tests', '-s demo')}\n```" in README


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
        for line in re.findall(r"(?:nox -s |sessions: )([a-z_ ]+)", path.read_text())
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
    """All lead where the wheel's metadata lead, errors and the site included; so do versions."""
    urls = PROJECT["urls"]
    assert all(url.startswith((urls["Repository"], urls["Documentation"])) for url in urls.values())
    assert leafwise.__version__ == PROJECT["version"]
    site = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    assert site["site_url"] == errors.DOCS == urls["Documentation"]
    assert site["repo_url"] == urls["Repository"]
    for name in ("CITATION.cff", ".github/ISSUE_TEMPLATE/config.yml"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert urls["Documentation"] in text
        assert urls["Repository"] in text
