"""The OpenAI-compatible surface. ``docs/contracts/openai.md``."""
