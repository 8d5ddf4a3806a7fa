// The ollama library against the server.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Ollama } from 'ollama';
import { z } from 'zod';
import { askWeather, startServer, unicode, weather, weatherArguments } from './server.mjs';

const model = 'scripted';
const user = (content) => [{ role: 'user', content }];
const tools = [{ type: 'function', function: { name: weather.name, description: weather.description, parameters: weather.schema } }];

let server, client;
before(async () => {
  server = await startServer('--context', '2048');
  client = new Ollama({ host: server.url });
});
after(() => server.stop());

test('what is there', async () => {
  assert.deepEqual((await client.list()).models.map((each) => each.name), [model]);
  assert.deepEqual((await client.ps()).models.map((each) => each.model), [model]);
  const shown = await client.show({ model });
  assert.ok(shown.capabilities.includes('tools') && shown.details.family);
  assert.match((await client.version()).version, /^\d+\.\d+\.\d+$/);
});

test('chat, streamed or not', async () => {
  const whole = await client.chat({ model, messages: user(`please say: ${unicode}`), think: true });
  assert.equal(whole.message.content, unicode);
  assert.equal(whole.message.thinking, 'The user wants an answer.');
  assert.equal(whole.done_reason, 'stop');
  assert.ok(whole.eval_count > 0 && whole.total_duration > 0 && !Number.isNaN(Date.parse(whole.created_at)));
  let text = '', thinking = '', last;
  for await (const part of await client.chat({ model, messages: user(`please say: ${unicode}`), think: true, stream: true })) {
    text += part.message.content;
    thinking += part.message.thinking ?? '';
    last = part;
  }
  assert.equal(text, unicode);
  assert.equal(thinking, whole.message.thinking);
  assert.ok(last.done && last.eval_count === whole.eval_count);
});

test('tools', async () => {
  const messages = user(askWeather);
  const asked = await client.chat({ model, messages, tools, think: false });
  assert.equal(asked.message.tool_calls[0].function.name, weather.name);
  assert.deepEqual(asked.message.tool_calls[0].function.arguments, weatherArguments);
  messages.push(asked.message, { role: 'tool', tool_name: weather.name, content: 'sunny' });
  assert.equal((await client.chat({ model, messages, tools, think: false })).message.content, 'The tool said: sunny');
});

test('a schema, and generate', async () => {
  const Answer = z.object({ name: z.string(), age: z.number().int() });
  const said = await client.chat({
    model, messages: user('please say: {"name": "Bob", "age": 5}'), format: z.toJSONSchema(Answer), think: false,
  });
  assert.deepEqual(Answer.parse(JSON.parse(said.message.content)), { name: 'Bob', age: 5 });
  assert.equal((await client.generate({ model, prompt: 'please say: hello', think: false })).response, 'hello');
  let text = '';
  for await (const part of await client.generate({ model, prompt: 'please count to 5', think: false, stream: true })) text += part.response;
  assert.equal(text, '1 2 3 4 5');
});

test('an answer is given up', async () => {
  const stream = await client.chat({ model, messages: user('please count to 100000'), think: false, stream: true });
  await assert.rejects(async () => {
    for await (const part of stream) if (part.message.content) stream.abort();
  }, { name: 'AbortError' });
  assert.equal((await client.generate({ model, prompt: 'please say: hello', think: false })).response, 'hello');
});

test('what cannot be says why', async () => {
  await assert.rejects(client.chat({ model, messages: user('word '.repeat(5000)) }), (error) => error.status_code === 400 && /context/.test(error.message));
  await assert.rejects(client.pull({ model: 'llama3' }), (error) => error.status_code === 404 && /one model/.test(error.message));
  await assert.rejects(client.delete({ model }), (error) => error.status_code === 404 && /one model/.test(error.message));
});
