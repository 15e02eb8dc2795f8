"""The adapter types that come with IOP. Names only: discovery imports this file in every process."""

from iop.node.adapters.plugin import AdapterPlugin

openai_compat = AdapterPlugin("openai_compat", "iop.node.adapters.openai_compat.adapter:factory")
cli = AdapterPlugin("cli", "iop.node.adapters.cli.adapter:factory")
ollama = AdapterPlugin("ollama", "iop.node.adapters.ollama.adapter:factory")
