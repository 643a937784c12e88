"""Annotations of GitHub Actions: a line for each finding, which GitHub shows beside the code."""

from collections.abc import Mapping
from typing import Final

from leafwise._display.repeats import repeats
from leafwise._display.shape import Report
from leafwise._display.words import count, duration


def annotation(level: str, text: str, title: str, file: str = "", line: int = 0) -> str:
    """Return a workflow command: ``::warning file=train.py,line=13,title=...::...``.

    Args:
        level: ``error``, ``warning`` or ``notice``.
        text: What is shown.
        title: What stands above it.
        file: The file; empty if there is none.
        line: The line in it.
    """
    where = f"file={_escaped(file, _IN_PROPERTY)},line={max(line, 1)}," if file else ""
    return f"::{level} {where}title={_escaped(title, _IN_PROPERTY)}::{_escaped(text, _IN_TEXT)}"


_IN_TEXT: Final = {ord(each): f"%{ord(each):02X}" for each in "%\r\n"}
_IN_PROPERTY: Final = {ord(each): f"%{ord(each):02X}" for each in "%\r\n:,"}


def _escaped(text: str, marks: Mapping[int, str]) -> str:
    return text.translate(marks)


def of_report(report: Report) -> str:
    """Return a warning for each line that made JAX work again, and for what the audit found."""
    lines: list[str] = []
    for each in repeats(report):
        times = count(len(each.events), each.outcome)
        title = f"{times} of {each.name}{each.what}, {duration(each.seconds)}"
        reasons = [f"{reason.path}: {reason.kind}. {reason.fix}" for reason in each.joined()]
        site = each.site
        where = (site["file"], site["line"]) if site else ("", 0)
        lines.append(annotation("warning", "\n".join(reasons) or each.cause, title, *where))
    for found in report["audit"]["found"] if "audit" in report else ():
        file, _, number = found["call"].rpartition(":")  # or "line not known"
        place = (file, int(number)) if file else ("", 0)
        lines.append(annotation("warning", found["what"], "another program answered", *place))
    return "\n".join(lines)
