"""What the scripted provider says it received, in a form that two runs can be compared by."""

import base64
import json
import time
import urllib.request

# Wait for the provider to notice that a client has left a stream, and for a run to match another.
SETTLE_SECONDS_MAX = 5.0
LOOK_SECONDS = 0.1
# Fields for one hop (RFC 9110 §7.6.1) that these clients send.
HOP_FIELDS = {"connection"}
# What a record is compared by. Which connection brought it is the gateway's own affair.
COMPARED = ("body_len", "body_base64", "chunked", "complete", "executed", "answered", "peer_left")


class Journal:
    """The record of one provider, over its control paths."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/mock/requests"
        # No proxy of the environment may stand between.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def clear(self) -> None:
        self._call("DELETE")

    def records(self) -> list[dict]:
        """As served: one object a request, oldest first."""
        return [json.loads(line) for line in self._call("GET").splitlines()]

    def settled(self, expected: list[dict] | None) -> list[dict]:
        """Comparable records, as soon as they are as expected, or else as they are after a wait."""
        give_up = time.monotonic() + SETTLE_SECONDS_MAX
        while True:
            found = sorted(map(comparable, self.records()), key=lambda record: json.dumps(record))
            # A cut answer is broken off by the provider, so it is never whole and nobody left it.
            whole = all(record["answered"] or record["peer_left"] or record["cut"] for record in found)
            if time.monotonic() > give_up or (whole if expected is None else found == expected):
                return found
            time.sleep(LOOK_SECONDS)

    def _call(self, method: str) -> str:
        request = urllib.request.Request(self._url, method=method)
        with self._opener.open(request, timeout=10) as answer:
            return answer.read().decode()


def comparable(record: dict) -> dict:
    """The head without the fields of one hop, the names in it, whether it asks for a cut, and `COMPARED`."""
    first, *lines = record["head"].removesuffix("\r\n\r\n").split("\r\n")
    kept = [line for line in lines if line.partition(":")[0].lower() not in HOP_FIELDS]
    body = record["body_base64"]
    return {
        "head": [first, *kept],
        "names": sorted({line.partition(":")[0].lower() for line in kept}),
        "cut": body is not None and b"mock-cut" in base64.b64decode(body),
        **{name: record[name] for name in COMPARED},
    }
