"""``iop-edge status`` and ``iop-edge config refresh``: what an operator asks a running edge."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from iop import endpoints
from iop.cli import pool_text, text
from iop.cli.ask import Refused, Unreachable, ask
from iop.cli.edge_config import OK, add, print_json, print_result
from iop.edge.config import STATE_DIR_WORDS, default_state_dir
from iop.edge.refresh import RefreshMode, RefreshResult
from iop.errors import printable
from iop.model import CommandType

UNREACHABLE: Final = 1

_QUERIES: Final = [each.value for each in CommandType]

_NO_SUCH_SESSION: Final = "there is no such session that goes on; node ask NODE SESSIONS shows those there are"

_STATUS_PATIENCE: Final = 10.0
_REFRESH_PATIENCE: Final = 600.0
_END_PATIENCE: Final = 90.0


def add_to(commands: Any, of_config: Any, of_pool: Any) -> None:
    """Add them to the commands of ``iop-edge`` and of ``iop-edge config``."""
    add_socket(add(commands, "status", "say what the edge of this machine is doing", live(status)))
    summary = "change the configuration of the running edge, or say what that would do"
    of_refresh = add(of_config, "refresh", summary, live(refresh))
    of_refresh.add_argument(
        "files", nargs="*", metavar="FILE", help="read by the edge; default: the files it was started with"
    )
    modes = of_refresh.add_mutually_exclusive_group()
    for option, mode, words in (
        ("--dry-run", RefreshMode.DRY_RUN, "only say it; the default"),
        ("--apply", RefreshMode.APPLY, "do it"),
    ):
        modes.add_argument(option, dest="mode", action="store_const", const=mode.value, help=words)
    of_refresh.set_defaults(mode=RefreshMode.DRY_RUN.value)
    add_socket(of_refresh)
    of_node = commands.add_parser("node", help="ask a node how it is", allow_abbrev=False)
    asks = of_node.add_subparsers(metavar="COMMAND", required=True)
    of_ask = add(asks, "ask", "ask a node how it is; nothing runs there", live(node_ask))
    of_ask.add_argument("node", metavar="NODE", help="the node's id")
    of_ask.add_argument("type", metavar="TYPE", type=str.upper, choices=_QUERIES, help="one of %(choices)s")
    add_socket(of_ask)
    ends = add(asks, "end-session", "end a session of an agent, and the run of it that goes on", live(end_session))
    ends.add_argument("node", metavar="NODE", help="the node's id")
    ends.add_argument("adapter", metavar="ADAPTER", help="as `node ask NODE SESSIONS` names it")
    ends.add_argument("session", metavar="SESSION_ID", help="as `node ask NODE SESSIONS` shows it")
    add_socket(ends)
    add_socket(add(of_pool, "status", "say how the providers are and who waits for them", live(pool_status)))


def explain_parser() -> argparse.ArgumentParser:
    """Return the parser of ``run explain``; ``run`` itself is the foreground edge."""
    parser = argparse.ArgumentParser(
        prog="iop-edge run explain",
        description="Say where a run went, and why: its candidates, waits and attempts.",
        allow_abbrev=False,
    )
    parser.add_argument("id", metavar="RUN_ID", help="the run's id, or the x-request-id that its client was told")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="for people, or for programs")
    add_socket(parser)
    parser.set_defaults(command=live(explain), parser=parser)
    return parser


def add_socket(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which edge is asked."""
    parser.add_argument("--console", metavar="SOCKET", type=_socket, help="the edge's console: a path, or unix:PATH")
    parser.add_argument(
        "--state-dir",
        metavar="DIR",
        type=Path,
        help=f"the edge's own; its console is there by default (default {STATE_DIR_WORDS})",
    )


def _socket(words: str) -> str:
    """The path of a socket, also as the configuration writes it."""
    if not words.startswith("unix:"):
        return os.path.expanduser(words)
    try:
        return endpoints.server(words).parameters["address"]
    except endpoints.BadEndpoint as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def console_of(options: argparse.Namespace) -> str:
    """The path of the console that the options mean."""
    if options.console:
        return str(options.console)
    chosen = options.state_dir
    state_dir = Path(os.path.expanduser(chosen)) if chosen else default_state_dir(os.environ)
    return str(state_dir / "console.sock")


