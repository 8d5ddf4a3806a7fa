// Vercel's ai library, with its provider for servers like OpenAI's.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, embedMany, generateObject, generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { z } from 'zod';
import { askWeather, startServer, unicode, weather, weatherArguments } from './server.mjs';

const thought = 'The user wants an answer.';
let server, provider, model, asked;
const tools = {
  weather: tool({
    description: weather.description, inputSchema: jsonSchema(weather.schema), execute: async (input) => (asked.push(input), 'wind'),
  }),
};

before(async () => {
  server = await startServer('--slots', '2');
  provider = createOpenAICompatible({ name: 'local', baseURL: `${server.url}/v1`, includeUsage: true, supportsStructuredOutputs: true });
  model = provider('scripted');
});
after(() => server.stop());

test('generateText', async () => {
  const answer = await generateText({ model, prompt: `please say: ${unicode}` });
  assert.equal(answer.text, unicode);
  assert.equal(answer.reasoningText, thought);
  assert.equal(answer.finishReason, 'stop');
  assert.ok(answer.usage.inputTokens > 0 && answer.usage.outputTokens > 0);
});

test('streamText: one block of reasoning, one of text', async () => {
  const stream = streamText({ model, prompt: `please say: ${unicode}`, onError: ({ error }) => assert.fail(error) });
  const types = [];
  let text = '', reasoning = '';
  for await (const part of stream.fullStream) {
    if (types.at(-1) !== part.type) types.push(part.type);
    if (part.type === 'text-delta') text += part.text;
    if (part.type === 'reasoning-delta') reasoning += part.text;
  }
  assert.equal(text, unicode);
  assert.equal(reasoning, thought);
  const blocks = types.filter((type) => /^(reasoning|text)-/.test(type));
  assert.deepEqual(blocks, ['reasoning-start', 'reasoning-delta', 'reasoning-end', 'text-start', 'text-delta', 'text-end']);
  assert.equal(await stream.finishReason, 'stop');
  assert.ok((await stream.usage).outputTokens > 0);
});

test('generateText with a tool, in two steps', async () => {
  asked = [];
  const answer = await generateText({ model, tools, stopWhen: stepCountIs(3), prompt: askWeather });
  assert.equal(answer.text, 'The tool said: wind');
  assert.equal(answer.steps.length, 2);
  assert.equal(answer.steps[0].finishReason, 'tool-calls');
  assert.deepEqual(asked, [weatherArguments]);
});

test('streamText with a tool, in two steps', async () => {
  asked = [];
  const stream = streamText({ model, tools, stopWhen: stepCountIs(3), prompt: askWeather, onError: ({ error }) => assert.fail(error) });
  const types = new Set();
  for await (const part of stream.fullStream) types.add(part.type);
  for (const type of ['reasoning-delta', 'tool-input-start', 'tool-input-delta', 'tool-call', 'tool-result', 'text-delta'])
    assert.ok(types.has(type), type);
  assert.equal(await stream.text, 'The tool said: wind');
  assert.deepEqual(asked, [weatherArguments]);
});

test('generateObject', async () => {
  const schema = z.object({ city: z.string(), hot: z.boolean() });
  const { object } = await generateObject({ model, schema, prompt: 'please say: {"city":"Rom","hot":true}' });
  assert.deepEqual(object, { city: 'Rom', hot: true });
});

test('embedMany', async () => {
  const embedder = await startServer('--embeddings');
  const local = createOpenAICompatible({ name: 'local', baseURL: `${embedder.url}/v1` });
  const { embeddings } = await embedMany({ model: local.embeddingModel('scripted'), values: ['one', 'two'] });
  assert.equal(embeddings.length, 2);
  assert.notDeepEqual(embeddings[0], embeddings[1]);
  await embedder.stop();
});

test('an error has the server\'s sentence', async () => {
  await assert.rejects(generateText({ model, prompt: 'word '.repeat(9000), maxRetries: 0 }), (error) => {
    assert.ok(APICallError.isInstance(error));
    assert.equal(error.statusCode, 400);
    assert.match(error.message, /4096/);
    return true;
  });
});
