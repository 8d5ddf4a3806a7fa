// What the page shows, and who wants to know when it changes.
import { load, loadAll, recall, remember, remove, save, watch } from './store.js';
import { choose, cleanSettings, newConversation } from './tree.js';

const listeners = {};

export const state = {
    conversations: new Map(), // by id; a new one is among them when it has a message
    current: null,
    running: new Map(), // by conversation id: {node, stop()}
    props: {}, // of the server
    model: '',
};

// Events: 'list' (conversations, their titles), 'current' (another one is shown), 'branch' (its shown messages), 'node' (the text of one),
// 'running', 'props'.
export function on(event, listener) {
    (listeners[event] ??= []).push(listener);
}

export function emit(event, value) {
    for (const listener of listeners[event] ?? []) listener(value);
}

export function defaultSettings() {
    try {
        return cleanSettings(JSON.parse(recall('settings')));
    } catch {
        return {};
    }
}

export function startNew() {
    show(newConversation(defaultSettings()));
}

export function show(conversation) {
    state.current = conversation;
    remember('shown', state.conversations.has(conversation.id) ? conversation.id : null);
    emit('current');
}

export function listed() {
    return [...state.conversations.values()].sort((a, b) => b.updated - a.updated);
}

// Keeps a conversation after a change.
export async function keep(conversation) {
    const isNew = !state.conversations.has(conversation.id);
    state.conversations.set(conversation.id, conversation);
    if (isNew && conversation === state.current) remember('shown', conversation.id);
    emit('list');
    try {
        await save(conversation);
    } catch (error) {
        emit('unsaved', error);
    }
}

export function showBranch(conversation, node) {
    choose(conversation, node);
    emit('branch');
    keep(conversation);
}

export async function forget(conversation) {
    state.running.get(conversation.id)?.stop();
    state.conversations.delete(conversation.id);
    if (conversation === state.current) startNew();
    emit('list');
    await remove(conversation.id).catch((error) => emit('unsaved', error));
}

export function saveSettings(conversation, settings) {
    conversation.settings = settings;
    remember('settings', JSON.stringify(settings));
    if (state.conversations.has(conversation.id)) keep(conversation);
    emit('settings');
}

// An answer that was being written when its tab was closed is not written any more.
function settle(conversation) {
    for (const node of Object.values(conversation.nodes)) if (node.state === 'running') node.state = 'stopped';
    return conversation;
}

export async function loadConversations() {
    for (const conversation of await loadAll()) state.conversations.set(conversation.id, settle(conversation));
    emit('list');
    watch(async (id) => {
        if (state.running.has(id)) return;
        const conversation = await load(id);
        const wasShown = state.current?.id === id;
        if (conversation) state.conversations.set(id, conversation);
        else state.conversations.delete(id);
        emit('list');
        if (wasShown && conversation) show(conversation);
    });
    const shown = state.conversations.get(recall('shown'));
    if (shown) show(shown);
    else startNew();
}
