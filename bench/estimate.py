"""How fast the estimate of input tokens is; with vocabularies and texts, how far off.

usage: estimate.py [--json FILE]
       estimate.py --tokenizer NAME=tokenizer.json ... --texts CLASS=FILE[,FILE...] ...

Alone: MB/s of ``text_tokens`` for texts of about 1 MB of each class, and microseconds of ``estimate`` for requests,
each with its ratio to ``json.loads`` of the same bytes. The second form needs the package ``tokenizers`` and nothing
from a network; it prints a table of errors by class and tokenizer.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from iop.document import Document
from iop.edge.pool.estimate import estimate, text_tokens

SIZE: Final = 1_000_000
"""Bytes of a text, about."""

WINDOW: Final = 2048
"""Bytes of an excerpt, about."""

WORDS: Final = {
    "english": "the lamp of harbour we could remember Winter and, before it. some people walked (twice) along\n",
    "korean": "오늘 아침에는 비가 와서, 평소보다 조금 늦게 집을 나섰다. 사람들이 우산을 쓰고 있었고\n",
    "chinese": "今天早上 下雨了， 所以我 比平时 晚了一点 出门。 公交车站 已经 站满了 打着伞的人\n",
    "russian": "сегодня утром шёл дождь, поэтому я вышел из дома позже обычного. на остановке\n",
    "code": "def if return self.value == None: for (each) in range(10):\n        return [x_1, 'name'] += {}\n",
    "json": '{"name": "value", "list": [1, 2.5, 300], "flag": true, "text": "some words of it", "none": null},\n',
    "digits": "2024-05-17 12:30:01,998 0.25 1e-9 31415926 ff07 12,17,19;\n",
}


def text(kind: str) -> str:
    """Words of a class in a random order, so that no branch predictor learns them."""
    draw, made, size = random.Random(kind), [], 0
    words = WORDS[kind].split(" ")
    while size < SIZE:
        chosen = ("" if kind == "chinese" else " ").join(draw.choices(words, k=1000))
        made.append(chosen)
        size += len(chosen.encode())
    return "".join(made)


def seconds(work: Callable[[], Any]) -> float:
    """The least time of one call, of seven runs of a tenth of a second."""
    begun = time.perf_counter()
    work()
    calls = max(1, int(0.1 / (time.perf_counter() - begun)))
    least = float("inf")
    for _ in range(7):
        begun = time.perf_counter()
        for _ in range(calls):
            work()
        least = min(least, (time.perf_counter() - begun) / calls)
    return least


def requests() -> Iterator[tuple[str, dict[str, Any]]]:
    """A small request, a long conversation, one with many tools and one with an image."""
    said = {"role": "user", "content": "How long does an egg take? In one line."}
    parameter = {"type": "string", "description": "The name of the city, as people write it."}
    function = {"name": "weather", "parameters": {"type": "object", "properties": {"city": parameter}}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0K" * 100_000}}
    yield "small", {"model": "m", "messages": [said]}
    yield "200 messages", {"model": "m", "messages": [said] * 200}
    yield "20 tools", {"model": "m", "messages": [said], "tools": [{"type": "function", "function": function}] * 20}
    yield "image", {"model": "m", "messages": [{"role": "user", "content": [image]}]}


def speed() -> dict[str, float]:
    """Print a line for each class and request, and return the figures."""
    figures: dict[str, float] = {}
    print(f"{'text':<14}{'MB/s':>10}{'of json.loads':>16}")
    for kind in WORDS:
        one = text(kind)
        raw = json.dumps({"prompt": one}, ensure_ascii=False).encode()
        took, parsed = seconds(lambda one=one: text_tokens(one)), seconds(lambda raw=raw: json.loads(raw))  # type: ignore[misc]
        figures[f"{kind}_mb_s"] = round(len(one.encode()) / took / 1e6, 1)
        print(f"{kind:<14}{figures[f'{kind}_mb_s']:>10.0f}{took / parsed:>16.2f}")
    print(f"\n{'request':<14}{'us':>10}{'of json.loads':>16}")
    for name, request in requests():
        raw = json.dumps(request).encode()
        document = Document.parse(raw)
        took, parsed = seconds(lambda d=document: estimate(d)), seconds(lambda raw=raw: json.loads(raw))  # type: ignore[misc]
        figures[f"{name.replace(' ', '_')}_us"] = round(took * 1e6, 2)
        print(f"{name:<14}{took * 1e6:>10.2f}{took / parsed:>16.2f}")
    return figures


def windows(one: str) -> list[str]:
    """A text's excerpts of about 2 KiB."""
    size = max(1, WINDOW * len(one) // max(1, len(one.encode())))
    return [one[at : at + size] for at in range(0, len(one) - size + 1, size)]


def accuracy(tokenizers: list[str], classes: list[str]) -> int:
    """Print real tokens, the error of the estimate and the 90th percentile of the error of excerpts."""
    try:
        from tokenizers import Tokenizer  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        print("--tokenizer needs the package `tokenizers`: pip install tokenizers", file=sys.stderr)
        return 2
    loaded = {name: Tokenizer.from_file(file) for name, _, file in (each.partition("=") for each in tokenizers)}
    print("| class | KB | estimate |" + "".join(f" {name}: tokens, error, p90 |" for name in loaded))
    print("| --- " * (3 + len(loaded)) + "|")
    for kind, _, files in (each.partition("=") for each in classes):
        texts = [pathlib.Path(file).read_text(errors="replace") for file in files.split(",")]
        excerpts = [excerpt for one in texts for excerpt in windows(one)]
        guess, guesses = sum(map(text_tokens, texts)), [text_tokens(excerpt) for excerpt in excerpts]
        line = f"| {kind} | {sum(len(one.encode()) for one in texts) // 1000} | {guess} |"
        for tokenizer in loaded.values():
            counted = [
                [len(each.ids) for each in tokenizer.encode_batch(some, add_special_tokens=False)]
                for some in (texts, excerpts)
            ]
            off = sorted(abs(mine / real - 1) for mine, real in zip(guesses, counted[1], strict=True))
            p90 = f"{off[len(off) * 9 // 10]:.0%}" if off else "-"
            line += f" {sum(counted[0])}, {guess / sum(counted[0]) - 1:+.0%}, {p90} |"
        print(line)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n\n")[0])
    parser.add_argument("--json", type=pathlib.Path, help="write the speeds there too")
    parser.add_argument("--tokenizer", action="append", metavar="NAME=tokenizer.json", default=[])
    parser.add_argument("--texts", action="append", metavar="CLASS=FILE[,FILE...]", default=[])
    options = parser.parse_args()
    if options.tokenizer or options.texts:
        return accuracy(options.tokenizer, options.texts)
    figures = speed()
    if options.json:
        options.json.write_text(json.dumps(figures) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
