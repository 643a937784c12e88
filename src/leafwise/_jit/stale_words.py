"""What is said of a capture that changed."""

from typing import Final

from leafwise._captures.fingerprint import Entry, Key, Looked, Taken, words_of_change
from leafwise._captures.fixes import Cure, cure_of
from leafwise._compare.reasons import Outcome, Reason, ReasonKind, Said
from leafwise._jit.blocks import StaleCapture
from leafwise._objects.attributes import is_installed
from leafwise._objects.call_site import Site

_ADVICE: Final = "Pass it as an argument, or make it a field of a pytree class."


def told(keys: list[Key], taken: Taken) -> list[Key]:
    """Return what to tell of some changes: of a package's own variables only if of no others.

    What the user did to an object of a package changes both.
    """
    there = [key for key in keys if key in taken.fingerprint]
    inner = {each.key for each in taken.places if is_installed(each.binding.function)}
    return [key for key in there if key not in inner] or there


def described(
    name: str, key: Key, entries: tuple[Entry, Entry], looked: Looked | None, site: Site | None
) -> StaleCapture:
    """Return a change with all that is told of it."""
    (reader, variable, holder, _), (was, now) = key, entries
    before, after = words_of_change(was, now)
    cure = Cure() if looked is None else cure_of(looked.value)
    line = now.site or was.site
    return StaleCapture(name, variable, reader, holder, line, before, after, site, cure)


def reason_of(found: StaleCapture, outcome: Outcome) -> Reason:
    """Return a changed capture as a reason."""
    before, after = Said(found.before), Said(found.after)
    return Reason(found.name, ReasonKind.CAPTURE, outcome, before, after, _ADVICE)
