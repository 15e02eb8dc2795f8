"""A client that leaves stops the model: llama.cpp's slots say so. ``docs/contracts/openai.md`` (Client gone)."""

from __future__ import annotations

import asyncio
import time

import openai
import pytest
from raw_http import Wire, chat
from real_gateway import Backend, Gateway, user
from running import until

SOON = 3.0
"""Seconds; the endless model goes on for ten and more when nobody stops it."""


def idle(endless: Backend, seconds: float = SOON) -> None:
    until(lambda: not endless.busy, "llama.cpp's slots are free", seconds)


def working(endless: Backend, slots: int = 1) -> None:
    until(lambda: endless.busy == slots, f"{slots} of llama.cpp's slots at work")


@pytest.fixture(autouse=True)
def _still(endless: Backend) -> None:
    idle(endless, 30)


def test_stream(gateway: Gateway, endless: Backend) -> None:
    with gateway.client() as client:
        stream = client.chat.completions.create(model="endless", messages=user("Go"), stream=True)
        for _, _chunk in zip(range(5), stream, strict=False):
            pass
        assert endless.busy == 1
        stream.close()
        idle(endless)


def test_async_stream(gateway: Gateway, endless: Backend) -> None:
    async def leave() -> None:
        async with gateway.async_client() as client:
            stream = await client.chat.completions.create(model="endless", messages=user("Go"), stream=True)
            async for _ in stream:
                break
            await stream.close()
            await asyncio.to_thread(idle, endless)

    asyncio.run(leave())


def test_whole_answer(gateway: Gateway, endless: Backend) -> None:
    """Which llama.cpp itself does not notice: the node streams from it all the same."""
    with pytest.raises(openai.APITimeoutError):
        gateway.client(timeout=0.4).chat.completions.create(model="endless", messages=user("Go"))
    idle(endless)


def test_async_whole_answer(gateway: Gateway, endless: Backend) -> None:
    async def leave() -> None:
        async with gateway.async_client() as client:
            asking = asyncio.ensure_future(client.chat.completions.create(model="endless", messages=user("Go")))
            await asyncio.to_thread(working, endless)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await asyncio.to_thread(idle, endless)

    asyncio.run(leave())


def test_one_leaves_and_one_stays(gateway: Gateway, endless: Backend) -> None:
    with Wire(gateway.port) as stays, Wire(gateway.port) as leaves:
        stays.send(chat("Go", model="endless", stream=True, max_tokens=600))
        stays.begin()
        leaves.send(chat("Go", model="endless", stream=True))
        leaves.begin()
        working(endless, 2)
        leaves.reset()
        working(endless, 1)
        answer = stays.rest()
    assert answer.events[-1] == "[DONE]"
    assert '"length"' in answer.events[-2]


def test_slots_come_back(gateway: Gateway, endless: Backend) -> None:
    """The model has two: more clients than that may leave one after another, and two more are served."""
    for number in range(6):
        with Wire(gateway.port) as wire:
            wire.send(chat("Go", model="endless", stream=number % 2 == 0))
            working(endless)
        idle(endless)
    with Wire(gateway.port) as one, Wire(gateway.port) as two:
        for wire in (one, two):
            wire.send(chat("Go", model="endless", stream=True))
        assert (one.begin().status, two.begin().status) == (200, 200)
    idle(endless)


def test_before_the_first_token(gateway: Gateway, fake: Backend) -> None:
    for stream in (True, False):
        with Wire(gateway.port) as wire:
            wire.send(chat("silence", stream=stream))
            until(lambda: fake.stats["requests"] == 1, "the backend has the request")
        left = time.monotonic()
        until(lambda: fake.stats["requests"] == 0, "the backend is left alone", SOON)
        assert time.monotonic() - left < 1.0
