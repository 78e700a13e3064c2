// Clients of Ollama from npm, as their documentation has them. Each line that comes in is a question,
// as JSON: {client, ask, url, model, stream, ...}; each line that goes out is {answer, called} or {error}.
// `test_ollama_clients.py` asks.
import { createInterface } from "node:readline";

import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { ChatOllama } from "@langchain/ollama";
import { Output, generateText, isStepCount, jsonSchema, streamText, tool } from "ai";
import { createOllama } from "ai-sdk-ollama";
import { Ollama } from "ollama";

const DESCRIPTIONS = { get_weather: "Tell the weather in a city.", get_time: "Tell the time." };
const CITY = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const NOTHING = { type: "object", properties: {} };
const PARAMETERS = { get_weather: CITY, get_time: NOTHING };

/** The tools of a question: what they say is sent with it, and `called` is what they were asked. */
class Tools {
  constructor({ weather, time }) {
    this.called = [];
    this.said = { get_weather: ({ city }) => weather[city], get_time: () => time };
  }

  run(name, args) {
    this.called.push([name, args.city ?? ""]);
    return this.said[name](args);
  }
}

const FUNCTIONS = Object.keys(DESCRIPTIONS).map((name) => ({
  type: "function",
  function: { name, description: DESCRIPTIONS[name], parameters: PARAMETERS[name] },
}));

/** Add the lines of a stream up to one answer. */
async function addUp(lines) {
  let whole;
  for await (const line of lines) {
    const before = whole?.message ?? {};
    whole = line;
    for (const name of ["content", "thinking"]) {
      if (before[name]) whole.message[name] = before[name] + (line.message[name] ?? "");
    }
    if (before.tool_calls) {
      whole.message.tool_calls = [...before.tool_calls, ...(line.message.tool_calls ?? [])];
    }
  }
  return whole;
}

const ollamaJs = {
  async chat({ url, model, stream, form }, messages, more = {}) {
    const client = new Ollama({ host: url });
    const answer = await client.chat({ model, messages, stream, format: form, ...more });
    return stream ? addUp(answer) : answer;
  },

  async run(asked, tools) {
    const messages = [{ role: "user", content: asked.words }];
    for (;;) {
      const { message } = await this.chat(asked, messages, { tools: FUNCTIONS });
      messages.push(message);
      if (!message.tool_calls?.length) return message.content;
      for (const { function: made } of message.tool_calls) {
        const content = tools.run(made.name, made.arguments);
        messages.push({ role: "tool", tool_name: made.name, content });
      }
    }
  },

  async think(asked) {
    const asking = [{ role: "user", content: asked.words }];
    const { message } = await this.chat(asked, asking, { think: true });
    return [message.thinking, message.content];
  },

  async fill(asked) {
    const { message } = await this.chat(asked, [{ role: "user", content: asked.words }]);
    return JSON.parse(message.content);
  },

  async show(asked) {
    const message = { role: "user", content: asked.words, images: [asked.picture] };
    return (await this.chat(asked, [message])).message.content;
  },

  async tell(asked) {
    return this.chat(asked, [{ role: "user", content: asked.words }], { tools: FUNCTIONS });
  },
};

const langChain = {
  model({ url, model }, more = {}) {
    return new ChatOllama({ baseUrl: url, model, maxRetries: 0, ...more });
  },

  async put(model, { stream }, messages) {
    if (!stream) return model.invoke(messages);
    let whole;
    for await (const piece of await model.stream(messages)) whole = whole ? whole.concat(piece) : piece;
    return whole;
  },

  async run(asked, tools) {
    const model = this.model(asked).bindTools(FUNCTIONS);
    const messages = [new HumanMessage(asked.words)];
    for (;;) {
      const answer = await this.put(model, asked, messages);
      messages.push(answer);
      if (!answer.tool_calls?.length) return answer.content;
      for (const { id, name, args } of answer.tool_calls) {
        messages.push(new ToolMessage({ content: tools.run(name, args), tool_call_id: id, name }));
      }
    }
  },

  async think(asked) {
    const model = this.model(asked, { think: true });
    const answer = await this.put(model, asked, [new HumanMessage(asked.words)]);
    return [answer.additional_kwargs.reasoning_content, answer.content];
  },

  async fill(asked) {
    const model = this.model(asked).withStructuredOutput(asked.form, { method: "jsonSchema" });
    return model.invoke([new HumanMessage(asked.words)]);
  },

  async show(asked) {
    const picture = { type: "image_url", image_url: `data:image/png;base64,${asked.picture}` };
    const content = [{ type: "text", text: asked.words }, picture];
    return (await this.model(asked).invoke([new HumanMessage({ content })])).content;
  },

  async tell(asked) {
    const model = this.model(asked).bindTools(FUNCTIONS);
    const answer = await this.put(model, asked, [new HumanMessage(asked.words)]);
    const { content, tool_calls, usage_metadata, response_metadata } = answer;
    return { content, tool_calls, usage_metadata, response_metadata };
  },
};

const aiSdk = {
  model({ url, model }, more) {
    return createOllama({ baseURL: url })(model, more);
  },

  /** Text and reasoning of an answer, streamed or not. */
  async put({ stream }, options) {
    const problems = [];
    const quiet = { maxRetries: 0, ...options };
    const answer = stream
      ? streamText({ ...quiet, onError: ({ error }) => problems.push(error) })
      : await generateText(quiet);
    if (stream) await answer.consumeStream();
    if (problems.length) throw problems[0];
    return answer;
  },

  tools(tools) {
    const made = Object.keys(DESCRIPTIONS).map((name) => [
      name,
      tool({
        description: DESCRIPTIONS[name],
        inputSchema: jsonSchema(PARAMETERS[name]),
        ...(tools && { execute: async (args) => tools.run(name, args) }),
      }),
    ]);
    return Object.fromEntries(made);
  },

  async run(asked, tools) {
    const options = { model: this.model(asked), prompt: asked.words, tools: this.tools(tools) };
    return (await this.put(asked, { ...options, stopWhen: isStepCount(9) })).text;
  },

  async think(asked) {
    const model = this.model(asked, { think: true });
    const answer = await this.put(asked, { model, prompt: asked.words });
    return [await answer.reasoningText, await answer.text];
  },

  async fill(asked) {
    const output = Output.object({ schema: jsonSchema(asked.form) });
    return (await this.put(asked, { model: this.model(asked), prompt: asked.words, output })).output;
  },

  async show(asked) {
    const picture = { type: "file", data: asked.picture, mediaType: "image/png" };
    const content = [{ type: "text", text: asked.words }, picture];
    return (await this.put(asked, { model: this.model(asked), messages: [{ role: "user", content }] })).text;
  },

  async tell(asked) {
    const options = { model: this.model(asked), prompt: asked.words, tools: this.tools() };
    const answer = await this.put(asked, options);
    const calls = (await answer.toolCalls).map(({ toolName, input }) => ({ toolName, input }));
    return { text: await answer.text, calls, reason: await answer.finishReason, usage: await answer.usage };
  },
};

const CLIENTS = { "ollama-js": ollamaJs, "@langchain/ollama": langChain, "ai-sdk-ollama": aiSdk };

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  const tools = new Tools(asked);
  let said;
  try {
    said = { answer: await CLIENTS[asked.client][asked.ask](asked, tools), called: tools.called };
  } catch (error) {
    said = { error: `${error.message}`, status: error.status_code ?? error.statusCode ?? null };
  }
  process.stdout.write(`${JSON.stringify(said)}\n`);
}
