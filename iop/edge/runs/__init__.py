"""The life of a run: where pool and nodes meet."""

from iop.edge.runs.ask import Answer, Ask
from iop.edge.runs.run import WINDOW, Run, new_id
from iop.edge.runs.runs import Runs

__all__ = ["WINDOW", "Answer", "Ask", "Run", "Runs", "new_id"]
