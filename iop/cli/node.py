"""The ``iop-node`` command."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import iop
from iop.cli.foreground import run_plugin
from iop.errors import printable
from iop.node.adapters import plugin


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``iop-node``; return the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="iop-node", description="Run this machine's backends for an edge.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"iop-node {iop.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    commands.add_parser("run", add_help=False, help="run a node in the foreground; iop-node run --help has its options")
    adapters = commands.add_parser("adapters", help="list the adapter types found on this machine", allow_abbrev=False)
    adapters.add_argument("--format", choices=["text", "json"], default="text")
    if arguments[:1] == ["run"]:
        return run_plugin("iop-node", arguments[1:])
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        adapters.error(f"unrecognized arguments: {' '.join(unknown)}")
    found = [_described(name, factory) for name, factory in sorted(plugin.found().items())]
    if options.format == "json":
        print(json.dumps(found))
    else:
        for each in found:
            print(f"{each['type']:<16} {each['title'] or 'cannot be used: ' + each['error']}")
    return 1 if any("error" in each for each in found) else 0


def _described(name: str, factory: Any) -> dict[str, str]:
    """An adapter type and its title, or why it has none: what a plugin names may not be there."""
    try:
        return {"type": name, "title": str(factory.title)}
    except Exception as error:
        return {"type": name, "title": "", "error": printable(f"{type(error).__name__}: {error}")}


if __name__ == "__main__":
    sys.exit(main())
