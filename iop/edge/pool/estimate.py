"""How many input tokens a request has, about; the pool tells long requests by it. Pure.

No tokenizer: each model has another one, and to count with one costs more than all else the edge does. A text is
weighed instead: each byte of its UTF-8 form has a weight, by its script. ``docs/token-estimate.md`` has the accuracy.
"""

from __future__ import annotations

import re
import string
from typing import Any, Final
from zlib import adler32

MESSAGE: Final = 4
"""Tokens around one message: its role and the template's marks."""

REPLY: Final = 3
"""Tokens by which a chat template opens the answer."""

MEMBER: Final = 2
"""Tokens of quotes, colon and comma around one member of a schema."""

IMAGE: Final = 765
"""Tokens of an image, whatever its size: 1024 x 1024 pixels in tiles."""

AUDIO: Final = 500
"""Tokens of a sound: some 20 to 50 seconds of speech."""

FILE: Final = 2000
"""Tokens of a file or a video, and of encoded bytes in a place unknown: a few pages."""

_MEDIA: Final = {
    **dict.fromkeys(("image", "image_url", "input_image"), IMAGE),
    **dict.fromkeys(("audio", "audio_url", "input_audio"), AUDIO),
    **dict.fromkeys(("file", "input_file", "video", "video_url"), FILE),
}
"""By a part's ``type``; by the name of its member when it has no such type."""

_SILENT: Final = frozenset(
    {"role", "type", "id", "call_id", "tool_call_id", "tool_use_id", "status", "index", "cache_control", "signature"}
)
"""Members of messages and parts that a template leaves out, or that ``MESSAGE`` pays for."""

_NESTED: Final = frozenset({"content", "output", "source", "summary"})
"""Members of messages and parts that hold parts."""

_CENT, _SPACE, _PAIR = 100, 40, 6
"""Weights are hundredths of a token. Two spaces in a row: indentation is a token or two, however deep."""


def _weights() -> bytes:
    """Return the weight of each byte. Of a character beyond ASCII the first byte has all of it: it tells the script."""
    made = bytearray([10]) * 0x80 + bytearray(0x80)
    for characters, weight in (
        (" ", _SPACE),
        (string.ascii_lowercase, 15),
        ("\n", 120),  # it is one, and cuts a word or an indentation off
        (string.ascii_uppercase, 24),
        (string.digits, 80),  # between three digits a token and one
        ("()[]{}<>", 88),
        ("\"'`", 50),
        ("!#$%&*+,-./:;=?@\\^_|~", 42),
    ):
        for character in characters:
            made[ord(character)] = weight
    for first, last, weight in (
        (0xC2, 0xC9, 110),  # letters with accents: they break a word
        (0xCA, 0xCF, 60),  # Greek
        (0xD0, 0xD3, 26),  # Cyrillic
        (0xD4, 0xD5, 85),  # Armenian
        (0xD6, 0xD7, 55),  # Hebrew
        (0xD8, 0xDF, 38),  # Arabic, Syriac
        (0xE0, 0xE0, 60),  # the scripts of India; Thai, Lao
        (0xE1, 0xE1, 50),  # Georgian, Khmer, Ethiopic; Vietnamese letters with two accents
        (0xE2, 0xE2, 110),  # typographic signs, arrows, mathematics
        (0xE3, 0xE3, 65),  # kana, CJK punctuation
        (0xE4, 0xE9, 69),  # Han
        (0xEA, 0xED, 63),  # Hangul
        (0xEE, 0xEF, 65),  # full-width forms
        (0xF0, 0xF4, 200),  # emoji, rare Han
    ):
        made[first : last + 1] = bytes([weight]) * (last + 1 - first)
    return bytes(made)


_WEIGHTS: Final = _weights()

_STRETCH: Final = 512
"""Bytes whose weights stay under 65,521 in sum: no ASCII weighs more than 120, and no other byte on average."""

_BLOB: Final = re.compile(r"data:[^,\s]{0,200},|[A-Za-z0-9+/=_-]{512}")
"""How encoded bytes begin. The second needs a length that words and names do not reach."""


