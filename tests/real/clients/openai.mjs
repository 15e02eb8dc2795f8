// The `openai` SDK for Node.

import OpenAI from "openai";

import { WEATHER, asked, refusal, run } from "./steps.mjs";

const { key, model, url } = asked;
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const hello = [{ role: "user", content: "Hello" }];
const rain = [{ role: "user", content: "Is it raining?" }];
const tools = [{ type: "function", function: { name: "weather", description: "The weather.", parameters: WEATHER } }];

async function drain(stream) {
  const all = [];
  for await (const each of stream) all.push(each);
  return all;
}

await run({
  async models() {
    return (await drain(await client.models.list())).map((each) => each.id);
  },
  async chat() {
    return client.chat.completions.create({ model, messages: hello });
  },
  async stream() {
    const options = { stream: true, stream_options: { include_usage: true } };
    return drain(await client.chat.completions.create({ model, messages: hello, ...options }));
  },
  async helper() {
    const stream = client.chat.completions.stream({ model, messages: hello });
    return stream.finalChatCompletion();
  },
  async tools() {
    const first = await client.chat.completions.create({ model, messages: rain, tools });
    const message = first.choices[0].message;
    const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "dry" };
    const second = await client.chat.completions.create({ model, messages: [...rain, message, result], tools });
    return [first, second];
  },
  async schema() {
    const format = { type: "json_schema", json_schema: { name: "weather", schema: WEATHER, strict: true } };
    return client.chat.completions.create({ model, messages: hello, response_format: format });
  },
  async leave() {
    const stream = await client.chat.completions.create({ model, messages: hello, stream: true });
    for await (const _ of stream) break; // the SDK aborts the request
    return client.chat.completions.create({ model, messages: hello });
  },
  async refusals() {
    const other = new OpenAI({ baseURL: `${url}/v1`, apiKey: "sk-wrong", maxRetries: 0 });
    return [
      await refusal(() => client.chat.completions.create({ model: "nothing", messages: hello })),
      await refusal(() => other.chat.completions.create({ model, messages: hello })),
    ];
  },
  async completion() {
    return client.completions.create({ model, prompt: "Every" });
  },
  async embeddings() {
    const input = ["Every answer", "of this model"];
    const packed = await client.embeddings.create({ model, input });
    const floats = await client.embeddings.create({ model, input, encoding_format: "float" });
    return [packed, floats];
  },
  async response() {
    return client.responses.create({ model, input: "Hello", store: false });
  },
  async response_stream() {
    return drain(await client.responses.create({ model, input: "Hello", stream: true }));
  },
});
