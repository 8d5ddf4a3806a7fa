// Dialogs: a question, the API key, and the settings of a conversation.
import { h, iconButton } from './dom.js';
import { saveSettings, state } from './state.js';

// Shows a dialog; `build(close)` returns its content. Returns a promise of what it was closed with, null for Escape.
function openDialog(label, build) {
    return new Promise((resolve) => {
        let result = null;
        const dialog = h('dialog', { 'aria-label': label });
        const close = (value) => {
            result = value;
            dialog.close();
        };
        dialog.append(...build(close));
        dialog.addEventListener('click', (event) => event.target === dialog && close(null));
        dialog.addEventListener('close', () => {
            dialog.remove();
            resolve(result);
        });
        document.body.append(dialog);
        dialog.showModal();
    });
}

function form(submit, ...children) {
    return h('form', { onsubmit: (event) => {
        event.preventDefault();
        submit();
    } }, children);
}

const cancelButton = (close) => h('button', { type: 'button', class: 'quiet', onclick: () => close(null) }, 'Cancel');

// Returns whether the person agreed. Without `action` there is only something to read.
export async function confirmDialog(title, text, action) {
    return (await openDialog(title, (close) => [form(() => close(true),
        h('h2', {}, title), h('p', {}, text),
        h('div', { class: 'buttons' }, action ? cancelButton(close) : null, h('button', { type: 'submit', class: action ? 'primary bad' : 'primary' }, action ?? 'Close')))])) === true;
}

// Returns the key, or null.
export function keyDialog(wasWrong) {
    const field = h('input', { type: 'password', id: 'key', autocomplete: 'off', spellcheck: 'false', autofocus: true });
    return openDialog('API key', (close) => [form(() => field.value.trim() && close(field.value.trim()),
        h('h2', {}, 'API key'),
        h('p', {}, wasWrong ? 'The server does not know the key that this browser has.' : 'This server asks for a key. It is kept in this browser.'),
        h('label', { for: 'key', class: 'unseen' }, 'API key'), field,
        h('div', { class: 'buttons' }, cancelButton(close), h('button', { type: 'submit', class: 'primary' }, 'Continue')))]);
}

const numbers = [
    { name: 'temperature', label: 'Temperature', min: 0, max: 2, step: 0.05, hint: '0 always takes the likeliest token' },
    { name: 'top_p', label: 'Top p', min: 0, max: 1, step: 0.01, hint: 'Takes the likeliest tokens that together have this probability' },
    { name: 'top_k', label: 'Top k', min: 0, max: 1000, step: 1, hint: 'Takes this many of the likeliest tokens; 0 takes all' },
    { name: 'min_p', label: 'Min p', min: 0, max: 1, step: 0.01, hint: 'Leaves out tokens below this share of the likeliest one' },
    { name: 'max_tokens', label: 'Max tokens', min: 1, max: 10000000, step: 1, hint: 'Where an answer is cut off' },
    { name: 'seed', label: 'Seed', min: 0, max: 4294967295, step: 1, hint: 'The same seed gives the same answer' },
];

function defaultOf(name) {
    const value = (state.props.default_generation_settings?.params ?? state.props.default_generation_settings ?? {})[name];
    if (name === 'seed') return 'random';
    if (!Number.isFinite(value) || value < 0) return name === 'max_tokens' ? 'no limit' : 'default';
    return String(Math.round(value * 1000) / 1000);
}

function numberField({ name, label, min, max, step, hint }, settings) {
    const input = h('input', { type: 'number', id: `set-${name}`, min, max, step: step < 1 ? 'any' : 1, placeholder: defaultOf(name), inputmode: step < 1 ? 'decimal' : 'numeric' });
    if (settings[name] !== undefined) input.value = settings[name];
    return h('div', { class: 'field' }, h('label', { for: `set-${name}`, title: hint }, label), input);
}

function thinkField(settings) {
    const choices = [['Default', undefined], ['On', true], ['Off', false]];
    return h('fieldset', { class: 'field' }, h('legend', {}, 'Thinking'), h('div', { class: 'choice' }, choices.map(([label, value]) =>
        h('label', {}, h('input', { type: 'radio', name: 'think', value: String(value), checked: settings.think === value }), h('span', {}, label)))));
}

// The settings of the conversation; new conversations begin with the same.
export async function settingsDialog() {
    const conversation = state.current;
    if (!conversation) return; // the page loads
    const { settings } = conversation;
    const system = h('textarea', { id: 'set-system', rows: '4', dir: 'auto', placeholder: 'How the model is to answer' });
    system.value = settings.system ?? '';
    let content;
    const read = () => {
        const result = {};
        for (const { name } of numbers) {
            const { value, valueAsNumber } = content.querySelector(`#set-${name}`);
            if (value !== '' && Number.isFinite(valueAsNumber)) result[name] = valueAsNumber;
        }
        if (system.value.trim()) result.system = system.value;
        const think = content.querySelector('[name=think]:checked').value;
        if (think !== 'undefined') result.think = think === 'true';
        return result;
    };
    const reset = () => {
        for (const input of content.querySelectorAll('input[type=number], textarea')) input.value = '';
        content.querySelector('[name=think][value=undefined]').checked = true;
    };
    const result = await openDialog('Settings', (close) => [content = form(() => close(read()),
        h('div', { class: 'dialog-top' }, h('h2', {}, 'Settings'), iconButton('close', 'Close', () => close(null))),
        h('p', { class: 'faint' }, 'Of this conversation; new ones begin with the same. What is empty is up to the server.'),
        h('div', { class: 'field wide' }, h('label', { for: 'set-system' }, 'System prompt'), system),
        h('div', { class: 'fields' }, numbers.map((number) => numberField(number, settings))),
        thinkField(settings),
        h('div', { class: 'buttons' }, h('button', { type: 'button', class: 'quiet', onclick: reset }, 'Reset'), h('span', { class: 'space' }), cancelButton(close),
            h('button', { type: 'submit', class: 'primary' }, 'Save')))]);
    if (result) saveSettings(conversation, result);
}
