"""What `nox -s docs` builds can be read: it runs these tests on site/."""

import ast
import itertools
import re
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS, SITE = ROOT / "docs", ROOT / "site"
VOID = {"br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}


class Page(HTMLParser):
    """A built page: its tags, and the text of each kind of element."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.name = path.relative_to(SITE).as_posix()
        self.ids: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.headings: dict[str, str] = {}
        self.with_example: set[str] = set()
        self.prose: list[str] = []
        self.bold: list[str] = []
        self.inline: list[str] = []
        self._open: list[tuple[str, dict[str, str]]] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag and its attributes."""
        given = {name: value or "" for name, value in attrs}
        self.tags.append((tag, given))
        if "id" in given:
            self.ids.append(given["id"])
            if re.fullmatch("h[1-6]", tag):
                self.headings[given["id"]] = ""
        if "language-pycon" in given.get("class", ""):
            self.with_example.update(list(self.headings)[-1:])
        if tag not in VOID:
            self._open.append((tag, given))

    def handle_endtag(self, tag: str) -> None:
        """Leave an element, and those in it that end with it."""
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        """Note text that is not code, and what a heading says."""
        opened = {tag for tag, _ in self._open}
        for tag, given in self._open:
            if re.fullmatch("h[1-6]", tag) and given.get("id") in self.headings:
                self.headings[given["id"]] += data.strip("\n ¶")
        if "article" in opened and "pre" not in opened:
            self.inline.append(data)
        if "article" in opened and not opened & {"code", "pre", "script", "style", "svg"}:
            self.prose.append(data)
            if "strong" in opened:
                self.bold.append(data)

    def classes(self, tag: str) -> set[str]:
        """Return the classes of all elements with this tag."""
        each = (given.get("class", "").split() for name, given in self.tags if name == tag)
        return set(itertools.chain.from_iterable(each))

    def meta(self, name: str) -> str:
        """Return what a `meta` tag says, or nothing."""
        for tag, given in self.tags:
            if tag == "meta" and name in (given.get("name"), given.get("property")):
                return given["content"]
        return ""


@cache
def pages() -> list[Page]:
    """Return all pages but the one for those that do not exist."""
    found = [Page(each) for each in sorted(SITE.rglob("index.html"))]
    assert found, "build the site first: nox -s docs"
    return found


@cache
def modules() -> dict[str, ast.Module]:
    """Return the sources of leafwise, by module."""
    source = ROOT / "src"
    found: dict[str, ast.Module] = {}
    for path in source.rglob("*.py"):
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def public_names() -> dict[tuple[str, str], set[str]]:
    """Return by what name each public object may be documented, by where it is defined."""
    imported = {
        (module, alias.asname or alias.name): (node.module or "", alias.name)
        for module, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    names: dict[tuple[str, str], set[str]] = {}
    for module, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                for name in ast.literal_eval(node.value):
                    home = (module, name)
                    while imported.get(home, home) != home:
                        home = imported[home]
                    if ".".join(home) not in modules():  # a module has a page
                        names.setdefault(home, set()).add(f"{module}.{name}")
    return names


def _docstring(module: str, name: str) -> str:
    found = [
        ast.get_docstring(node)
        for node in modules()[module].body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
    ]
    return next(filter(None, found), "")  # overloads have none


def test_each_public_name_has_one_heading() -> None:
    """A public name has one heading in the reference, with an anchor, and no private one has."""
    anchors = Counter(anchor for page in pages() for anchor in page.headings)
    public = public_names()
    assert len(public) > 100
    counts = {home: sum(anchors[each] for each in places) for home, places in public.items()}
    assert {home: count for home, count in counts.items() if count != 1} == {}
    assert [each for each in anchors if re.match(r"leafwise\..*\._", each)] == []
    bases = [
        text
        for page in pages()
        for before, text in itertools.pairwise(page.inline)
        if before.strip() == "Bases:"
    ]
    assert len(bases) > 10
    assert [text for text in bases if text.startswith("_")] == []


def test_examples_are_code() -> None:
    """The example of a public name is a highlighted block below its heading."""
    having = {anchor for page in pages() for anchor in page.with_example}
    wanted = [
        places for home, places in public_names().items() if "\nExamples:\n" in _docstring(*home)
    ]
    assert len(wanted) > 40
    assert [places for places in wanted if not places & having] == []
    for page in pages():
        assert "blockquote" not in {tag for tag, _ in page.tags}, page.name
        assert "example" not in page.classes("details"), page.name
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    # griffe takes no other spelling.
    assert not [text for text in sources if re.search(r"^ *Example:$", text, re.MULTILINE)]


def test_no_markdown_is_left_over() -> None:
    """No text shows the signs of Markdown, or has lost those of Python."""
    signs = re.compile(r"\*\*|`|\]\(|--8<--|^::: |^!!! ")
    found = [(page.name, text) for page in pages() for text in page.prose if signs.search(text)]
    found += [(page.name, text) for page in pages() for text in page.inline if r"\|" in text]
    assert found == []
    text = "\n".join(map(ast.unparse, modules().values()))
    bold = [(page.name, text) for page in pages() for text in page.bold]
    assert [each for each in bold if f"__{each[1]}__" in text] == []


def test_each_page_has_a_description_of_its_own() -> None:
    """Search engines and links show what a page is about."""
    descriptions = Counter(page.meta("description") for page in pages())
    assert [text for text, count in descriptions.items() if count > 1 or len(text) < 20] == []
    assert all(page.meta("og:title") for page in pages())
    assert Page(SITE / "index.html").meta("og:title") == "leafwise: why JAX recompiles"


def test_each_page_leads_on() -> None:
    """A page has its address, a link to the source to edit, and links to those before and after."""
    for page in pages():
        relations = [given.get("rel") for _, given in page.tags]
        assert "canonical" in relations, page.name
        assert "edit" in relations, page.name
        assert {"prev", "next"} & set(relations), page.name
        assert "md-footer__inner" in page.classes("nav"), page.name


def test_the_pages_stay_short() -> None:
    """The README and the pages have at most 42,500 words: what is added replaces something."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *DOCS.rglob("*.md"))]
    assert sum(len(text.split()) for text in texts) <= 42_500


def test_no_source_is_published() -> None:
    """The scripts that draw the pictures stay at home."""
    assert list(SITE.rglob("*.py")) == []
    assert not (SITE / "theme").exists()


def test_a_page_loads_nothing_from_elsewhere() -> None:
    """No script, style, picture or font of a page comes from another host."""
    loading = {"script": "src", "img": "src", "iframe": "src", "source": "src"}
    for page in pages():
        for tag, given in page.tags:
            address = given.get(loading.get(tag, ""), "")
            if tag == "link" and given.get("rel") in (
                "stylesheet",
                "icon",
                "preconnect",
                "preload",
            ):
                address = given["href"]
            assert not address.startswith(("http:", "https:", "//")), (page.name, address)
        # The theme would ask GitHub for stars where it finds this component.
        assert "source" not in {given.get("data-md-component") for _, given in page.tags}
    missing = Page(SITE / "404.html")  # it is shown under any prefix
    assert {"link", "script", "img"}.isdisjoint(tag for tag, _ in missing.tags)


def test_each_error_has_the_anchor_that_its_message_names() -> None:
    """The link that ends an error leads to a heading of the errors page."""
    exported = next(
        ast.literal_eval(node.value)
        for node in modules()["leafwise.errors"].body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    page = next(page for page in pages() if page.name == "reference/errors/index.html")
    assert len(exported) > 10
    assert [name for name in exported if name.lower() not in page.headings] == []
