"""Named checks, run one after the other, one line of output each."""

import reprlib
import sys
import traceback
from collections.abc import Callable

Check = Callable[[], None]

# What the mock provider says when it is told nothing (docs/mock.md).
WORDS = ["The ", "lanegate ", "mock ", "says ", "hello."]
TEXT = "".join(WORDS)
MODELS = ["mock-model", "mock-tool", "mock-slow"]
# Twice what common HTTP libraries keep in memory before they hold back, and more than any socket buffer.
BIG_BODY_BYTES = 2 << 20
# Requests that share one connection.
KEPT_ALIVE = 5
# Requests under way at the same time.
AT_ONCE = 8

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 400
_short.maxlist = _short.maxdict = _short.maxtuple = 60


def equal(what: str, got: object, expected: object) -> None:
    """Fails unless both are equal; says which thing, and both values, shortened."""
    if got != expected:
        raise AssertionError(f"{what}: expected {_short.repr(expected)}, got {_short.repr(got)}")


def holds(what: str, got: object, condition: bool) -> None:
    """Fails unless the condition holds; says what was expected and what came."""
    if not condition:
        raise AssertionError(f"expected {what}, got {_short.repr(got)}")


def big_text() -> str:
    """Text of `BIG_BODY_BYTES`, every line different, so that a lost or doubled block shows."""
    lines = (f"{number:015d}\n" for number in range(BIG_BODY_BYTES // 16))
    return "".join(lines)


def run(checks: dict[str, Check]) -> None:
    """Runs all; exits with 1 if one failed."""
    failed = False
    for name, check in checks.items():
        try:
            check()
        except Exception as error:  # noqa: BLE001 a check may fail in any way an SDK can
            failed = True
            print(f"FAIL {name}: {type(error).__name__}: {error}", flush=True)
            traceback.print_exc(file=sys.stderr)
        else:
            print(f"ok   {name}", flush=True)
    sys.exit(1 if failed else 0)


def run_by_name(*checks: Check) -> None:
    """Runs all under the names of their functions."""
    run({check.__name__.replace("_", " "): check for check in checks})
