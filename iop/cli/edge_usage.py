"""``iop-edge usage``: what finished runs used, as a running edge's ledger has it. ``docs/contracts/ledger.md``."""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from iop.cli.ask import ask
from iop.cli.edge_config import OK, print_json
from iop.cli.edge_live import add_socket, console_of, live, other_version
from iop.edge.ledger import question
from iop.errors import printable

_PATIENCE: Final = 75.0

#: The sums of a group, and how people call them.
_COLUMNS: Final = {
    "runs": "runs",
    "input_tokens": "input",
    "output_tokens": "output",
    "cached_tokens": "cached",
    "reasoning_tokens": "reasoning",
    "estimated": "estimated",
    "mean_queue_ms": "queue ms",
    "mean_first_ms": "first ms",
    "mean_total_ms": "total ms",
}


def add_to(commands: Any) -> None:
    """Add it to the commands of ``iop-edge``."""
    summary = "sum what finished runs used: tokens and times"
    parser: argparse.ArgumentParser = commands.add_parser(
        "usage", help=summary, description=summary[0].upper() + summary[1:] + ".", allow_abbrev=False
    )
    for option, words in (("--since", "runs that ended from then on"), ("--until", "and before then")):
        words += ": 30m, 24h, 7d or 4w ago, or an ISO date (UTC)"
        parser.add_argument(option, metavar="TIME", type=_time, help=words)
    each = f"a sum for each of these: {','.join(question.GROUPS)}"
    parser.add_argument("--by", metavar="NAMES", type=_by, help=each)
    parser.add_argument(
        "--format", choices=("table", "json", "csv"), default="table", help="for people, programs or spreadsheets"
    )
    add_socket(parser)
    parser.set_defaults(command=live(usage), parser=parser)


def _time(words: str) -> str:
    try:
        question.time(words, time.time())
    except question.WrongWords as wrong:
        raise argparse.ArgumentTypeError(f"a time {wrong}") from None
    return words


def _by(words: str) -> str:
    try:
        question.groups(words)
    except question.WrongWords as wrong:
        raise argparse.ArgumentTypeError(str(wrong)) from None
    return words


def usage(options: argparse.Namespace) -> int:
    """``usage``: the sums, from the edge that writes them."""
    words = {"since": options.since or "", "until": options.until or "", "by": options.by or ""}
    try:
        question.ask(**words, now=time.time())
    except question.WrongWords as wrong:
        options.parser.error(str(wrong))
    path = console_of(options)
    query = urlencode({name: said for name, said in words.items() if said})
    document = ask(path, "GET", "/v1/usage" + (f"?{query}" if query else ""), timeout=_PATIENCE)
    if options.format == "json":
        print_json(document)
        return OK
    try:
        by: list[str] = document["by"]
        rows = [[each[name] for name in (*by, *_COLUMNS)] for each in document["usage"]]
        cut = document["truncated"]
    except (KeyError, TypeError):
        raise other_version(path) from None
    if options.format == "csv":
        _print_csv([*by, *_COLUMNS], rows)
    else:
        print("\n".join(_table([*by, *_COLUMNS.values()], rows, len(by))))
    if cut:
        print(f"there are more than {len(rows):,} groups; the rest is left out", file=sys.stderr)
    return OK


def _print_csv(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(heads)
    out.writerows([printable(each) if isinstance(each, str) else each for each in row] for row in rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]], names: int) -> Iterator[str]:
    """Lines in columns: names to the left, numbers to the right."""
    cells = [heads, *([_cell(each) for each in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        line = [
            each.ljust(width) if number < names else each.rjust(width)
            for number, (each, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(line).rstrip()


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    return printable(value) if isinstance(value, str) else f"{value:,}"