def live(command: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """A command that says in a sentence why there is no answer."""

    def run(options: argparse.Namespace) -> int:
        try:
            return command(options)
        except (Unreachable, Refused) as error:
            print(f"error: {error}", file=sys.stderr)
            return UNREACHABLE

    return run


def status(options: argparse.Namespace) -> int:
    """``status``: nodes, providers and models, and how they are."""
    return _show(options, "/v1/status", _lines)


def pool_status(options: argparse.Namespace) -> int:
    """``pool status``: the providers' snapshots, and the queue."""
    return _show(options, "/v1/pool", pool_text.status)


def explain(options: argparse.Namespace) -> int:
    """``run explain``: one run's candidates, waits and attempts."""
    return _show(options, f"/v1/runs/{quote(os.fsencode(options.id), safe='')}", pool_text.explained)


def node_ask(options: argparse.Namespace) -> int:
    """``node ask``: a node's own report."""
    return _show(options, f"/v1/nodes/{quote(os.fsencode(options.node), safe='')}/{options.type}", _report)


def end_session(options: argparse.Namespace) -> int:
    """``node end-session``: the session is gone then, and nobody can go on with it."""
    asked = {"node_id": options.node, "adapter": options.adapter, "session_id": options.session}
    document = ask(console_of(options), "POST", "/v1/sessions/end", asked, timeout=_END_PATIENCE)
    if options.format == "json":
        print_json(document)
    else:
        print("the session has ended" if document.get("found") else _NO_SUCH_SESSION)
    return OK


def _show(options: argparse.Namespace, what: str, lines: Callable[[Any, text.Paint], Iterator[str]]) -> int:
    path = console_of(options)
    document = ask(path, "GET", what, timeout=_STATUS_PATIENCE)
    if options.format == "json":
        print_json(document)
        return OK
    try:
        shown = list(lines(document, text.paint(sys.stdout)))
    except (KeyError, TypeError):
        raise other_version(path) from None
    print("\n".join(shown))
    return OK


def refresh(options: argparse.Namespace) -> int:
    """``config refresh``: the edge's answer, printed as ``config diff`` prints."""
    try:
        files = [os.path.abspath(file) for file in options.files]
    except OSError:
        raise Unreachable("the working directory is gone: name files by their absolute paths") from None
    asked = {"mode": options.mode, "files": files}
    path = console_of(options)
    document = ask(path, "POST", "/v1/config/refresh", asked, timeout=_REFRESH_PATIENCE)
    try:
        result = RefreshResult.of_document(document)
    except (ValueError, KeyError, TypeError):
        raise other_version(path) from None
    return print_result(result, options.format)


def other_version(path: str) -> Unreachable:
    return Unreachable(f"the edge at {path} is of another version")


def _lines(document: Mapping[str, Any], coloured: text.Paint) -> Iterator[str]:
    edge = document["edge"]
    named = f" ({edge['name']})" if edge["name"] != edge["id"] else ""
    state = "draining" if document["draining"] else "up"
    yield coloured(f"{edge['id']}{named}", "bold") + f" {state} for {_duration(document['uptime_ms'])}"
    load = f"{document['in_flight']} in flight, {document['queued']} waiting"
    yield f"version {document['version']}, configuration {document['revision'][:12]}, {load}"
    for node in document["nodes"]:
        word, colour = _node_state(node)
        where = f" on {_shown(node['hostname'])}" if node["connected"] and node["hostname"] else ""
        version = f", version {_shown(node['agent_version'])}" if node["connected"] and node["agent_version"] else ""
        used = _used(node["usage"], ready=word == "ready")
        yield f"node {node['id']}: {coloured(word, colour)}{where}{version}{used}"
        yield from (f"  {said}" for said in _told(node))
    for each in document["providers"]:
        colour = {"online": "green", "offline": "red"}.get(each["status"], "yellow")
        used = f"{each['in_flight']} of {each['capacity']} slots"
        name = f"{each['node_id']}/{each['provider_id']}"
        yield f"provider {name} ({each['type']}): {coloured(each['status'], colour)}, {each['health']}, {used}"
    for model in document["models"]:
        served = ", ".join(f"{each['node_id']}/{each['id']}={each['target']}" for each in model["providers"])
        yield f"model {model['id']}: {served or 'no provider'}"


def _report(document: Mapping[str, Any], coloured: text.Paint) -> Iterator[str]:
    """A node's report: values by name, a list as a table of its objects."""
    for name, value in document.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            names = [each for each in value[0] if any(row[each] not in ("", 0, [], None) for row in value)]
            yield from pool_text.table(
                [names, *[[_shown(_word(row[each])) for each in names] for row in value]], numbers_from=len(names)
            )
        elif name != "truncated":
            yield f"{name}: {_shown(_word(value))}"
    if document["truncated"]:
        yield coloured("the report is longer; the node left the rest out", "yellow")


def _word(value: Any) -> str:
    return (", ".join(map(str, value)) or "none") if isinstance(value, list) else str(value)


def _shown(words: str) -> str:
    """A node's own words, which could hold anything, fit for a terminal."""
    return printable(words)[:200]


def _told(node: Mapping[str, Any]) -> Iterator[str]:
    """What a node says of itself beside that, where it does; ``node ask`` has all of it."""
    if (transport := node["transport"]) is not None:
        carried = f"{transport['bytes_in'] >> 10} KiB in, {transport['bytes_out'] >> 10} KiB out"
        again = f", {transport['reconnects']} times anew" if transport["reconnects"] else ""
        loss = f" (last lost: {_shown(transport['last_loss'])})" if transport["last_loss"] else ""
        yield f"linked for {_duration(transport['connected_ms'])}{again}{loss}: {carried}"
    if (capabilities := node["capabilities"]) is not None:
        adapters = ", ".join(f"{_shown(each['name'])} ({_shown(each['type'])})" for each in capabilities["adapters"])
        yield f"adapters: {adapters or 'none'}"
    if node["sessions"]:
        yield f"sessions: {', '.join(f'{count} {_shown(state)}' for state, count in node['sessions'].items())}"
    if (providers := node["providers"]) is not None:
        seen = ", ".join(
            f"{_shown(each['provider_id'])} {_shown(each['health'])}, {each['in_flight']} running"
            for each in providers["providers"]
        )
        yield f"sees: {seen or 'no provider'}"


def _used(usage: Mapping[str, Any] | None, *, ready: bool) -> str:
    """What a node has done since it began, where it said so."""
    if usage is None:
        return "; it does not answer" if ready else ""
    tokens = f"{usage['input_tokens']} tokens in, {usage['output_tokens']} out"
    return f"; {usage['runs_total']} runs, {usage['runs_failed']} failed, {tokens}, {usage['resident_bytes'] >> 20} MiB"


def _node_state(node: Mapping[str, Any]) -> tuple[str, str]:
    if not node["connected"]:
        return "not connected", "red"
    if node["draining"]:
        return "draining", "yellow"
    return ("ready", "green") if node["ready"] else ("getting ready", "yellow")


def _duration(milliseconds: int) -> str:
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [f"{days} d" if days else "", f"{hours} h" if hours or days else "", f"{minutes} min" if minutes else ""]
    return " ".join(part for part in parts if part) or f"{seconds} s"
