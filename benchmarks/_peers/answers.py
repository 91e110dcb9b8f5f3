"""The peer's end of the pipe: requests are JSON objects, one a line, and each has an answer."""

import json
import os
import sys
from typing import Any


def answer(server: Any) -> None:
    """Call the method that each request names, until the pipe is closed."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not get between the answers
    for line in sys.stdin:
        request = json.loads(line)
        try:
            found = getattr(server, request.pop("do"))(**request)
        except Exception as problem:
            said = str(problem).strip().splitlines() or [""]
            found = {"error": f"{type(problem).__name__}: {said[0][:200]}"}
        answers.write(json.dumps(found) + "\n")
        answers.flush()
