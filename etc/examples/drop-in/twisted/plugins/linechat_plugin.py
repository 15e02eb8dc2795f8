"""The adapter type ``linechat``. Names only: discovery imports this file in every process."""

from iop.node.adapters.plugin import AdapterPlugin

linechat = AdapterPlugin("linechat", "linechat.adapter:factory")
