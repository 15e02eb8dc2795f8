// Anthropic's SDK for Node.

import Anthropic from "@anthropic-ai/sdk";

import { WEATHER, asked, refusal, run } from "./steps.mjs";

const { key, model, url } = asked;
const client = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
const common = { model, max_tokens: 100 };
const hello = [{ role: "user", content: "Hello" }];
const rain = [{ role: "user", content: "Is it raining?" }];
const tools = [{ name: "weather", description: "The weather.", input_schema: WEATHER }];

await run({
  async message() {
    return client.messages.create({ ...common, messages: hello });
  },
  async stream() {
    const stream = client.messages.stream({ ...common, messages: hello });
    const pieces = [];
    stream.on("text", (piece) => pieces.push(piece));
    return { message: await stream.finalMessage(), pieces };
  },
  async tools() {
    const first = await client.messages.stream({ ...common, messages: rain, tools }).finalMessage();
    const call = first.content.find((block) => block.type === "tool_use");
    const result = { role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: "dry" }] };
    const spoken = [...rain, { role: "assistant", content: first.content }, result];
    return [first, await client.messages.create({ ...common, messages: spoken, tools })];
  },
  async count() {
    return client.messages.countTokens({ model, messages: hello });
  },
  async refusals() {
    const other = new Anthropic({ baseURL: url, apiKey: "sk-wrong", maxRetries: 0 });
    return [
      await refusal(() => client.messages.create({ ...common, model: "nothing", messages: hello })),
      await refusal(() => other.messages.create({ ...common, messages: hello })),
    ];
  },
});
