"""``iop-edge config``: look at a configuration, and at what changing it would do, without an edge."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import yaml

from iop.cli import text
from iop.edge.config import ConfigError, Problem, effective, load, manual, redact, schema
from iop.edge.refresh import RefreshResult, Side, Status, plan

OK: Final = 0
RESTART_REQUIRED: Final = 3
REFUSED: Final = 4

#: How a refresh ends, as an exit status.
EXIT: Final = {
    Status.APPLIED: OK,
    Status.RESTART_REQUIRED: RESTART_REQUIRED,
    Status.REJECTED: REFUSED,
}

Command = Callable[[argparse.Namespace], int]


def add_to(commands: Any) -> Any:
    """Add ``config`` and its commands to those of ``iop-edge``; return where others may be added."""
    parser = commands.add_parser("config", help="look at a configuration", allow_abbrev=False)
    of_config = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, summary, command in (
        ("check", "say everything that is wrong with a configuration", check),
        ("show", "print the effective configuration, without its secrets", show),
    ):
        add(of_config, name, summary, command).add_argument(
            "files", nargs="+", metavar="FILE", help="the configuration; each is laid over those before"
        )
    of_diff = add(of_config, "diff", "say what going from one configuration to another would do", diff)
    for side in ("OLD", "NEW"):
        of_diff.add_argument(side.lower(), type=_files, metavar=side, help="a file, or several: base.yaml,overlay.yaml")
    add(of_config, "schema", "print the JSON Schema, for editors, or the manual", print_schema, "markdown")
    return of_config


def add(commands: Any, name: str, summary: str, command: Command, *formats: str) -> argparse.ArgumentParser:
    """Add a command, which prints text or JSON."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=summary[0].upper() + summary[1:] + ".", allow_abbrev=False
    )
    parser.add_argument(
        "--format", choices=("text", "json", *formats), default="text", help="for people, or for programs"
    )
    parser.set_defaults(command=command, parser=parser)
    return parser


def _files(words: str) -> list[str]:
    """The files of one overlay set."""
    files = words.split(",")
    if not all(files):
        raise argparse.ArgumentTypeError("a file, or files with a comma between them: base.yaml,overlay.yaml")
    return files


def check(options: argparse.Namespace) -> int:
    """``config check``: every error and warning."""
    try:
        warnings = load(options.files, environ=os.environ).warnings
    except ConfigError as error:
        return refused(error, options.format)
    _print_check(options.format, (), warnings)
    return OK


def show(options: argparse.Namespace) -> int:
    """``config show``: the configuration as the edge takes it."""
    try:
        loaded = load(options.files, environ=os.environ)
    except ConfigError as error:
        return refused(error, options.format)
    document = redact(effective(loaded.config))
    if options.format == "json":
        print_json(document)
        return OK
    for warning in loaded.warnings:
        print(text.problem(warning, "warning", text.paint(sys.stderr)), file=sys.stderr)
    print(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), end="")
    return OK


def diff(options: argparse.Namespace) -> int:
    """``config diff``: the plan of a refresh, made without an edge."""
    return print_result(plan(_side(options.old), _side(options.new)), options.format)


def print_result(result: RefreshResult, form: str) -> int:
    """Print a refresh's result; return the exit status."""
    if form == "json":
        print_json(result.as_document())
    else:
        print("\n".join(text.refresh(result, text.paint(sys.stdout))))
    return EXIT[result.status]


def _side(files: Sequence[str]) -> Side:
    try:
        return load(files, environ=os.environ)
    except ConfigError as error:
        return error


def print_schema(options: argparse.Namespace) -> int:
    """``config schema``: JSON in either format, or the manual made of it."""
    if options.format == "markdown":
        print(manual(), end="")
    else:
        print_json(schema())
    return OK


def refused(error: ConfigError, form: str) -> int:
    """Say why a configuration cannot be used; return the exit status."""
    _print_check(form, error.problems, error.warnings)
    return REFUSED


def _print_check(form: str, errors: Sequence[Problem], warnings: Sequence[Problem]) -> None:
    if form == "json":
        print_json(
            {
                "valid": not errors,
                "errors": [problem.document() for problem in errors],
                "warnings": [problem.document() for problem in warnings],
            }
        )
        return
    print("\n".join(text.check(errors, warnings, text.paint(sys.stdout))))


def print_json(document: Any) -> None:
    """Print for programs."""
    print(json.dumps(document, indent=2))
