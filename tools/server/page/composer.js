// The field at the bottom: Enter sends, Shift+Enter begins a line, Escape stops the answer. While the page loads there is no
// conversation yet: what is typed then waits for it.
import { ask, stop } from './answer.js';
import { h, icon } from './dom.js';
import { on, saveSettings, state } from './state.js';
import { shownPath } from './tree.js';

const form = document.getElementById('composer');
const prompt = document.getElementById('prompt');
const send = h('button', { type: 'submit', class: 'send' });
const think = h('button', { type: 'button', class: 'toggle', 'aria-pressed': 'false', title: 'Whether the model thinks before it answers' }, icon('think'), 'Think');
const drafts = new Map(); // by conversation id

function grow() {
    prompt.style.height = 'auto';
    prompt.style.height = `${Math.min(prompt.scrollHeight, window.innerHeight * 0.4)}px`;
    update();
}

function isRunning() {
    return state.current !== null && state.running.has(state.current.id);
}

function update() {
    const running = isRunning();
    if (send.dataset.running !== String(running)) {
        send.dataset.running = String(running);
        send.replaceChildren(icon(running ? 'stop' : 'send'));
        send.setAttribute('aria-label', running ? 'Stop' : 'Send');
        send.title = running ? 'Stop (Esc)' : 'Send (Enter)';
    }
    send.disabled = !running && !prompt.value.trim();
}

function thinks() {
    return state.current?.settings.think ?? state.props.thinks_by_default ?? true;
}

function updateThink() {
    // Only a template that asks for it can turn the thinking off.
    think.hidden = !/enable_thinking/.test(state.props.chat_template ?? '');
    think.setAttribute('aria-pressed', String(thinks()));
}

function submit() {
    const text = prompt.value.trim();
    if (isRunning() || !text || !state.current) return;
    const conversation = state.current;
    const last = shownPath(conversation).at(-1);
    prompt.value = '';
    drafts.delete(conversation.id);
    grow();
    ask(conversation, last?.id ?? '', text);
}

// On a phone the keyboard would cover half of the page: there the field is focused by a touch only.
export function focusComposer() {
    if (window.matchMedia('(hover: hover)').matches) prompt.focus({ preventScroll: true });
}

export function startComposer() {
    form.querySelector('.tools').append(think, h('span', { class: 'space' }), send);
    form.addEventListener('submit', (event) => {
        event.preventDefault();
        if (isRunning()) stop(state.current);
        else submit();
        focusComposer();
    });
    form.addEventListener('pointerdown', (event) => {
        if (event.target === form || event.target.classList.contains('tools') || event.target.classList.contains('space')) {
            event.preventDefault();
            prompt.focus();
        }
    });
    prompt.addEventListener('input', () => {
        if (state.current) drafts.set(state.current.id, prompt.value);
        grow();
    });
    prompt.addEventListener('keydown', (event) => {
        if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        submit();
    });
    think.addEventListener('click', () => state.current && saveSettings(state.current, { ...state.current.settings, think: !thinks() }));
    on('running', update);
    on('props', updateThink);
    on('settings', updateThink);
    let isFirst = true;
    on('current', () => {
        if (isFirst && prompt.value) drafts.set(state.current.id, prompt.value);
        isFirst = false;
        prompt.value = drafts.get(state.current.id) ?? '';
        updateThink();
        grow();
    });
    window.addEventListener('resize', grow);
}
