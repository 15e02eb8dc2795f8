"""The adapter for Ollama, by its native API."""
