// The openai library against the server.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { askWeather, load, startServer, unicode, until, weather, weatherArguments } from './server.mjs';

const model = 'scripted';
const user = (content) => [{ role: 'user', content }];
const tool = { type: 'function', function: { name: weather.name, description: weather.description, parameters: weather.schema } };

let server, client;
before(async () => {
  server = await startServer('--slots', '4', '--context', '2048', '--api-key', 'secret');
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'secret', maxRetries: 0 });
});
after(() => server.stop());

test('models', async () => {
  const models = [];
  for await (const each of client.models.list()) models.push(each.id);
  assert.deepEqual(models, [model]);
});

test('chat', async () => {
  const messages = user(`please say: ${unicode}`);
  const answer = await client.chat.completions.create({ model, messages });
  assert.equal(answer.object, 'chat.completion');
  assert.equal(answer.choices.length, 1);
  const { message, finish_reason } = answer.choices[0];
  assert.equal(message.role, 'assistant');
  assert.equal(message.content, unicode);
  assert.equal(message.reasoning_content, 'The user wants an answer.');
  assert.equal(message.tool_calls, undefined);
  assert.equal(finish_reason, 'stop');
  assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
  const again = await client.chat.completions.create({ model, messages });
  assert.ok(again.usage.prompt_tokens_details.cached_tokens > 0, 'a prompt that is sent twice is found in the cache');
});

test('chat, streamed', async () => {
  const stream = await client.chat.completions.create({
    model, messages: user(`please say: ${unicode}`), stream: true, stream_options: { include_usage: true },
  });
  let content = '', reasoning = '', roles = 0, usage = null;
  const reasons = [];
  for await (const chunk of stream) {
    if (chunk.usage) {
      usage = chunk.usage;
      assert.deepEqual(chunk.choices, []);
      continue;
    }
    const [{ delta, finish_reason }] = chunk.choices;
    if (delta.role !== undefined) assert.equal(delta.role, 'assistant'), roles++;
    assert.ok(!('tool_calls' in delta));
    assert.ok(!(delta.content ?? '').includes('\uFFFD'), 'whole characters');
    content += delta.content ?? '';
    reasoning += delta.reasoning_content ?? '';
    reasons.push(finish_reason);
  }
  assert.equal(content, unicode);
  assert.equal(reasoning, 'The user wants an answer.');
  assert.equal(roles, 1);
  assert.equal(reasons.pop(), 'stop');
  assert.ok(reasons.every((reason) => reason === null));
  assert.ok(usage.completion_tokens > 0);
});

test('no usage in a stream that did not ask for it', async () => {
  for await (const chunk of await client.chat.completions.create({ model, messages: user('Hi'), stream: true }))
    assert.equal(chunk.choices.length, 1);
});

test('a tool by hand, streamed and not', async () => {
  const messages = user(askWeather);
  const whole = await client.chat.completions.create({ model, messages, tools: [tool] });
  assert.equal(whole.choices[0].finish_reason, 'tool_calls');
  const [call] = whole.choices[0].message.tool_calls;
  assert.equal(call.function.name, 'weather');
  assert.deepEqual(JSON.parse(call.function.arguments), weatherArguments);

  const stream = await client.chat.completions.create({ model, messages, tools: [tool], stream: true });
  let first = null, args = '', reason;
  for await (const chunk of stream) {
    const piece = chunk.choices[0].delta.tool_calls?.[0];
    if (piece && !first) {
      first = piece;
      assert.equal(piece.index, 0);
      assert.ok(piece.id);
      assert.equal(piece.type, 'function');
      assert.equal(piece.function.name, 'weather');
    } else if (piece) assert.equal(piece.index, 0), assert.equal(piece.function.name, undefined);
    args += piece?.function.arguments ?? '';
    reason = chunk.choices[0].finish_reason;
  }
  assert.deepEqual(JSON.parse(args), weatherArguments);
  assert.equal(reason, 'tool_calls');
});

