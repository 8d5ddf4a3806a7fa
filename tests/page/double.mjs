// Stands between the browser and the server: passes everything on, but answers itself when the last message names a script below, so that
// the page can be seen with answers that a model does not give on demand. It may also ask for an API key.
import http from 'node:http';

export const hostile = `<script>window.broken = 1</script> <img src=x onerror="window.broken = 2"> [click](javascript:window.broken=3)
[data](data:text/html,<script>1</script>) <a href="javascript:window.broken=4">a</a> ![picture](https://elsewhere.example/p.png)

<iframe src="https://elsewhere.example"></iframe> <javascript:window.broken=5> [odd](JaVa\tScript:window.broken=6) [ok](https://right.example/a_(b))

| <b>head</b> | [x](vbscript:y) |
|---|---|
| <svg onload="window.broken=7"> | \`<i>\` |

\`\`\`html"><script>window.broken=8</script>
<script>window.broken = 9</script>
\`\`\``;

export const rich = `# Title

Some **bold**, *italic*, ***both***, ~~gone~~ and \`code\`.

1. first
   - inner
2. second

- [x] done

| a | b |
|:--|--:|
| 1 | 2 |

> quoted

\`\`\`js
let answer = 42; // why
\`\`\`
`;

export const formulas = String.raw`Half: \(\frac{a}{b}\)
\[ \sum_{i=1}^n i = \frac{n(n+1)}{2} \]
so

$$${'abcdefghijklmnopqrstuvwxyz '.repeat(6)}$$

שלום \(a+b\)
`;

const words = (count, text) => Array.from({ length: count }, (_, i) => `${text}${i} `);

// Each a list of [field of the delta, pieces of its text], and the pause between pieces. held: the content comes after goOn().
const scripts = {
    endless: { parts: [['content', words(5000, 'word')]], pause: 15 },
    hostile: { parts: [['content', hostile.match(/[^]{1,7}/g)]], pause: 0 },
    formulas: { parts: [['content', formulas.match(/[^]{1,5}/g)]], pause: 0 },
    rich: { parts: [['content', rich.match(/[^]{1,3}/g)]], pause: 1 },
    thinking: { parts: [['reasoning_content', words(60, 'thought')], ['content', words(20, 'said')]], pause: 20 },
    pondering: { parts: [['reasoning_content', words(60, 'thought')], ['content', words(20, 'said')]], pause: 20, held: true },
    held: { parts: [['reasoning_content', words(4, 'thought')], ['content', words(20, 'said')]], pause: 20, held: true },
    שלום: { parts: [['content', ['שלום ', 'לך. ', 'hello']]], pause: 0 },
    broken: { parts: [['content', ['half an ']]], pause: 0, breaks: true },
    refused: { status: 400, error: 'The prompt has 40112 tokens, more than the context of 32768.' },
};

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function play(script, response, messages, goneOn) {
    if (script.error) {
        response.writeHead(script.status, { 'Content-Type': 'application/json' });
        response.end(JSON.stringify({ error: { message: script.error, type: 'invalid_request_error' } }));
        return;
    }
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    const send = (chunk) => response.write(`data: ${JSON.stringify({ object: 'chat.completion.chunk', ...chunk })}\r\n\r\n`);
    send({ choices: [{ index: 0, delta: { role: 'assistant' }, finish_reason: null }] });
    let tokens = 0;
    for (const [field, pieces] of script.parts) {
        if (script.held && field === 'content') await goneOn;
        for (const piece of pieces) {
            if (response.destroyed) return;
            send({ choices: [{ index: 0, delta: { [field]: piece }, finish_reason: null }] });
            tokens++;
            if (script.pause) await sleep(script.pause);
        }
    }
    if (script.breaks) {
        await sleep(300); // what was sent has arrived
        response.destroy();
        return;
    }
    send({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] });
    send({ choices: [], usage: { prompt_tokens: 40 * messages, completion_tokens: tokens, prompt_tokens_details: { cached_tokens: 17 } } });
    response.end('data: [DONE]\n\n');
}

// prefix: the path below which the page is, "/chat"; what is not below it is refused, and it is taken off before it is passed on.
export async function startDouble(serverAddress, { key = null, prefix = '' } = {}) {
    const target = new URL(serverAddress);
    const seen = { bodies: [], cut: 0, outside: [] };
    let goOn;
    const goneOn = new Promise((resolve) => { goOn = resolve; });
    const server = http.createServer((request, response) => {
        if (!request.url.startsWith(`${prefix}/`)) {
            seen.outside.push(request.url);
            response.writeHead(404).end();
            return;
        }
        request.url = request.url.slice(prefix.length);
        const pieces = [];
        request.on('data', (piece) => pieces.push(piece));
        request.on('end', () => {
            const body = Buffer.concat(pieces);
            const headers = { ...request.headers, host: target.host };
            if (headers.origin) headers.origin = target.origin; // a server refuses other sites' pages
            if (key !== null && /^\/(v1|props|slots|metrics)/.test(request.url)) {
                if (headers.authorization !== `Bearer ${key}`) {
                    response.writeHead(401, { 'Content-Type': 'application/json' });
                    response.end(JSON.stringify({ error: { message: 'Wrong API key.', type: 'authentication_error' } }));
                    return;
                }
                delete headers.authorization;
            }
            if (request.url === '/v1/chat/completions') {
                const asked = JSON.parse(body.toString());
                seen.bodies.push(asked);
                const script = scripts[asked.messages.at(-1).content.split(' ')[0]];
                if (script) {
                    response.on('close', () => !response.writableFinished && seen.cut++);
                    play(script, response, asked.messages.length, goneOn);
                    return;
                }
            }
            const passed = http.request(target, { path: request.url, method: request.method, headers }, (answer) => {
                response.writeHead(answer.statusCode, answer.headers);
                answer.pipe(response);
            });
            passed.on('error', () => response.destroy());
            response.on('close', () => passed.destroy());
            passed.end(body);
        });
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    return {
        address: `http://127.0.0.1:${server.address().port}${prefix}/`,
        goOn,
        seen,
        close: () => {
            server.closeAllConnections();
            server.close();
        },
    };
}
