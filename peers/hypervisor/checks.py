"""Checks of what proxmoxer sees: a line for each that holds, and what does not hold on standard error."""
import re
import sys
import time

from proxmoxer import ResourceException

# Real seconds. The datacenter is much faster than that; whoever waits longer waits for nothing.
PATIENCE, PERIOD = 30, 0.05

held, mismatches = [], []


def holds(what, is_so, seen):
    if is_so:
        held.append(what)
        print(f"ok  {what}")
    else:
        mismatches.append(what)
        print(f"MISMATCH  {what}: {seen}", file=sys.stderr)


def equal(what, seen, expected):
    holds(what, seen == expected, f"{seen!r}, expected {expected!r}")


def matches(what, seen, pattern):
    holds(what, re.fullmatch(pattern, str(seen)) is not None, f"{seen!r}, expected {pattern}")


def refused(what, status, words, call, *args, errors=None, **params):
    """The call raises ResourceException with this status and these words, and blames these parameters in these words."""
    try:
        seen = call(*args, **params)
    except ResourceException as error:
        blamed = error.errors or {}
        fits = error.status_code == status and words in error.content
        if errors is not None:
            fits = fits and blamed.keys() == errors.keys() and all(errors[name] in blamed[name] for name in errors)
        holds(what, fits, (error.status_code, error.content, error.errors))
    else:
        holds(what, False, seen)


def eventually(what, look, is_so):
    """What is looked at becomes so while anybody would still wait for it; until then a refusal is no mismatch."""
    end, seen = time.monotonic() + PATIENCE, None
    while time.monotonic() < end:
        try:
            seen = look()
            if is_so(seen):
                holds(what, True, seen)
                return seen
        except ResourceException as error:
            seen = error
        time.sleep(PERIOD)
    holds(what, False, seen)
    return None


def parts(text):
    """A property string: what comes first, and the rest by name."""
    first, *rest = text.split(",")
    return first, dict(part.split("=", 1) for part in rest)


def verdict():
    """Prints how many checks hold, and returns what the program ends with."""
    print(f"{len(held)} checks hold")
    return 1 if mismatches else 0
