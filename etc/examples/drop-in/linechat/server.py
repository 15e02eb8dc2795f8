"""A backend to try it on: ``python -m linechat.server PORT``. Its one model, ``parrot``, repeats the last message."""

from __future__ import annotations

import json
import sys
from typing import Any

from twisted.internet import task
from twisted.internet.protocol import ServerFactory, connectionDone
from twisted.protocols.basic import LineReceiver
from twisted.python.failure import Failure

WORD_SECONDS = 0.02
"""How long it thinks about a word."""


class Parrot(LineReceiver):
    """One connection, one question."""

    delimiter = b"\n"
    MAX_LENGTH = 64 << 20
    transport: Any = None

    def __init__(self) -> None:
        self._saying = task.LoopingCall(self._word)
        self._words: list[str] = []
        self._said = self._heard = 0

    def say(self, **document: Any) -> None:
        self.sendLine(json.dumps(document).encode())

    def end(self, **document: Any) -> None:
        self.say(**document)
        self.transport.loseConnection()

    def _word(self) -> None:
        if self._said < len(self._words):
            word = self._words[self._said]
            self._said += 1
            self.say(text=word if self._said == 1 else f" {word}")
        else:
            self._saying.stop()
            self.end(done="stop", input_tokens=self._heard, output_tokens=self._said)

    # Called by Twisted.

    def lineReceived(self, line: bytes) -> None:
        asked = json.loads(line)
        if asked["ask"] == "models":
            self.end(models=["parrot"])
        elif asked["model"] != "parrot":
            self.end(error=f"there is no model {asked['model']}")
        else:
            self._words = asked["messages"][-1]["text"].split()[: asked.get("max_tokens")]
            self._heard = sum(len(message["text"].split()) for message in asked["messages"])
            self._saying.start(WORD_SECONDS)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._saying.running:
            self._saying.stop()


def main() -> None:
    """Listen on loopback until somebody ends it."""
    from twisted.internet import reactor

    listening: Any = ServerFactory.forProtocol(Parrot)
    reactor.listenTCP(int(sys.argv[1]), listening, interface="127.0.0.1")
    reactor.run()


if __name__ == "__main__":
    main()