test('two calls in parallel, and their results', async () => {
  const messages = user('please call weather {"city": "Bern"} and please call weather {"city": "Basel"}');
  const { message } = (await client.chat.completions.create({ model, messages, tools: [tool] })).choices[0];
  assert.deepEqual(message.tool_calls.map((call) => JSON.parse(call.function.arguments).city), ['Bern', 'Basel']);
  messages.push(message);
  for (const call of message.tool_calls) messages.push({ role: 'tool', tool_call_id: call.id, content: `rain, ${call.id}` });
  const answer = await client.chat.completions.create({ model, messages, tools: [tool] });
  assert.equal(answer.choices[0].message.content, `The tool said: rain, ${message.tool_calls[1].id}`);
});

test('runTools', async () => {
  const asked = [];
  const run = (city) => (asked.push(city), 'sunny');
  const runner = client.chat.completions.runTools({
    model, messages: user(askWeather), stream: true,
    tools: [{ type: 'function', function: { ...tool.function, parse: JSON.parse, function: run } }],
  });
  assert.equal(await runner.finalContent(), 'The tool said: sunny');
  assert.deepEqual(asked, [weatherArguments]);
});

test('tool_choice none, required, and a name', async () => {
  const choose = async (tool_choice) =>
    (await client.chat.completions.create({ model, messages: user(askWeather), tools: [tool], tool_choice })).choices[0];
  assert.equal((await choose('none')).message.tool_calls, undefined);
  for (const choice of ['required', { type: 'function', function: { name: 'weather' } }]) {
    const { message } = await choose(choice);
    assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), weatherArguments);
  }
});

test('a call in the form of Qwen3-Coder, streamed and not', async () => {
  const coder = await startServer('--variant', 'coder');
  const at = new OpenAI({ baseURL: `${coder.url}/v1`, apiKey: 'none', maxRetries: 0 });
  const whole = await at.chat.completions.create({ model, messages: user(askWeather), tools: [tool] });
  const stream = at.chat.completions.stream({ model, messages: user(askWeather), tools: [tool] });
  for (const { choices } of [whole, await stream.finalChatCompletion()]) {
    assert.equal(choices[0].finish_reason, 'tool_calls');
    assert.deepEqual(JSON.parse(choices[0].message.tool_calls[0].function.arguments), weatherArguments);
    assert.ok(!choices[0].message.content);
  }
  await coder.stop();
});

test('structured output', async () => {
  const Person = z.object({ name: z.string(), age: z.number().int(), tags: z.array(z.enum(['a', 'b'])) });
  const person = { name: 'Ada', age: 36, tags: ['a', 'b'] };
  const answer = await client.chat.completions.parse({
    model, messages: user(`please say: ${JSON.stringify(person)}`), response_format: zodResponseFormat(Person, 'person'),
  });
  assert.deepEqual(answer.choices[0].message.parsed, person);
});

test("zod's formats, each with the pattern that it writes", async () => {
  const values = {
    email: [z.email(), 'a.b@c.de'], uuid: [z.uuid(), '123e4567-e89b-42d3-a456-426614174000'], url: [z.url(), 'https://a.b/c'],
    date: [z.iso.date(), '2026-11-28'], time: [z.iso.time(), '12:30:00'], datetime: [z.iso.datetime(), '2026-11-28T12:30:00Z'],
    duration: [z.iso.duration(), 'P1DT2H'], ipv4: [z.ipv4(), '10.0.0.1'], ipv6: [z.ipv6(), '::1'], base64: [z.base64(), 'YWI='],
    e164: [z.e164(), '+49123456789'], cidr: [z.cidrv4(), '10.0.0.0/8'], short: [z.email().max(12), 'a@b.cd'],
    code: [z.string().regex(/^[A-Z]{2}\d+$/).min(3).max(6), 'AB12'], begins: [z.string().startsWith('v'), 'v1'],
    multiple: [z.number().multipleOf(0.5), 1.5], either: [z.union([z.literal('x'), z.null()]), null], nullable: [z.int().nullable(), 3],
  };
  for (const [name, [type, value]] of Object.entries(values)) {
    const said = { [name]: value };
    const schema = z.object({ [name]: type });
    const answer = await client.chat.completions.create({
      model, messages: user(`please say: ${JSON.stringify(said)}`),
      response_format: { type: 'json_schema', json_schema: { name: 'value', strict: true, schema: z.toJSONSchema(schema) } },
    });
    assert.deepEqual(schema.parse(JSON.parse(answer.choices[0].message.content)), said, name);
  }
});

