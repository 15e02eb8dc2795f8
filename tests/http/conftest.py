"""Fixtures of the HTTP tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1]))  # socket_doubles

from http_doubles import House, Yard


@pytest.fixture
def house() -> Iterator[House]:
    """A server with its application; at the end every client leaves and nothing may be left."""
    made = House()
    yield made
    made.close()


@pytest.fixture
def build() -> Iterator[Callable[..., House]]:
    """Make such a house with one's own limits or application."""
    made: list[House] = []

    def one(*args: Any, **more: Any) -> House:
        made.append(House(*args, **more))
        return made[-1]

    yield one
    for house in made:
        house.close()


@pytest.fixture
def yard() -> Iterator[Yard]:
    """A client with its backend; at the end the client stops and nothing may be left."""
    made = Yard()
    yield made
    made.close()


@pytest.fixture
def lay() -> Iterator[Callable[..., Yard]]:
    """Make such a yard with one's own settings."""
    made: list[Yard] = []

    def one(**settings: Any) -> Yard:
        made.append(Yard(**settings))
        return made[-1]

    yield one
    for yard in made:
        yard.close()
