"""IOP: one OpenAI endpoint for every model server and coding agent a team runs."""

__version__ = "0.1.0.dev0"
