"""What an edge is put together from, without starting it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway_in_memory import document
from memory_net import MemoryNet
from twisted.application.service import Application
from twisted.logger import ILogObserver
from zope.interface.verify import verifyObject

from iop.edge.accesslog import AccessLog
from iop.edge.config import load_document
from iop.edge.metrics.recorder import Metrics
from iop.edge.tap import Edge
from iop.interfaces import IRecorder
from iop.logs import of_twistd


def edge(**settings: Any) -> Edge:
    made = load_document(document(**settings), state_dir=Path("/state")).config
    return Edge(made, MemoryNet(), state_dir=Path("/state"))


def test_every_request_is_logged_and_counted_if_that_is_wanted() -> None:
    assert [type(each) for each in edge().recorders] == [AccessLog]
    counted = edge(metrics={"listen": "tcp:4690"})
    assert [type(each) for each in counted.recorders] == [AccessLog, Metrics]
    assert all(verifyObject(IRecorder, each) for each in counted.recorders)


def test_the_gauges_are_those_of_this_edge() -> None:
    metrics = edge(metrics={"listen": "tcp:4690"}).recorders[1]
    metrics.look()
    assert b'\niop_nodes{state="offline"} 1.0\n' in metrics.exposition("")[0]


def test_its_log_is_written_by_its_own_observer() -> None:
    made: Any = edge()
    application: Any = Application("without")
    made.setServiceParent(application)
    assert application.getComponent(ILogObserver, None) is None
    made = edge()
    made.observer = of_twistd({"nodaemon": True}, "info", "json")
    application = Application("with")
    made.setServiceParent(application)
    assert application.getComponent(ILogObserver) is made.observer
