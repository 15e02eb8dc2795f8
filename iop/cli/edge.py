"""``iop-edge``: what an operator asks of an edge and of its configuration.

Exit status: 0 fine, 1 trouble reaching the edge or writing the output, 2 usage, 3 restart required, 4 refused.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

import iop
from iop.cli import edge_config, edge_live, edge_pool, edge_usage
from iop.cli.foreground import run_plugin

OK: Final = 0
FAILED: Final = 1

Command = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    parser = _parser()
    options, rest = parser.parse_known_args(argv)
    if rest and not options.takes_rest:
        options.parser.error(f"unrecognized arguments: {' '.join(rest)}")
    options.rest = rest
    command: Command = options.command
    try:
        status = command(options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has enough
        _say_no_more()
        return OK
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO):
            raise
        _say_no_more()
        print(f"error: the output cannot be written: {error.strerror}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return 130
    return status


def _say_no_more() -> None:
    """Python must not complain about its output on its way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="iop-edge", description="What an operator asks of an edge and of its configuration.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"iop-edge {iop.__version__}")
    parser.set_defaults(takes_rest=False)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    edge_live.add_to(commands, edge_config.add_to(commands), edge_pool.add_to(commands))
    edge_usage.add_to(commands)
    run_parser = commands.add_parser(
        "run",
        help="run an edge in the foreground (run --help has its options); run explain ID says where a run went",
        add_help=False,
        allow_abbrev=False,
    )
    run_parser.set_defaults(command=run, takes_rest=True)
    return parser


def run(options: argparse.Namespace) -> int:
    """``run``: become ``twistd -n iop-edge …``, the edge in the foreground. ``run explain`` asks the one there is."""
    if options.rest[:1] == ["explain"]:
        asked = edge_live.explain_parser().parse_args(options.rest[1:])
        command: Command = asked.command
        return command(asked)
    return run_plugin("iop-edge", options.rest)


if __name__ == "__main__":
    sys.exit(main())
