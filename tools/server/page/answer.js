// Has an answer written: sends the branch, takes the stream, and notes what it cost.
import { chatChunks } from './api.js';
import { announce } from './dom.js';
import { emit, keep, state } from './state.js';
import { addNode, requestMessages } from './tree.js';

const savePauseMs = 2000;

function requestBody(conversation, parent) {
    const { think, system, ...sampling } = conversation.settings;
    const body = { model: state.model || 'default', messages: requestMessages(conversation, parent), stream: true,
        stream_options: { include_usage: true }, ...sampling };
    if (think !== undefined) body.chat_template_kwargs = { enable_thinking: think };
    return body;
}

// Takes one chunk into the message; `clock` has when the request began and its parts came.
function takeChunk(node, chunk, clock) {
    const now = performance.now();
    const delta = chunk.choices?.[0]?.delta ?? {};
    if (delta.reasoning_content || delta.content) {
        clock.first ??= now;
        clock.last = now;
    }
    if (delta.reasoning_content) {
        clock.thought ??= now;
        node.thought = (node.thought ?? '') + delta.reasoning_content;
        node.thoughtMs = now - clock.thought;
    }
    if (delta.content) {
        if (clock.thought && !node.text) node.thoughtMs = now - clock.thought;
        node.text += delta.content;
    }
    if (chunk.choices?.[0]?.finish_reason === 'length') node.state = 'cut';
    if (chunk.usage) clock.usage = chunk.usage;
    if (chunk.timings) clock.timings = chunk.timings;
}

// What is known of the answer: from the server where it says so, else from the clock here.
function statsOf(clock) {
    const { start, first, last, usage, timings } = clock;
    const stats = {};
    if (first !== undefined) stats.firstMs = first - start;
    if (usage) {
        stats.prompt = usage.prompt_tokens;
        stats.cached = usage.prompt_tokens_details?.cached_tokens ?? timings?.cache_n;
        stats.tokens = usage.completion_tokens;
        if (last - first > 20 && stats.tokens > 1) stats.rate = ((stats.tokens - 1) * 1000) / (last - first);
    } else if (timings) {
        stats.prompt = timings.prompt_n + timings.cache_n;
        stats.cached = timings.cache_n;
        stats.tokens = timings.predicted_n;
    }
    if (timings?.predicted_per_second > 0 && timings.predicted_n > 1) stats.rate = timings.predicted_per_second;
    for (const [name, value] of Object.entries(stats)) if (!Number.isFinite(value)) delete stats[name];
    return stats;
}

function closing(node) {
    if (node.state === 'failed') return `The answer failed: ${node.error}`;
    if (node.state === 'stopped') return 'Stopped.';
    return node.text;
}

// Answers after `parent`, a message of the person's. Returns when the answer is complete, stopped or failed.
export async function answer(conversation, parent) {
    if (state.running.has(conversation.id)) return;
    const controller = new AbortController();
    const node = addNode(conversation, parent.id, 'assistant', { state: 'running' });
    state.running.set(conversation.id, { node, stop: () => controller.abort() });
    emit('branch');
    emit('running');
    keep(conversation);
    announce('The answer is being written.');
    const clock = { start: performance.now() };
    let saved = clock.start;
    try {
        for await (const chunk of chatChunks(requestBody(conversation, parent), controller.signal)) {
            takeChunk(node, chunk, clock);
            emit('node', node);
            if (performance.now() - saved > savePauseMs) {
                saved = performance.now();
                keep(conversation);
            }
        }
        if (node.state === 'running') delete node.state;
    } catch (error) {
        node.state = controller.signal.aborted ? 'stopped' : 'failed';
        if (node.state === 'failed') node.error = error.message;
    }
    node.stats = statsOf(clock);
    state.running.delete(conversation.id);
    emit('node', node);
    emit('running');
    emit('stats');
    announce(closing(node));
    if (state.conversations.has(conversation.id)) keep(conversation);
}

// Says something at the end of the shown branch, or below `parent`, and has it answered.
export function ask(conversation, parent, text) {
    const node = addNode(conversation, parent, 'user', { text });
    return answer(conversation, node);
}

export function stop(conversation) {
    state.running.get(conversation.id)?.stop();
}
