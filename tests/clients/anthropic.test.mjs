// Anthropic's library against the server.
import Anthropic from '@anthropic-ai/sdk';
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { askWeather, startServer, unicode, weather, weatherArguments } from './server.mjs';

const model = 'scripted', max_tokens = 1000, thinking = { type: 'enabled', budget_tokens: 1024 };
const user = (content) => [{ role: 'user', content }];
const tools = [{ name: weather.name, description: weather.description, input_schema: weather.schema }];

let server, client;
before(async () => {
  server = await startServer('--slots', '2', '--context', '2048', '--api-key', 'secret');
  client = new Anthropic({ baseURL: server.url, apiKey: 'secret', maxRetries: 0 });
});
after(() => server.stop());

test('models', async () => {
  const models = [];
  for await (const each of client.models.list()) models.push([each.type, each.id]);
  assert.deepEqual(models, [['model', model]]);
});

test('a message', async () => {
  const answer = await client.messages.create({ model, max_tokens, messages: user(`please say: ${unicode}`), thinking });
  assert.equal(answer.type, 'message');
  assert.equal(answer.role, 'assistant');
  assert.deepEqual(answer.content.map((block) => block.type), ['thinking', 'text']);
  assert.equal(answer.content[0].thinking, 'The user wants an answer.');
  assert.equal(answer.content[1].text, unicode);
  assert.equal(answer.stop_reason, 'end_turn');
  assert.ok(answer.usage.input_tokens > 0 && answer.usage.output_tokens > 0);
});

test('a bearer token instead of the key', async () => {
  const bearer = new Anthropic({ baseURL: server.url, apiKey: null, authToken: 'secret', maxRetries: 0 });
  const answer = await bearer.messages.create({ model, max_tokens, messages: user('please say: yes') });
  assert.equal(answer.content.at(-1).text, 'yes');
});

test('a stream', async () => {
  const stream = client.messages.stream({ model, max_tokens, messages: user(`please say: ${unicode}`), thinking });
  let text = '', thought = '';
  const types = [];
  stream.on('text', (delta) => {
    assert.ok(!delta.includes('\uFFFD'), 'whole characters');
    text += delta;
  });
  stream.on('thinking', (delta) => (thought += delta));
  stream.on('streamEvent', (event) => types.push(event.type));
  const answer = await stream.finalMessage();
  assert.equal(text, unicode);
  assert.equal(thought, 'The user wants an answer.');
  assert.equal(types[0], 'message_start');
  assert.deepEqual(types.slice(-3), ['content_block_stop', 'message_delta', 'message_stop']);
  assert.equal(answer.content.at(-1).text, unicode);
  assert.ok(answer.usage.output_tokens > 0);
});

test('no thinking unless it is asked for', async () => {
  const answer = await client.messages.create({ model, max_tokens, messages: user('please say: yes'), thinking: { type: 'disabled' } });
  assert.deepEqual(answer.content.map((block) => block.type), ['text']);
});

test('a tool and its result, streamed and not', async () => {
  const messages = user(askWeather);
  const whole = await client.messages.create({ model, max_tokens, messages, tools });
  assert.equal(whole.stop_reason, 'tool_use');
  const stream = client.messages.stream({ model, max_tokens, messages, tools });
  let json = '';
  stream.on('inputJson', (delta) => (json += delta));
  const answer = await stream.finalMessage();
  assert.deepEqual(JSON.parse(json), weatherArguments);
  for (const message of [whole, answer]) {
    const use = message.content.find((block) => block.type === 'tool_use');
    assert.equal(use.name, 'weather');
    assert.deepEqual(use.input, weatherArguments);
  }
  messages.push({ role: 'assistant', content: answer.content });
  const { id } = answer.content.find((block) => block.type === 'tool_use');
  messages.push({ role: 'user', content: [{ type: 'tool_result', tool_use_id: id, content: [{ type: 'text', text: 'hail' }] }] });
  const end = await client.messages.create({ model, max_tokens, messages, tools });
  assert.equal(end.content.at(-1).text, 'The tool said: hail');
});

test('tool_choice', async () => {
  const choose = async (tool_choice) =>
    (await client.messages.create({ model, max_tokens, messages: user(askWeather), tools, tool_choice })).content;
  for (const choice of [{ type: 'any' }, { type: 'tool', name: 'weather' }])
    assert.deepEqual((await choose(choice)).at(-1).input, weatherArguments);
  assert.ok((await choose({ type: 'none' })).every((block) => block.type !== 'tool_use'));
});

test('the library runs tools by itself', async () => {
  const runner = client.beta.messages.toolRunner({
    model, max_tokens, messages: user(askWeather),
    tools: [{ ...tools[0], run: async ({ city }) => `fog in ${city}`, parse: (input) => input }],
  });
  const answer = await runner;
  assert.equal(answer.content.at(-1).text, 'The tool said: fog in Zürich');
});

test('limits and stop sequences', async () => {
  const messages = user('please count to 99');
  const short = await client.messages.create({ model, max_tokens: 5, messages });
  assert.equal(short.stop_reason, 'max_tokens');
  assert.equal(short.usage.output_tokens, 5);
  const stopped = await client.messages.create({ model, max_tokens, messages, stop_sequences: [' 5'] });
  assert.equal(stopped.stop_reason, 'stop_sequence');
  assert.equal(stopped.stop_sequence, ' 5');
  assert.equal(stopped.content.at(-1).text, '1 2 3 4');
});

test('countTokens', async () => {
  const messages = user('please say: yes');
  const { input_tokens } = await client.messages.countTokens({ model, messages, tools, system: 'Be brief.' });
  const { usage } = await client.messages.create({ model, max_tokens, messages, tools, system: 'Be brief.' });
  assert.equal(input_tokens, usage.input_tokens + (usage.cache_read_input_tokens ?? 0));
});

test('what Claude Code changes on every request does not cost the cache', async () => {
  const ask = (hash) => client.messages.create({
    model, max_tokens, messages: user('please say: yes'), system: [
      { type: 'text', text: `x-anthropic-billing-header: cc_version=2.1; cch=${hash};` },
      { type: 'text', text: `You are careful. ${'Be brief. '.repeat(40)}`, cache_control: { type: 'ephemeral' } },
    ],
  });
  await ask('11111');
  assert.ok((await ask('22222')).usage.cache_read_input_tokens > 100);
});

test('errors are of the library\'s classes', async () => {
  const wrong = new Anthropic({ baseURL: server.url, apiKey: 'wrong', maxRetries: 0 });
  const messages = user('Hi');
  await assert.rejects(wrong.messages.create({ model, max_tokens, messages }), (error) => {
    assert.ok(error instanceof Anthropic.AuthenticationError);
    assert.equal(error.error.type, 'error');
    assert.equal(error.error.error.type, 'authentication_error');
    return true;
  });
  await assert.rejects(client.messages.create({ model, messages }), Anthropic.BadRequestError);
  await assert.rejects(client.messages.create({ model, max_tokens, messages: user('word '.repeat(3000)) }), (error) => {
    assert.ok(error instanceof Anthropic.BadRequestError);
    assert.match(error.message, /2048/);
    return true;
  });
  await assert.rejects(client.get('/v1/nowhere'), Anthropic.NotFoundError);
});