test('n, stop, max_tokens and logprobs', async () => {
  const answer = await client.chat.completions.create({
    model, messages: user('please count to 9'), n: 2, stop: [' 5'], logprobs: true, top_logprobs: 2,
    chat_template_kwargs: { enable_thinking: false },
  });
  for (const choice of answer.choices) {
    assert.equal(choice.message.content, '1 2 3 4');
    assert.equal(choice.finish_reason, 'stop');
    assert.equal(choice.logprobs.content.map((token) => token.token).join(''), '1 2 3 4');
    assert.ok(choice.logprobs.content.every((token) => token.top_logprobs.length === 2 && token.logprob > -0.01));
  }
  const short = await client.chat.completions.create({ model, messages: user('please count to 99'), max_completion_tokens: 5 });
  assert.equal(short.choices[0].finish_reason, 'length');
  assert.equal(short.usage.completion_tokens, 5);
});

test('completions', async () => {
  const answer = await client.completions.create({ model, prompt: 'Once upon', max_tokens: 100 });
  assert.equal(answer.choices[0].text, ' a time there was a small server.');
  let text = '';
  for await (const chunk of await client.completions.create({ model, prompt: 'Once upon', max_tokens: 100, stream: true }))
    text += chunk.choices[0]?.text ?? '';
  assert.equal(text, answer.choices[0].text);
});

test('responses', async () => {
  const answer = await client.responses.create({ model, instructions: 'Be brief.', input: `please say: ${unicode}` });
  assert.equal(answer.status, 'completed');
  assert.equal(answer.output_text, unicode);
  assert.deepEqual(answer.output.map((item) => item.type), ['reasoning', 'message']);
  assert.ok(answer.usage.input_tokens > 0);
});

test('responses, streamed', async () => {
  const stream = client.responses.stream({ model, input: `please say: ${unicode}` });
  const types = [];
  let text = '';
  for await (const event of stream) {
    types.push(event.type);
    if (event.type === 'response.output_text.delta') text += event.delta;
  }
  assert.equal(text, unicode);
  assert.equal(types[0], 'response.created');
  assert.equal(types.at(-1), 'response.completed');
  assert.equal((await stream.finalResponse()).output_text, unicode);
});

test('responses with a tool', async () => {
  const tools = [{ type: 'function', name: weather.name, parameters: weather.schema, strict: false }, { type: 'web_search' }];
  const stream = client.responses.stream({ model, tools, input: askWeather });
  let args = '';
  stream.on('response.function_call_arguments.delta', (event) => (args += event.delta));
  const answer = await stream.finalResponse();
  const call = answer.output.find((item) => item.type === 'function_call');
  assert.equal(call.name, 'weather');
  assert.deepEqual(JSON.parse(call.arguments), weatherArguments);
  assert.equal(args, call.arguments);
  const input = [{ role: 'user', content: askWeather }, ...answer.output];
  input.push({ type: 'function_call_output', call_id: call.call_id, output: 'snow' });
  assert.equal((await client.responses.create({ model, tools, input })).output_text, 'The tool said: snow');
});

test('responses with a schema', async () => {
  const schema = { type: 'object', properties: { ok: { type: 'boolean' } }, required: ['ok'], additionalProperties: false };
  const answer = await client.responses.create({
    model, input: 'please say: {"ok":true}', text: { format: { type: 'json_schema', name: 'fine', schema, strict: true } },
  });
  assert.deepEqual(JSON.parse(answer.output_text), { ok: true });
});

