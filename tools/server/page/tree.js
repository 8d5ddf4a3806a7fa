// A conversation is a tree of messages: whatever is edited or asked again becomes a sibling, and `chosen` says which child of each
// message is shown. Nothing here knows the page.

const limits = { nodes: 20000, text: 20_000_000 };

export function newId() {
    return 'm' + [...crypto.getRandomValues(new Uint8Array(9))].map((byte) => byte.toString(36).padStart(2, '0')).join('');
}

export function newConversation(settings = {}) {
    const now = Date.now();
    return { id: newId(), title: '', created: now, updated: now, settings: { ...settings }, nodes: {}, chosen: {} };
}

// Adds a message below `parent` (an id; '' for the beginning) and shows it.
export function addNode(conversation, parent, role, fields = {}) {
    const node = { id: newId(), parent, role, text: '', created: Date.now(), ...fields };
    conversation.nodes[node.id] = node;
    conversation.chosen[parent] = node.id;
    conversation.updated = node.created;
    if (role === 'user' && !conversation.title) conversation.title = titleOf(node.text);
    return node;
}

export function siblings(conversation, node) {
    return Object.values(conversation.nodes).filter((other) => other.parent === node.parent);
}

// Shows the branch of a message.
export function choose(conversation, node) {
    conversation.chosen[node.parent] = node.id;
}

// The messages that are shown, from the first on.
export function shownPath(conversation) {
    const path = [];
    for (let id = conversation.chosen['']; id; id = conversation.chosen[id]) path.push(conversation.nodes[id]);
    return path;
}

export function ancestors(conversation, node) {
    const path = [];
    for (let at = node; at; at = conversation.nodes[at.parent]) path.unshift(at);
    return path;
}

// What the model is sent to answer after `node`.
export function requestMessages(conversation, node) {
    const messages = ancestors(conversation, node)
        .filter((one) => one.role === 'user' || one.text)
        .map(({ role, text, thought }) => ({ role, content: text, reasoning_content: thought })); // the template says what of it stays
    const system = conversation.settings.system?.trim();
    return system ? [{ role: 'system', content: system }, ...messages] : messages;
}

export function titleOf(text) {
    const line = text.trim().split('\n')[0].replace(/\s+/g, ' ');
    const characters = [...line];
    return characters.length > 60 ? characters.slice(0, 59).join('').trimEnd() + '…' : line;
}

export function matches(conversation, query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return true;
    const text = [conversation.title, ...Object.values(conversation.nodes).map((node) => node.text)].join('\n').toLowerCase();
    return words.every((word) => text.includes(word));
}

function check(condition, what) {
    if (!condition) throw new Error(`This is not a file of conversations: ${what}.`);
}

const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);
const isText = (value) => typeof value === 'string' && value.length <= limits.text;
const isTime = (value) => Number.isFinite(value) && value >= 0 && value < 8.64e15;

// Takes only what is known of a message's measurements: numbers.
function numbersOf(value) {
    const numbers = isObject(value) ? Object.entries(value).filter(([, number]) => Number.isFinite(number) && number >= 0) : [];
    return Object.fromEntries(numbers);
}

function importNode(value, nodes) {
    check(isObject(value), 'a message is no object');
    check(isText(value.id) && /^[A-Za-z0-9_-]{1,64}$/.test(value.id) && value.id !== '__proto__' && !nodes[value.id], 'a message has no id of its own');
    check(value.role === 'user' || value.role === 'assistant', `a message is of ${JSON.stringify(value.role)}`);
    check(isText(value.text), 'a message has no text');
    // A parent stands before its children, so that there can be no circle.
    check(value.parent === '' || (isText(value.parent) && Object.hasOwn(nodes, value.parent)), 'a message follows one that is not there');
    const node = { id: value.id, parent: value.parent, role: value.role, text: value.text };
    node.created = isTime(value.created) ? value.created : Date.now();
    if (isText(value.thought) && value.thought) node.thought = value.thought;
    if (isTime(value.thoughtMs)) node.thoughtMs = value.thoughtMs;
    if (['stopped', 'cut', 'failed', 'edited'].includes(value.state)) node.state = value.state;
    if (isText(value.error)) node.error = value.error;
    if (value.stats) node.stats = numbersOf(value.stats);
    return node;
}

function importConversation(value) {
    check(isObject(value) && Array.isArray(value.messages), 'a conversation has no messages');
    check(value.messages.length <= limits.nodes, `a conversation has ${value.messages.length} messages, at most ${limits.nodes} are read`);
    const conversation = newConversation(cleanSettings(value.settings));
    for (const message of value.messages) {
        const node = importNode(message, conversation.nodes);
        conversation.nodes[node.id] = node;
        if (!conversation.chosen[node.parent] || message.shown === true) conversation.chosen[node.parent] = node.id;
        if (node.role === 'user' && !conversation.title) conversation.title = titleOf(node.text);
    }
    if (isText(value.title) && value.title.trim()) conversation.title = titleOf(value.title);
    if (isTime(value.created)) conversation.created = value.created;
    if (isTime(value.updated)) conversation.updated = value.updated;
    return conversation;
}

// Settings of a request that are of their type; what is missing is the server's default.
export function cleanSettings(value) {
    const settings = {};
    if (!isObject(value)) return settings;
    for (const name of ['temperature', 'top_p', 'top_k', 'min_p', 'max_tokens', 'seed'])
        if (Number.isFinite(value[name])) settings[name] = value[name];
    if (isText(value.system)) settings.system = value.system;
    if (typeof value.think === 'boolean') settings.think = value.think;
    return settings;
}

export function exportText(conversations) {
    const clean = conversations.map(({ title, created, updated, settings, nodes, chosen }) => ({
        title, created, updated, settings,
        messages: Object.values(nodes).map((node) => ({ ...node, shown: chosen[node.parent] === node.id })),
    }));
    return JSON.stringify({ format: 'tq-run conversations', version: 1, conversations: clean }, null, 1);
}

// Reads what exportText() wrote. Throws an Error with a sentence for anything else.
export function importText(text) {
    let value;
    try {
        value = JSON.parse(text);
    } catch {
        check(false, 'it is not JSON');
    }
    check(isObject(value) && value.format === 'tq-run conversations', 'it does not say "format": "tq-run conversations"');
    check(value.version === 1, `it has version ${JSON.stringify(value.version)}, this page reads version 1`);
    check(Array.isArray(value.conversations), 'it has no conversations');
    return value.conversations.map(importConversation);
}
