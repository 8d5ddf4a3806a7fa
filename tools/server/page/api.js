// Requests to the server that the page came from: the API key, errors as sentences, and streams of server-sent events.
import { recall, remember } from './store.js';

export class ApiError extends Error {
    constructor(message, status) {
        super(message);
        this.status = status;
    }
}

let askForKey = async () => null;
let asking = null;

// `ask(wasWrong)` returns a promise of the key that the person gives, or of null.
export function setKeyDialog(ask) {
    askForKey = ask;
}

async function newKey() {
    // Several requests may fail at once: one question is enough.
    asking ??= askForKey(recall('key') !== null).finally(() => (asking = null));
    const key = await asking;
    if (key) remember('key', key);
    return key;
}

function wait(ms, signal) {
    return new Promise((resolve, reject) => {
        const timer = setTimeout(resolve, ms);
        signal?.addEventListener('abort', () => {
            clearTimeout(timer);
            reject(signal.reason);
        }, { once: true });
    });
}

async function errorOf(response) {
    const text = await response.text().catch(() => '');
    let message = '';
    try {
        const { error } = JSON.parse(text);
        message = error?.message ?? '';
        if (error?.code === 'context_length_exceeded') message += ' Edit your message to shorten it, or begin a new chat.';
    } catch { /* no JSON: the status has to do */ }
    return new ApiError(message || `The server answered with status ${response.status}.`, response.status);
}

// Returns the response, or throws an ApiError. A key that is missing or wrong is asked for, unless `quiet`.
export async function request(path, { body, signal, quiet = false } = {}) {
    for (;;) {
        const key = recall('key');
        const headers = {};
        if (key) headers.Authorization = `Bearer ${key}`;
        if (body !== undefined) headers['Content-Type'] = 'application/json';
        let response;
        try {
            // Below the page's own address, which a proxy may have put under a path.
            response = await fetch(new URL(path.slice(1), document.baseURI), { method: body === undefined ? 'GET' : 'POST', headers, signal, cache: 'no-store',
                body: body === undefined ? undefined : JSON.stringify(body) });
        } catch (error) {
            if (signal?.aborted) throw error;
            throw new ApiError('The server does not answer. Is it still running?', 0);
        }
        if (response.ok) return response;
        if (response.status === 401 && !quiet) {
            // Another request may have brought a key in the meantime.
            if (recall('key') !== key || (await newKey())) {
                signal?.throwIfAborted();
                continue;
            }
        }
        throw await errorOf(response);
    }
}

// Waits until the model is loaded; calls `waiting(sentence)` while it is not.
export async function untilReady(waiting) {
    for (let pause = 300; ; pause = Math.min(pause * 1.5, 3000)) {
        try {
            return await request('/health');
        } catch (error) {
            if (error.status !== 503 && error.status !== 0) return null;
            waiting(error.status === 503 ? 'The model is being loaded…' : error.message);
            await wait(pause);
        }
    }
}

// The data of server-sent events. Comments, which keep the connection alive, are skipped.
async function* eventData(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    let data = [];
    for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
        rest = lines.pop();
        for (const line of lines) {
            if (line.startsWith('data:')) data.push(line.slice(line[5] === ' ' ? 6 : 5));
            if (line === '' && data.length) {
                yield data.join('\n');
                data = [];
            }
        }
    }
}

// The chunks of a chat completion. Throws an ApiError where the server reports one, or the stream ends before the answer.
export async function* chatChunks(body, signal) {
    const response = await request('/v1/chat/completions', { body, signal });
    try {
        for await (const data of eventData(response)) {
            if (data === '[DONE]') return;
            const chunk = JSON.parse(data);
            if (chunk.error) throw new ApiError(chunk.error.message ?? 'The server failed.', 500);
            yield chunk;
        }
    } catch (error) {
        if (signal.aborted || error instanceof ApiError) throw error;
        throw new ApiError('The connection broke before the answer was complete.', 0);
    }
    throw new ApiError('The connection ended before the answer was complete.', 0);
}

// The numbers of a page of metrics: {'tqrun_pages{state="used"}': 3, …}.
export function parseMetrics(text) {
    const metrics = {};
    for (const line of text.split('\n')) {
        const parts = /^([^#\s][^\s{]*(?:\{[^}]*\})?)\s+(\S+)/.exec(line);
        if (parts) metrics[parts[1]] = Number(parts[2]);
    }
    return metrics;
}
