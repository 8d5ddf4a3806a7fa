// Coding agents' own programs: each gets one task, whose answer calls a tool that writes a file, and ends after its result. They
// are started as people start them, by tq-run launch.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import { test } from 'node:test';
import { startServer } from './server.mjs';

const command = 'echo hi > made.txt';
const ask = (tool, input) => `please call ${tool} ${JSON.stringify(input)}`;

// What each takes to work without questions, and the message to it.
const agents = {
  claude: { arguments: ['-p', '--allowedTools', 'Bash', '--'], message: ask('Bash', { command, description: 'Write a file' }) },
  codex: {
    arguments: ['exec', '--skip-git-repo-check', '--sandbox', 'workspace-write'], message: ask('exec_command', { cmd: command }),
  },
  opencode: { arguments: ['run', '--auto'], input: ask('bash', { command }) },
  qwen: { arguments: ['--yolo'], message: ask('run_shell_command', { command, is_background: false }) },
  pi: { arguments: ['-p', '--no-session'], message: ask('bash', { command }) },
};

// Nothing is sent elsewhere, nothing of the user's is read.
const quiet = {
  DISABLE_TELEMETRY: '1', DISABLE_AUTOUPDATER: '1', DISABLE_ERROR_REPORTING: '1', DO_NOT_TRACK: '1', OPENCODE_DISABLE_AUTOUPDATE: '1',
  OPENCODE_DISABLE_MODELS_FETCH: '1', PI_OFFLINE: '1', PI_TELEMETRY: '0', QWEN_CODE_SUPPRESS_YOLO_WARNING: '1',
};

// Runs a program to its end: { status, output }.
function run(program, words, { cwd, env, input = '' }) {
  const child = spawn(program, words, { cwd, env, stdio: ['pipe', 'pipe', 'pipe'], timeout: 120_000, killSignal: 'SIGTERM' });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (output += data));
  child.stdin.on('error', () => {}); // it may end before it reads all
  child.stdin.end(input);
  return new Promise((done) => child.once('close', (status, signal) => done({ status: status ?? signal, output })));
}

for (const [name, agent] of Object.entries(agents))
  test(name, { timeout: 180_000 }, async (context) => {
    const home = mkdtempSync(join(tmpdir(), `tq-${name}-`)), cwd = mkdtempSync(join(tmpdir(), `tq-${name}-work-`));
    const record = mkdtempSync(join(tmpdir(), `tq-${name}-requests-`));
    const server = await startServer('--context', '131072', '--record', record);
    try {
      const env = {
        ...quiet, HOME: home, PATH: [resolve('node_modules/.bin'), process.env.PATH].join(delimiter), TERM: 'dumb', TMPDIR: tmpdir(),
      };
      const words = ['launch', name, '--url', server.url, '--', ...agent.arguments, ...(agent.message ? [agent.message] : [])];
      const { status, output } = await run(process.env.TQ_RUN, words, { cwd, env, input: agent.input });
      const requests = readdirSync(record).sort();
      const sizes = requests.map((file) => `${file} ${readFileSync(join(record, file)).length} bytes`);
      context.diagnostic(sizes.join(', '));
      assert.equal(status, 0, output);
      assert.equal(readFileSync(join(cwd, 'made.txt'), 'utf8'), 'hi\n', output);
      assert.match(output, /The tool said: /);
    } finally {
      await server.stop();
      for (const directory of [home, cwd, record]) rmSync(directory, { recursive: true, force: true, maxRetries: 5 });
    }
  });
