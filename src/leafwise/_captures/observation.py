"""What one trace has read outside its arguments. It keeps nothing of that alive."""

import types
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from leafwise._captures.bindings import Binding, bindings_of
from leafwise._captures.fingerprint import Key, changed, fingerprint_bindings
from leafwise._captures.forms import check_of
from leafwise._captures.observe import Run

Source: TypeAlias = tuple[str, int]
"""The file and the first line of a function."""


class Observation:
    """The places that the functions that ran in a trace read, and what was there at its end."""

    def __init__(
        self, runs: list[Run], root: Callable[..., Any], reused: Iterable[Binding] = ()
    ) -> None:
        self.bindings = {each.place.key: each for each in (*bindings_of(runs, root), *reused)}
        found = fingerprint_bindings(self.bindings.values())
        self.fingerprint = found.fingerprint
        self.words = frozenset[str]().union(*(each.words for each in self.bindings.values()))
        self._checks = {probe.place.key: check_of(probe.fingerprinted) for probe in found.probes}
        self._around: dict[types.CodeType, set[types.CodeType]] = {}
        for run in runs:
            self._around.setdefault(run.code, {run.code}).update(run.inside)

    def read_in(self, source: Source) -> list[Binding]:
        """Return what a function and those that ran inside it read; of what all read, too."""
        inside = {code for code, around in self._around.items() if source in map(source_of, around)}
        return [each for each in self.bindings.values() if each.code in inside or each.itself]

    def is_unchanged(self) -> bool:
        """Return whether all places have what they had."""
        differing: list[Binding] = []
        for key, check in self._checks.items():
            binding = self.bindings[key]
            try:
                is_same = check(binding.place.read())
            except Exception:  # noqa: BLE001  # another kind of value
                is_same = False
            if not is_same:
                differing.append(binding)
        now = fingerprint_bindings(differing).fingerprint
        return not changed(self.fingerprint, now)


def source_of(code: types.CodeType) -> Source:
    """Return where the function of a code stands."""
    return code.co_filename, code.co_firstlineno


def union(observations: Iterable[Observation | None]) -> list[Binding]:
    """Return the places of several traces, each once."""
    found: dict[Key, Binding] = {}
    for each in observations:
        found.update({} if each is None else each.bindings)
    return list(found.values())
