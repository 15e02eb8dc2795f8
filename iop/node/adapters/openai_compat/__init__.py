"""The adapter for servers that speak the OpenAI HTTP API: vLLM, llama.cpp, SGLang, LM Studio, cloud APIs, gateways."""
