"""What JAX will do for a call, and why: `leafwise.explain`."""

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from leafwise._compare.reasons import Outcome, Reason, merge_rebuilt
from leafwise._compare.signature import Signature
from leafwise._compare.tree_differences import Differences, differences
from leafwise._display.html import preformatted
from leafwise._display.words import headword, likeness, paths_of, sentence_of
from leafwise._objects.text import got, without_addresses

_SHOWN: Final = 12


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What JAX does for a call, and all reasons for it.

    Attributes:
        outcome: What JAX does.
        reasons: What differs from the nearest earlier call, the most severe first.
        unsound: Statics that are distinct though JAX takes them for equal: the program of the
            first one answers for the other.
        nearest: The index of the nearest earlier call among those given. None if there was no
            earlier call.
    """

    outcome: Outcome
    reasons: tuple[Reason, ...] = ()
    unsound: tuple[Reason, ...] = ()
    nearest: int | None = None

    @property
    def sentence(self) -> str:
        """What JAX does, as a sentence."""
        return sentence_of(self.outcome, first=self.nearest is None, unsound=bool(self.unsound))

    def __str__(self) -> str:
        """Return the outcome, and a line for each reason."""
        lines = [f"{headword(self.outcome, first=self.nearest is None)}: {self.sentence}"]
        # A retrace or recompile makes a new dispatch entry anyway.
        shown = [each for each in self.reasons if each.outcome is not Outcome.DISPATCH]
        every = _joined(merge_rebuilt((*(shown or self.reasons), *self.unsound)))
        lines += [str(reason) for reason in every[:_SHOWN]]
        if len(every) > _SHOWN:
            lines.append(f"... and {len(every) - _SHOWN} more")
        return "\n".join(lines).replace("\n", "\n  ")

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, which `json.dumps` takes."""
        return {
            "outcome": str(self.outcome),
            "nearest": self.nearest,
            "reasons": [_reason_as_dict(reason) for reason in merge_rebuilt(self.reasons)],
            "unsound": [_reason_as_dict(reason) for reason in self.unsound],
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """Return it as JSON."""
        return json.dumps(self.as_dict(), indent=indent)

    def _repr_html_(self) -> str:
        """Return the text, for notebooks."""
        return preformatted(str(self))

    def __rich__(self) -> object:
        """Return the text, for `rich.print`."""
        from rich.text import Text  # noqa: PLC0415  # rich asks, so rich is there

        return Text(str(self))


def _joined(reasons: Iterable[Reason]) -> list[Reason]:
    """Return reasons, those that differ in their paths alone as one."""
    found: dict[tuple[Any, ...], list[Reason]] = {}
    for each in reasons:
        found.setdefault((each.kind, each.change, likeness(each.path, each.fix)), []).append(each)
    return [
        several[0]._replace(path=paths_of(each.path for each in several))
        for several in found.values()
    ]


def _reason_as_dict(reason: Reason) -> dict[str, str]:
    names = "path", "kind", "outcome", "before", "after", "change", "fix"
    before, after = reason.words
    texts = {name: getattr(reason, name) for name in names} | {"before": before, "after": after}
    return {name: without_addresses(str(text)) for name, text in texts.items()}


def explain(before: Signature | Iterable[Signature], after: Signature) -> Explanation:
    """Explain what JAX will do for a call, and why.

    Args:
        before: The signature of an earlier call of the same function, or of several.
        after: The signature of the call in question.

    Returns:
        The outcome and all reasons; of several earlier calls, those against the nearest.

    Raises:
        TypeError: An argument is not a signature.

    Examples:
        >>> print(explain(signature(jnp.ones(3)), signature(jnp.ones(4))))
        retrace: traced, lowered and compiled again
          args[0]: shape (3,) -> (4,)
            fix: pad to one shape, or a few
    """
    earlier: list[Any] = list(before) if isinstance(before, Iterable) else [before]
    last: Any = after
    for each in (*earlier, last):
        if not isinstance(each, Signature):
            raise TypeError(f"explain takes what leafwise.signature(...) returns, got {got(each)}")
    return nearest(earlier, after)


def nearest(earlier: Sequence[Signature], after: Signature, *, placed: bool = False) -> Explanation:
    """Explain a call against the earlier one whose program JAX reuses at the lowest cost."""
    if len(earlier) == 1:  # nothing to choose from
        found = differences(earlier[0], after, placed=placed)
        return Explanation(found.outcome, found.reasons, found.unsound, 0)
    best: tuple[tuple[Any, ...], int, Differences] | None = None
    for place, before in enumerate(earlier):
        found = differences(before, after, placed=placed)
        # How severe each reason is: by its kind, and within a kind by whether types differ.
        weight = sum(
            2.0 ** -reason.rank[1] + (type(reason.before) is not type(reason.after)) * 2.0**-20
            for reason in found.reasons
        )
        order = (found.outcome.severity, len(found.reasons), weight, -place)
        if best is None or order < best[0]:
            best = order, place, found
    if best is None:
        return Explanation(Outcome.RETRACE)
    _, place, found = best
    return Explanation(found.outcome, found.reasons, found.unsound, place)
