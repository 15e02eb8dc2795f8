// Vercel's AI SDK with its provider for OpenAI-compatible servers.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

import { asked, run } from "./steps.mjs";

const { key, model, url } = asked;
const provider = createOpenAICompatible({
  name: "edge",
  baseURL: `${url}/v1`,
  apiKey: key,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const common = { model: provider(model), maxRetries: 0 };
const city = z.object({ city: z.string() });
const tools = { weather: tool({ description: "The weather.", inputSchema: city, execute: async () => "dry" }) };

await run({
  async text() {
    const { finishReason, text, usage } = await generateText({ ...common, prompt: "Hello" });
    return { finishReason, text, usage };
  },
  async stream() {
    const result = streamText({ ...common, prompt: "Hello" });
    const pieces = [];
    for await (const piece of result.textStream) pieces.push(piece);
    return { pieces, finishReason: await result.finishReason, usage: await result.usage };
  },
  async tools() {
    const result = await generateText({ ...common, prompt: "Is it raining?", tools, stopWhen: stepCountIs(3) });
    return { text: result.text, calls: result.steps.map((step) => step.toolCalls.map((call) => call.toolName)) };
  },
  async streamed_tools() {
    const result = streamText({ ...common, prompt: "Is it raining?", tools, stopWhen: stepCountIs(3) });
    const steps = await result.steps;
    return { text: await result.text, calls: steps.map((step) => step.toolCalls.map((call) => call.toolName)) };
  },
  async object() {
    return (await generateObject({ ...common, prompt: "Hello", schema: city })).object;
  },
  async embeddings() {
    const embedding = provider.textEmbeddingModel(model);
    return (await embedMany({ model: embedding, maxRetries: 0, values: ["Every answer", "of this model"] })).embeddings;
  },
});