test('errors are of the library\'s classes', async () => {
  const wrong = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'wrong', maxRetries: 0 });
  const messages = user('Hi');
  await assert.rejects(wrong.chat.completions.create({ model, messages }), OpenAI.AuthenticationError);
  await assert.rejects(client.get('/nowhere'), OpenAI.NotFoundError);
  await assert.rejects(client.chat.completions.create({ model, messages, temperature: -1 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, 'temperature');
    assert.equal(error.type, 'invalid_request_error');
    return true;
  });
  await assert.rejects(client.chat.completions.create({ model, messages: user('word '.repeat(3000)) }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.code, 'context_length_exceeded');
    assert.match(error.message, /2048/);
    return true;
  });
  await assert.rejects(client.responses.create({ model, input: 'Hi', previous_response_id: 'resp_1' }), OpenAI.BadRequestError);
});

test('a stream that is given up stops at once', async () => {
  const slow = await startServer('--slots', '1', '--delay-ms', '5');
  const patient = new OpenAI({ baseURL: `${slow.url}/v1`, apiKey: 'none', maxRetries: 0 });
  const stream = await patient.chat.completions.create({ model, messages: user('please count to 1000'), stream: true });
  let chunks = 0;
  for await (const _ of stream) if (++chunks === 3) break;
  await until(async () => (await load(slow.url)).running === 0, 'no request is running');
  const controller = new AbortController();
  const waiting = patient.chat.completions.create({ model, messages: user('please count to 1000') }, { signal: controller.signal });
  await until(async () => (await load(slow.url)).running === 1, 'the request is running');
  controller.abort();
  await assert.rejects(waiting, OpenAI.APIUserAbortError);
  await until(async () => (await load(slow.url)).running === 0, 'no request is running');
  await slow.stop();
});

test('a full queue is a RateLimitError, after which the library tries again', async () => {
  const slow = await startServer('--slots', '1', '--queue', '1', '--delay-ms', '5');
  const hasty = new OpenAI({ baseURL: `${slow.url}/v1`, apiKey: 'none', maxRetries: 0 });
  const ask = (client) => client.chat.completions.create({ model, messages: user('please count to 50') });
  const running = ask(hasty);
  await until(async () => (await load(slow.url)).running === 1, 'the request is running');
  const waiting = ask(hasty);
  await until(async () => (await load(slow.url)).waiting === 1, 'the request is waiting');
  await assert.rejects(ask(hasty), (error) => {
    assert.ok(error instanceof OpenAI.RateLimitError);
    assert.ok(Number(error.headers.get('retry-after')) >= 1);
    return true;
  });
  const retried = await ask(new OpenAI({ baseURL: `${slow.url}/v1`, apiKey: 'none', maxRetries: 20 }));
  for (const answer of [retried, await running, await waiting]) assert.match(answer.choices[0].message.content, / 49 50$/);
  await slow.stop();
});

test('embeddings', async () => {
  const embedder = await startServer('--embeddings');
  const at = new OpenAI({ baseURL: `${embedder.url}/v1`, apiKey: 'none', maxRetries: 0 });
  const length = (vector) => Math.hypot(...vector);
  const one = await at.embeddings.create({ model, input: ['one', 'two', 'one'] }); // as base64, the library's default
  assert.deepEqual(one.data.map((item) => item.index), [0, 1, 2]);
  assert.deepEqual(one.data[0].embedding, one.data[2].embedding);
  assert.notDeepEqual(one.data[0].embedding, one.data[1].embedding);
  assert.ok(Math.abs(length(one.data[0].embedding) - 1) < 1e-5);
  const short = await at.embeddings.create({ model, input: 'one', dimensions: 8, encoding_format: 'float' });
  assert.equal(short.data[0].embedding.length, 8);
  assert.ok(Math.abs(length(short.data[0].embedding) - 1) < 1e-5);
  await embedder.stop();
});
