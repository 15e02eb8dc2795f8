"""One process at a time in a state directory."""

from __future__ import annotations

import warnings

import pytest

from iop.cli.lock import AlreadyRunning, Lock


def test_the_second_one_is_told_who_has_it_and_leaves_nothing_open(tmp_path):
    first = Lock(tmp_path / "lock")
    first.say("http://127.0.0.1:4600/v1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(AlreadyRunning, match=r"already running, pid \d+, at http://127.0.0.1:4600/v1"):
            Lock(tmp_path / "lock")
    first._file.close()
    Lock(tmp_path / "lock")._file.close()
