// What the cache does: the bytes of this conversation against f16, the tokens that were found, and slots and pages as they are now.
import { parseMetrics, request } from './api.js';
import { h, icon, iconButton } from './dom.js';
import { bytes, count, rate, seconds } from './format.js';
import { on, state } from './state.js';
import { drawPages } from './pages.js';
import { shownPath } from './tree.js';

const panel = document.getElementById('panel');
const button = document.getElementById('cache-button');
const conversationBox = h('section', { class: 'box' });
const answerBox = h('section', { class: 'box' });
const slotsBox = h('section', { class: 'box' });
const canvas = h('canvas', { role: 'img' });
const legend = h('dl', { class: 'legend' });
const pagesBox = h('section', { class: 'box', hidden: true }, h('h3', {}, 'Pages'), canvas, legend);
const periodMs = 1000;
let timer = 0;
let polling = null;
let before = null; // numbers of the last second, for the rates
let pages = null;

// The last answer on the branch that has been measured.
function lastStats() {
    return shownPath(state.current).findLast((node) => node.stats?.prompt !== undefined)?.stats;
}

// Tokens of the conversation that are in the cache, and their bytes; null before the first answer.
function sizeNow() {
    const stats = lastStats();
    const { kv_bytes_per_token: own, f16_bytes_per_token: f16, context } = state.props;
    if (!stats || !(own > 0) || !(f16 > 0)) return null;
    const tokens = stats.prompt + (stats.tokens ?? 0);
    return { tokens, context, own: tokens * own, f16: tokens * f16, ratio: f16 / own };
}

function bar(label, share, kind) {
    const fill = h('i', { class: kind });
    fill.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
    return h('span', { class: 'bar', role: 'img', 'aria-label': label }, fill);
}

function drawConversation() {
    const size = sizeNow();
    button.replaceChildren(icon('pages'), h('span', {}, size ? `${bytes(size.own)}` : 'Cache'), size ? h('small', {}, `f16 ${bytes(size.f16)}`) : '');
    button.setAttribute('aria-label', size ? `Cache: ${bytes(size.own)}, with f16 ${bytes(size.f16)}` : 'Cache');
    conversationBox.replaceChildren(h('h3', {}, 'This conversation'));
    if (!size) {
        const own = state.props.kv_bytes_per_token, f16 = state.props.f16_bytes_per_token;
        conversationBox.append(h('p', { class: 'faint' }, own > 0 && f16 > 0
            ? `A token takes ${bytes(own)} of the cache; with f16 it would take ${bytes(f16)}.` : 'Nothing is in the cache yet.'));
        return;
    }
    conversationBox.append(
        h('p', { class: 'big' }, bytes(size.own), h('small', {}, `${size.ratio.toFixed(1)}× smaller than f16`)),
        h('div', { class: 'bars' },
            h('span', {}, 'here'), bar('Bytes of the cache', size.own / size.f16, 'used'), h('b', {}, bytes(size.own)),
            h('span', {}, 'f16'), bar('Bytes with f16', 1, 'other'), h('b', {}, bytes(size.f16))));
    if (size.context > 0) {
        conversationBox.append(h('p', { class: 'line' }, h('span', {}, 'Context'), h('b', {}, `${count(size.tokens)} of ${count(size.context)}`)),
            bar('Share of the context', size.tokens / size.context, 'used'));
    }
}

function drawAnswer() {
    const stats = lastStats();
    answerBox.hidden = !stats;
    if (!stats) return;
    const line = (name, value) => h('p', { class: 'line' }, h('span', {}, name), h('b', {}, value));
    const share = stats.cached !== undefined && stats.prompt > 0 ? stats.cached / stats.prompt : null;
    answerBox.replaceChildren(...[
        h('h3', {}, 'Last answer'),
        share === null ? null : line('Prompt cached', `${count(stats.cached)} of ${count(stats.prompt)}`),
        share === null ? null : bar('Share of the prompt that was cached', share, 'used'),
        stats.firstMs === undefined ? null : line('First token', seconds(stats.firstMs)),
        stats.rate === undefined ? null : line('Speed', rate(stats.rate)),
    ].filter(Boolean));
}

