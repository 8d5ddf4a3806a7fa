// Starts the scripted server for a test file, and stops it after its tests.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

const program = process.env.SCRIPTED_SERVER;
if (!program) throw new Error('SCRIPTED_SERVER must name the program scripted_server');

// Returns { url, stop }: url is "http://127.0.0.1:PORT".
export async function startServer(...flags) {
  const child = spawn(program, flags, { stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = new Promise((resolve) => child.once('exit', (code, signal) => resolve(signal ?? `exit status ${code}`)));
  const lines = createInterface({ input: child.stdout });
  const first = await Promise.race([new Promise((resolve) => lines.once('line', resolve)), ended]);
  const url = /http:\S+/.exec(first)?.[0];
  if (!url) throw new Error(`the scripted server did not start: ${first}`);
  const stop = async () => {
    child.stdin.end();
    const how = await ended;
    if (how !== 'exit status 0') throw new Error(`the scripted server ended with ${how}`);
  };
  return { url, stop };
}

// The requests that wait and run, by the server's own count.
export async function load(url) {
  const text = await (await fetch(`${url}/metrics`)).text();
  const value = (name) => Number(new RegExp(`^\\S*${name}(?:{[^}]*})? (\\S+)$`, 'm').exec(text)?.[1] ?? NaN);
  return { running: value('requests_processing'), waiting: value('requests_deferred') };
}

// Waits until `condition` returns true.
export async function until(condition, what) {
  for (let i = 0; i < 6000; i++) {
    if (await condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`it never came to that: ${what}`);
}

export const weather = {
  name: 'weather',
  description: 'The weather in a city',
  schema: {
    type: 'object',
    properties: { city: { type: 'string' }, days: { type: 'integer' } },
    required: ['city'],
  },
};
// What makes the scripted model think, and call it.
export const askWeather = 'please call weather {"city": "Zürich", "days": 2}';
export const weatherArguments = { city: 'Zürich', days: 2 };

// Letters whose bytes are divided among tokens.
export const unicode = 'Grüße, 世界 👩‍🚀🎈 ok';
