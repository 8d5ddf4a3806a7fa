// LangChain's library for OpenAI's API.
import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { z } from 'zod';
import { askWeather, startServer, unicode, weather, weatherArguments } from './server.mjs';

// With `responses` it speaks /v1/responses.
const chat = (url, options = {}) =>
  new ChatOpenAI({ model: 'scripted', apiKey: 'none', maxRetries: 0, configuration: { baseURL: `${url}/v1` }, ...options });
const weatherTool = tool(async () => 'storm', { name: weather.name, description: weather.description, schema: weather.schema });

let server;
before(async () => (server = await startServer('--slots', '2')));
after(() => server.stop());

for (const useResponsesApi of [false, true]) {
  const of = useResponsesApi ? 'responses' : 'chat';

  test(`${of}: invoke`, async () => {
    const answer = await chat(server.url, { useResponsesApi }).invoke(`please say: ${unicode}`);
    assert.equal(answer.text, unicode);
    assert.ok(answer.usage_metadata.output_tokens > 0);
  });

  test(`${of}: stream`, async () => {
    let text = '', usage;
    for await (const chunk of await chat(server.url, { useResponsesApi }).stream(`please say: ${unicode}`)) {
      text += chunk.text;
      usage = chunk.usage_metadata ?? usage;
    }
    assert.equal(text, unicode);
    assert.ok(usage.output_tokens > 0);
  });

  test(`${of}: a tool, streamed, and its result`, async () => {
    const model = chat(server.url, { useResponsesApi }).bindTools([weatherTool]);
    const messages = [new HumanMessage(askWeather)];
    let answer;
    for await (const chunk of await model.stream(messages)) answer = answer ? answer.concat(chunk) : chunk;
    assert.equal(answer.tool_calls.length, 1);
    const [call] = answer.tool_calls;
    assert.equal(call.name, 'weather');
    assert.deepEqual(call.args, weatherArguments);
    const result = await weatherTool.invoke(call);
    assert.ok(result instanceof ToolMessage);
    assert.equal((await model.invoke([...messages, answer, result])).text, 'The tool said: storm');
  });

  test(`${of}: structured output`, async () => {
    const Fruit = z.object({ fruit: z.enum(['apple', 'pear']), count: z.number().int() });
    const model = chat(server.url, { useResponsesApi }).withStructuredOutput(Fruit, { method: 'jsonSchema', name: 'fruit' });
    assert.deepEqual(await model.invoke('please say: {"fruit":"pear","count":3}'), { fruit: 'pear', count: 3 });
  });
}

test('embeddings', async () => {
  const embedder = await startServer('--embeddings');
  const model = new OpenAIEmbeddings({ model: 'scripted', apiKey: 'none', configuration: { baseURL: `${embedder.url}/v1` } });
  const [one, two] = await model.embedDocuments(['one', 'two']);
  assert.equal(one.length, two.length);
  assert.deepEqual(await model.embedQuery('one'), one);
  assert.notDeepEqual(one, two);
  await embedder.stop();
});
