"""Asks a running edge over its console socket. ``docs/contracts/console.md``."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any


class Unreachable(Exception):
    """The edge could not be asked, or did not answer as an edge does; the message is for the operator."""


class Refused(Exception):
    """The edge answered that it will not; the message is its own."""


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("console", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask(path: str, method: str, target: str, document: Any = None, *, timeout: float) -> dict[str, Any]:
    """Return what the edge behind the socket answers.

    :param timeout: in seconds, of each step.
    :raises Unreachable, Refused:
    """
    body = None if document is None else json.dumps(document)
    connection = _Connection(path, timeout)
    try:
        connection.request(method, target, body, {"content-type": "application/json"} if body else {})
        answer = connection.getresponse()
        said = json.loads(answer.read())
        if answer.status == 200 and isinstance(said, dict):
            return said
        raise Refused(str(said["error"]["message"]))
    except TimeoutError:
        raise Unreachable(f"the edge at {path} did not answer within {timeout:g} s") from None
    except OSError as error:
        raise Unreachable(f"no edge answers at {path}: {error.strerror or error}") from None
    except (http.client.HTTPException, ValueError, KeyError, TypeError):
        raise Unreachable(f"what answers at {path} is no edge") from None
    finally:
        connection.close()
