"""The adapter for servers that speak the OpenAI HTTP API."""
