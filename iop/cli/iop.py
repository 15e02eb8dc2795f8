"""The ``iop`` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import iop
from iop.cli import up


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``iop``; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="iop", description="One OpenAI endpoint for everything you run.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"iop {iop.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    up.add_parser(commands)
    options, unknown = parser.parse_known_args(argv)
    if unknown:  # said by the command, which then shows its own usage
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    status: int = options.run(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