def text_tokens(text: str) -> int:
    """Return the tokens of one text, within 25 % on ordinary English, Korean, Chinese, code and JSON."""
    encoded = text.encode("utf-8", "surrogatepass")
    cents = _sum(encoded.translate(_WEIGHTS)) - (2 * _SPACE - _PAIR) * encoded.count(b"  ")
    return (cents + _CENT - 1) // _CENT


def _sum(weights: bytes) -> int:
    """Return the sum of all bytes: one more than it, modulo 65,521, is the low half of Adler-32, and that is fast."""
    if len(weights) <= _STRETCH:
        return (adler32(weights) & 0xFFFF) - 1
    view = memoryview(weights)
    stretches = range(0, len(view), _STRETCH)
    return sum([adler32(view[at : at + _STRETCH]) & 0xFFFF for at in stretches]) - len(stretches)


def estimate(document: Any) -> int:
    """Return the input tokens of a chat request: texts, parts, tool schemas and what a chat template adds.

    :param document: a :class:`iop.document.Document`, or anything whose ``get`` returns its values: objects as tuples
        of pairs, arrays as lists. Completions (``prompt``), embeddings and responses (``input``) are read as well.

    Time is linear in the size and depth does not matter; what has another shape than the API's counts by its texts.
    """
    get, texts, tokens = document.get, list[str](), 0
    if (messages := get("messages")) is not None:
        tokens = REPLY + _turns(messages, texts, MESSAGE)
    for name in ("prompt", "input"):
        if (turns := get(name)) is not None:
            tokens += _turns(turns, texts, MESSAGE)
    for name in ("system", "instructions"):
        if (before := get(name)) is not None:
            tokens += MESSAGE + _turns(before, texts, 0)
    for name in ("tools", "functions", "response_format"):
        if (schema := get(name)) is not None:
            tokens += _schema(schema, texts)
    return tokens + text_tokens("".join(texts))


def longest(document: Any) -> int | None:
    """Return the tokens of the longest of several prompts or inputs, which a model reads one by one; None for one."""
    sizes = [
        text_tokens(each) if type(each) is str else len(each)
        for several in (document.get("prompt"), document.get("input"))
        if type(several) is list
        for each in several
        if type(each) in (str, list)
    ]
    return max(sizes, default=None)


def _turns(value: Any, texts: list[str], each: int) -> int:
    """Gather the texts of messages, parts, strings and token ids, and return the tokens of all else.

    :param each: the tokens around an object, unless it is nested in another.
    """
    tokens, stack, inside = 0, [value], list[Any]()
    while stack or inside:
        if not stack:
            stack, inside, each = inside, [], 0
        value = stack.pop()
        kind = type(value)
        if kind is tuple:
            tokens += each + _members(dict(value), texts, inside)
        elif kind is str:
            texts.append(value)
        elif kind is list:
            stack += value
        elif kind is int:
            tokens += 1
    return tokens


def _members(part: dict[str, Any], texts: list[str], inside: list[Any]) -> int:
    """Gather the texts of a message or a part, and what is nested in it; return the tokens of all else."""
    type_, tokens = part.get("type"), 0
    if type(type_) is str and type_ in _MEDIA:
        return _MEDIA[type_]
    for name, value in part.items():
        if name in _SILENT or value is None:
            continue
        if name in _MEDIA:
            tokens += _MEDIA[name]
        elif type(value) is str:
            # Text is text, even where it looks like bytes: the model reads it.
            if len(value) < 512 or name == "text" or name == "content" or not _BLOB.match(value):
                texts.append(value)
            else:
                tokens += FILE
        elif name in _NESTED:
            inside.append(value)
        else:
            tokens += _schema(value, texts)
    return tokens


def _schema(value: Any, texts: list[str]) -> int:
    """Gather names and strings of any JSON value, and return the tokens of what stands between them."""
    tokens, stack = 0, [value]
    while stack:
        value = stack.pop()
        kind = type(value)
        if kind is tuple:
            tokens += MEMBER * len(value)
            for name, inner in value:
                texts.append(name)
                stack.append(inner)
        elif kind is list:
            tokens += len(value)
            stack += value
        elif kind is not str:
            tokens += 1
        elif len(value) < 512 or not _BLOB.match(value):
            texts.append(value)
        else:
            tokens += FILE
    return tokens
