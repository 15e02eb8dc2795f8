"""What hides an adapter's credentials in texts. docs/contracts/adapters.md (Credentials)."""

from __future__ import annotations

import pytest
from twisted.python.failure import Failure as TwistedFailure

from iop.errors import Failure
from iop.node.hiding import Hiding

KEY = "sk-proj-0123456789abcdef"
SETTINGS = {
    "base_url": "http://us%40er:pass%3Aword@host/v1",
    "headers": {"Authorization": f"Bearer {KEY}", "x-short": "on"},
    "env": {"HOME": "/var/lib/agents/one"},
    "connection": {"api_key": "key-of-the-connection"},
    "pin": "marked-as-secret",
    "model": "a-model-that-is-no-secret",
}
HIDING = Hiding(SETTINGS, {"properties": {"pin": {"x-secret": True}, "model": {"type": "string"}}})


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("nothing to hide", "nothing to hide"),
        (f"wrong key: Bearer {KEY}.", "wrong key: [credential]."),
        (f"wrong key '{KEY}' (401)", "wrong key '[credential]' (401)"),
        ("wrong key sk-proj-***cdef, sorry", "wrong key [credential], sorry"),
        ("wrong key sk-pr", "wrong key sk-pr"),
        ("pass%3Aword and pass:word", "[credential] and [credential]"),
        ("Basic dXNAZXI6cGFzczp3b3Jk", "Basic [credential]"),
        ("no /var/lib/agents/one/x, but /var/lib/agents/two", "no [credential]/x, but /var/lib/agents/two"),
        ("key-of-the-connection, marked-as-secret", "[credential], [credential]"),
        ("a-model-that-is-no-secret is on", "a-model-that-is-no-secret is on"),
    ],
)
def test_texts(said: str, shown: str) -> None:
    assert HIDING.text(said) == shown


def test_headers_of_one_run() -> None:
    more = (("Authorization", "Bearer a-token-of-a-caller"),)
    assert HIDING.text("not a-token-of-a-caller", more) == "not [credential]"
    assert HIDING.text("not a-token-of-a-caller") == "not a-token-of-a-caller"


def test_a_failure_keeps_everything_else() -> None:
    failure = Failure(
        "rate_limited",
        f"not so fast, {KEY}",
        http_status=499,
        type="some",
        param="model",
        retryable=False,
        retry_after_ms=7,
        headers=(("x-ratelimit", "1"),),
    )
    shown = HIDING.failure(failure)
    assert vars(shown) == {**vars(failure), "message": "not so fast, [credential]"}
    assert HIDING.failure(shown) is shown


def test_a_traceback_keeps_its_type_and_its_place() -> None:
    def refuse() -> None:
        raise LookupError(f"no header {KEY}")

    with pytest.raises(LookupError) as caught:
        refuse()
    reason = TwistedFailure(caught.value, caught.type, caught.tb)
    assert KEY in reason.getTraceback()
    shown = HIDING.reason(reason)
    assert KEY not in shown.getTraceback()
    assert "builtins.LookupError: no header [credential]" in shown.getTraceback()
    assert ", in refuse" in shown.getTraceback()
    assert Hiding().reason(reason) is reason


def test_an_exception_without_words() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    reason = TwistedFailure(Mute())
    assert HIDING.reason(reason) is reason


@pytest.mark.parametrize("settings", [None, {}, {"base_url": "http://[bad"}, {"headers": ["x"], "token": 7}])
def test_settings_that_hold_none(settings: dict[str, object] | None) -> None:
    assert Hiding(settings).text("a text as it is") == "a text as it is"
