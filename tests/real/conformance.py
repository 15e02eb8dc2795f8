"""What another's suite finds wrong at an edge and not at the llama.cpp behind it; exit 1 for anything.

The suite is ``llm-comply``; its formats are of the three APIs that llama.cpp serves itself. Whatever it finds at both
is llama.cpp's. Without arguments it starts llama.cpp, an edge and a node; ``conformance.py EDGE DIRECT MODEL`` takes
what runs already, URLs without ``/v1``, the key of the edge in ``IOP_KEY``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

FORMATS = ("openai-chat", "open-responses", "anthropic")
IGNORED = "refusal,logprobs,annotations"
"""Members that the published schemas require and that no server but OpenAI's sends."""

LLM_COMPLY = Path(sysconfig.get_path("scripts")) / "llm-comply"
PATIENCE = 300.0


class Found(NamedTuple):
    """What the suite says of one server.

    :ivar passed: ids of tests.
    :ivar failed: id of a test → what was wrong, numbers apart.
    """

    passed: frozenset[str]
    failed: dict[str, frozenset[str]]


def examine(url: str, key: str, model: str, format: str) -> Found:
    """Run the suite of one format."""
    command = [str(LLM_COMPLY), "run", "--base-url", f"{url}/v1", "--api-key", key, "--model", model]
    command += ["--format", format, "--json", "--ignore", IGNORED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    try:
        document: Any = json.loads(done.stdout)
    except ValueError:
        raise AssertionError(f"llm-comply says no JSON: {done.stdout[-500:]}{done.stderr[-500:]}") from None
    results = document["results"]
    # a filter that fits nothing, or a suite that has lost its tests, would end well with none
    assert document["summary"]["total"] == len(results) >= 5, document["summary"]
    return Found(
        frozenset(each["id"] for each in results if each["status"] == "passed"),
        {each["id"]: _kinds(each.get("errors", [])) for each in results if each["status"] == "failed"},
    )


def _kinds(errors: list[str]) -> frozenset[str]:
    """Errors without what differs from one answer to the next."""
    return frozenset(re.sub(r"\{.*\}|'[^']{30,}'|\d+|(?<=got )'[^']*'", "…", error) for error in errors)


class Difference(NamedTuple):
    """What is wrong at an edge and not behind it, also in tests that fail at both.

    :ivar what: the format, and the model of the edge.
    """

    what: str
    edge: Found
    direct: Found

    @property
    def new(self) -> dict[str, frozenset[str]]:
        """Id of a test → what is wrong at the edge alone."""
        found = {id: errors - self.direct.failed.get(id, frozenset()) for id, errors in self.edge.failed.items()}
        return {id: errors for id, errors in found.items() if errors or id not in self.direct.failed}

    @property
    def lost(self) -> frozenset[str]:
        """Tests that llama.cpp passes and the edge does not even fail."""
        return self.direct.passed - self.edge.passed - set(self.edge.failed)

    def __str__(self) -> str:
        lines = [f"{self.what}: {len(self.edge.passed)} pass at the edge, {len(self.direct.passed)} at llama.cpp"]
        lines += [f"  better: {id}" for id in sorted(self.edge.passed - self.direct.passed)]
        lines += [f"  as llama.cpp: {id}" for id in sorted(set(self.edge.failed) - set(self.new))]
        lines += [f"  NEW: {id}: {error}" for id, errors in sorted(self.new.items()) for error in sorted(errors)]
        lines += [f"  LOST: {id}" for id in sorted(self.lost)]
        return "\n".join(lines)


def compare(format: str, edge: str, direct: str, key: str, model: str) -> Difference:
    """Run the suite of one format at both."""
    return Difference(f"{format}, {model}", examine(edge, key, model, format), examine(direct, "none", model, format))


@contextmanager
def started() -> Iterator[list[str]]:
    """llama.cpp, and an edge and a node before it: the arguments of :func:`compare`."""
    here = Path(__file__).parents[1]
    sys.path[:0] = [str(here), str(here / "integration")]
    import tiny_model
    from real_gateway import KEY, PORT, Backend, Gateway, both_ways
    from running import end_all

    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        tiny_model.write(work / "tiny.gguf")
        try:
            tiny = Backend("tiny", work, "llama_server.py", work / "tiny.gguf", "tiny", PORT, 4096, "embedding").ready()
            gateway = Gateway(work / "gateway", *both_ways(tiny, "tiny")).start()
            yield [gateway.url, tiny.url, KEY]
        finally:
            end_all()


def main(words: list[str]) -> int:
    if words:
        edge, direct, model = words
        found = [compare(format, edge, direct, os.environ.get("IOP_KEY", "none"), model) for format in FORMATS]
    else:
        with started() as arguments:
            found = [compare(format, *arguments, model) for format in FORMATS for model in ("native", "translated")]
    for each in found:
        sys.stdout.write(f"{each}\n")
    return int(any(each.new or each.lost for each in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
