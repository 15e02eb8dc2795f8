"""The ``iop-node`` command."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

import iop
from iop.cli.foreground import run_plugin
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
    found = {name: found.title for name, found in sorted(plugin.found().items())}
    if options.format == "json":
        print(json.dumps([{"type": name, "title": title} for name, title in found.items()]))
    else:
        for name, title in found.items():
            print(f"{name:<16} {title}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
