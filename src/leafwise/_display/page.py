"""An explanation as a table of HTML, for notebooks."""

from collections.abc import Mapping
from typing import Any, Final, cast

from leafwise._display.findings import acted
from leafwise._display.html import code, headings, prose, safe, table_rows
from leafwise._display.shape import ExplanationRecord, ReasonRecord
from leafwise._display.words import count, outcome_of, sentence

MOST_REASONS: Final = 20
_TITLES: Final = ("path", "kind", "change", "fix")


def explanation(explanation: Mapping[str, Any]) -> str:
    """Return an explanation as a fragment of HTML.

    Args:
        explanation: What `Explanation.as_dict` returns.

    Returns:
        A table of the reasons under a sentence that says what JAX does.
    """
    explained = cast("ExplanationRecord", explanation)
    every = acted(explained)
    outcome = safe(outcome_of(explained), 80)
    head = f"<p><b>{outcome}</b>: {safe(sentence(explained))}</p>"
    if not every:
        return f"<div>{head}</div>"
    classes = ("",) * len(_TITLES)
    rows = table_rows([_cells(each) for each in every[:MOST_REASONS]], classes)
    table = f"<table>{headings(_TITLES, classes)}<tbody>{rows}</tbody></table>"
    left = len(every) - MOST_REASONS
    more = f"<p>and {count(left, 'more reason')}</p>" if left > 0 else ""
    return f"<div>{head}{table}{more}</div>"


def _cells(reason: ReasonRecord) -> tuple[str, str, str, str]:
    kind = safe(reason["kind"], 80)
    return code(reason["path"]), kind, prose(reason["change"]), prose(reason["fix"])
