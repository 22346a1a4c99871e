"""One line for each check, and a count of both outcomes."""


class Report:
    """Counts and prints results."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0

    def labelled(self, way: str, client: str) -> "Labelled":
        return Labelled(self, f"[{way}] {client}")

    def add(self, passed: bool, text: str) -> None:
        if passed:
            self.passed += 1
        else:
            self.failed += 1
        print(f"{'ok  ' if passed else 'FAIL'} {text}", flush=True)


class Labelled:
    """A report whose lines begin with the way taken and the client."""

    def __init__(self, report: Report, label: str) -> None:
        self.report = report
        self.label = label

    def __call__(self, name: str, got: object, expected: object) -> None:
        passed = got == expected
        told = "" if passed else f": expected {expected!r:.600}, got {got!r:.600}"
        self.report.add(passed, f"{self.label}: {name}{told}")

    def note(self, text: str) -> None:
        """Says something that is no check."""
        print(f"     {self.label}: {text}", flush=True)

    def line(self, line: str) -> None:
        """Takes over a line that a client printed."""
        verdict, _, text = line.partition(" ")
        self.report.add(verdict == "ok", f"{self.label}: {text.strip()}")

    def same_requests(self, received: list[dict], expected: list[dict]) -> None:
        """Both lists are sorted; the first difference is shown."""
        name = "the provider receives what it receives without the gateway"
        for one, other in zip(received, expected):
            if one != other:
                return self(name, one, other)
        self(name, len(received), len(expected))
