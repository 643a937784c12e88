"""Annotations of GitHub Actions: a line for each finding, which GitHub shows beside the code."""

from collections.abc import Mapping
from typing import Final

from leafwise._display.findings import findings
from leafwise._display.shape import Report
from leafwise._display.words import described, duration


def annotation(level: str, text: str, title: str, file: str = "", line: int = 0) -> str:
    """Return a workflow command: ``::warning file=train.py,line=13,title=...::...``."""
    where = f"file={_escaped(file, _IN_PROPERTY)},line={max(line, 1)}," if file else ""
    return f"::{level} {where}title={_escaped(title, _IN_PROPERTY)}::{_escaped(text, _IN_TEXT)}"


_IN_TEXT: Final = {ord(each): f"%{ord(each):02X}" for each in "%\r\n"}
_IN_PROPERTY: Final = {ord(each): f"%{ord(each):02X}" for each in "%\r\n:,"}


def _escaped(text: str, marks: Mapping[int, str]) -> str:
    return text.translate(marks)


def of_report(report: Report) -> str:
    """Return a warning for each finding, and for what the audit found."""
    lines: list[str] = []
    for each in findings(report):
        record = each.record()
        title = f"{record['what']}, {duration(record['seconds'])}"
        reasons = [described(one["path"], one["kind"], one["change"]) for one in record["reasons"]]
        text = "\n".join((*reasons, *(f"fix: {fix}" for fix in record["fixes"]))) or title
        where = (each.site["file"], each.site["line"]) if each.site else ("", 0)
        lines.append(annotation("warning", text, title, *where))
    for found in report["audit"]["found"] if "audit" in report else ():
        file, _, number = found["call"].rpartition(":")  # or "line not known"
        place = (file, int(number)) if file else ("", 0)
        lines.append(annotation("warning", found["what"], "another program answered", *place))
    return "\n".join(lines)
