"""What an agent writes to stdout, read by the ``output_format`` of its settings. Pure: lines in, pieces out.

The shapes were recorded from the real programs; ``tests/node/transcripts/`` has short ones of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from iop.node.adapters.cli.agents import Codex, Gemini, OpenCode
from iop.node.adapters.cli.claude import Claude
from iop.node.adapters.cli.lines import Parser
from iop.node.adapters.cli.plain import Fields, Text
from iop.node.adapters.cli.voice import Piece

__all__ = ["FORMATS", "Parser", "Piece", "parser"]

FORMATS: Final[Mapping[str, Callable[[Mapping[str, str]], Parser]]] = {
    "text": lambda fields: Text(),
    "claude_stream_json": lambda fields: Claude(),
    "codex_jsonl": lambda fields: Codex(),
    "gemini_stream_json": lambda fields: Gemini(),
    "opencode_json": lambda fields: OpenCode(),
    "jsonl": Fields,
}


def parser(output_format: str, fields: Mapping[str, str]) -> Parser:
    """Return a parser for one run.

    :param fields: for ``jsonl``, where in a line's object each thing stands; nothing is shown without ``text``.
    """
    return FORMATS[output_format](fields)