function slotRow(slot, i) {
    const next = Array.isArray(slot.next_token) ? slot.next_token[0] : slot.next_token;
    const decoded = slot.n_decoded ?? next?.n_decoded ?? 0;
    const prompt = slot.n_prompt_tokens ?? slot.prompt_tokens ?? 0;
    const cached = slot.n_prompt_tokens_cache ?? slot.cached_tokens ?? 0;
    const tokens = slot.n_tokens ?? slot.tokens ?? prompt + decoded;
    const context = slot.n_ctx ?? state.props.context ?? 0;
    const doing = !slot.is_processing ? (tokens ? 'idle' : 'empty') : decoded ? 'writing' : 'reading';
    return h('li', { class: slot.is_processing ? 'busy' : '', title: `${count(tokens)} tokens, ${count(cached)} of the prompt cached` },
        h('span', {}, `${slot.id ?? i}`), h('em', {}, doing), bar(`Slot ${slot.id ?? i}: ${count(tokens)} tokens`, context ? tokens / context : 0, slot.is_processing ? 'used' : 'spare'),
        h('b', {}, count(tokens)));
}

function drawSlots(slots, metrics) {
    const decoded = metrics['llamacpp:tokens_predicted_total'];
    const now = performance.now();
    const speed = before && decoded > before.decoded ? ((decoded - before.decoded) * 1000) / (now - before.now) : 0;
    before = Number.isFinite(decoded) ? { decoded, now } : null;
    slotsBox.hidden = !slots;
    if (!slots) return;
    const busy = slots.filter((slot) => slot.is_processing).length;
    slotsBox.replaceChildren(h('h3', {}, 'Slots', h('small', {}, speed ? rate(speed) : `${busy} of ${slots.length} busy`)),
        h('ul', { class: 'slots' }, slots.map(slotRow)));
}

function drawPool(metrics) {
    const [used, spare, free] = ['used', 'spare', 'free'].map((name) => metrics[`tqrun_pages{state="${name}"}`]);
    pagesBox.hidden = ![used, spare, free].every((number) => number >= 0);
    if (pagesBox.hidden) return;
    pages = { used, spare, free };
    canvas.setAttribute('aria-label', `${used} pages used, ${spare} spare, ${free} free`);
    const entry = (kind, name, number, hint) => h('div', { title: hint }, h('dt', {}, h('i', { class: kind }), name), h('dd', {}, count(number)));
    legend.replaceChildren(entry('used', 'Used', used, 'Of requests that are running'), entry('spare', 'Spare', spare, 'Kept for prompts to come; given up when room is needed'),
        entry('free', 'Free', free, 'Empty'));
    redraw();
}

function redraw() {
    if (!pages || panel.hidden) return;
    const colour = (kind) => getComputedStyle(legend.querySelector(`.${kind}`)).backgroundColor;
    drawPages(canvas, pages, { used: colour('used'), spare: colour('spare'), free: colour('free') });
}

async function poll(signal) {
    const get = (path) => request(path, { signal, quiet: true }).catch((error) => {
        if (signal.aborted) throw error;
        return null;
    });
    const [slots, metrics] = await Promise.all([get('/slots').then((r) => r?.json()), get('/metrics').then((r) => r?.text())]);
    if (signal.aborted) return;
    const parsed = parseMetrics(metrics ?? '');
    drawSlots(Array.isArray(slots) ? slots : null, parsed);
    drawPool(parsed);
}

// Looks every second while the panel is open and the page is seen; a look that takes longer is not begun twice.
function watch() {
    clearTimeout(timer);
    polling?.abort();
    before = null;
    if (panel.hidden || document.hidden) return;
    polling = new AbortController();
    const { signal } = polling;
    const again = async () => {
        await poll(signal).catch(() => {});
        if (!signal.aborted) timer = setTimeout(again, periodMs);
    };
    again();
}

export function setPanel(open) {
    panel.hidden = !open;
    document.body.classList.toggle('panel-open', open);
    button.setAttribute('aria-expanded', String(open));
    watch();
    if (open) panel.querySelector('button').focus();
    else button.focus();
}

// Closes the panel; returns whether it was open.
export function closePanel() {
    const open = !panel.hidden;
    if (open) setPanel(false);
    return open;
}

export function startCache() {
    panel.append(h('div', { class: 'panel-top' }, h('h2', {}, 'Cache'), iconButton('close', 'Close', () => setPanel(false))),
        conversationBox, answerBox, slotsBox, pagesBox);
    button.addEventListener('click', () => setPanel(panel.hidden));
    document.addEventListener('visibilitychange', watch);
    const draw = () => {
        drawConversation();
        drawAnswer();
    };
    for (const event of ['current', 'branch', 'stats', 'props']) on(event, draw);
    new ResizeObserver(redraw).observe(canvas);
    on('theme', redraw);
}
