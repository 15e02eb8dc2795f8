"""``iop-edge``: what an operator asks of an edge and of its configuration.

Exit status: 0 fine, 1 trouble reaching the edge, 2 usage, 3 restart required, 4 refused.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, TextIO

import yaml

from iop.cli.foreground import run_plugin
from iop.edge.config import ConfigError, Problem, effective, load, redact, schema

OK: Final = 0
USAGE: Final = 2
REFUSED: Final = 4

Command = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    parser = _parser()
    options, rest = parser.parse_known_args(argv)
    if rest and not options.takes_rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    options.rest = rest
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        command: Command = options.command
        status = command(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has enough; Python must not complain about it on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="iop-edge", description=str(__doc__).partition("\n\n")[0], allow_abbrev=False)
    parser.set_defaults(takes_rest=False)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    config = commands.add_parser("config", help="look at a configuration", allow_abbrev=False)
    of_config = config.add_subparsers(metavar="COMMAND", required=True)
    _add(of_config, "check", "say everything that is wrong with a configuration", check, files=True)
    _add(of_config, "show", "print the effective configuration, without its secrets", show, files=True)
    _add(of_config, "schema", "print the JSON Schema, for editors", print_schema)
    run_parser = commands.add_parser(
        "run", help="run an edge in the foreground: twistd -n iop-edge …", add_help=False, allow_abbrev=False
    )
    run_parser.set_defaults(command=run, takes_rest=True)
    return parser


def _add(commands: Any, name: str, summary: str, command: Command, *, files: bool = False) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=summary[0].upper() + summary[1:] + ".", allow_abbrev=False
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="for people, or for programs")
    if files:
        parser.add_argument(
            "files", nargs="+", metavar="FILE", help="the configuration; each is laid over those before"
        )
    parser.set_defaults(command=command)
    return parser


def check(options: argparse.Namespace) -> int:
    """``config check``: every error and warning."""
    try:
        warnings = load(options.files, environ=os.environ).warnings
    except ConfigError as error:
        _print_check(options.format, error.problems, error.warnings)
        return REFUSED
    _print_check(options.format, (), warnings)
    return OK


def show(options: argparse.Namespace) -> int:
    """``config show``: the configuration as the edge takes it."""
    try:
        loaded = load(options.files, environ=os.environ)
    except ConfigError as error:
        _print_check(options.format, error.problems, error.warnings)
        return REFUSED
    document = redact(effective(loaded.config))
    if options.format == "json":
        _print_json(document)
        return OK
    for warning in loaded.warnings:
        print(_line(warning, "warning", sys.stderr), file=sys.stderr)
    print(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), end="")
    return OK


def print_schema(options: argparse.Namespace) -> int:
    """``config schema``: JSON in either format."""
    _print_json(schema())
    return OK


def run(options: argparse.Namespace) -> int:
    """``run``: become ``twistd -n iop-edge …``, the edge in the foreground."""
    run_plugin("iop-edge", options.rest)


def _print_check(form: str, errors: Sequence[Problem], warnings: Sequence[Problem]) -> None:
    if form == "json":
        _print_json(
            {
                "valid": not errors,
                "errors": [problem.document() for problem in errors],
                "warnings": [problem.document() for problem in warnings],
            }
        )
        return
    for word, problems in (("error", errors), ("warning", warnings)):
        for problem in problems:
            print(_line(problem, word, sys.stdout))
    print(_summary(len(errors), len(warnings)))


def _summary(errors: int, warnings: int) -> str:
    counts = [(errors, "error"), (warnings, "warning")]
    words = ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts if count)
    return ("refused" if errors else "valid") + (f": {words}" if words else "")


_COLOURS: Final = {"error": "31", "warning": "33"}


def _line(problem: Problem, word: str, stream: TextIO) -> str:
    text = str(problem)
    if not stream.isatty() or os.environ.get("NO_COLOR"):
        return text
    body, bracket, code = text.rpartition("[")
    return f"{body}\x1b[{_COLOURS[word]}m{bracket}{code}\x1b[0m"


def _print_json(document: Any) -> None:
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    sys.exit(main())
