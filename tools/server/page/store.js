// Keeps conversations in the browser's IndexedDB, and tells other tabs what changed. Without IndexedDB (some private windows) they
// last as long as the tab.

const channel = 'BroadcastChannel' in window ? new BroadcastChannel('tq-run') : null;
let database = null;

function promised(request) {
    return new Promise((resolve, reject) => {
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
    });
}

function store(mode) {
    return database.transaction('conversations', mode).objectStore('conversations');
}

// Returns whether conversations will be found again.
export async function openStore() {
    try {
        const request = indexedDB.open('tq-run', 1);
        request.onupgradeneeded = () => request.result.createObjectStore('conversations', { keyPath: 'id' });
        database = await promised(request);
        database.onversionchange = () => database.close();
        return true;
    } catch {
        return false;
    }
}

export async function loadAll() {
    return database ? promised(store('readonly').getAll()) : [];
}

export async function load(id) {
    return database ? promised(store('readonly').get(id)) : undefined;
}

export async function save(conversation) {
    if (!database) return;
    const conversations = store('readwrite');
    const stored = await promised(conversations.get(conversation.id));
    // Messages are never taken out: what another tab has added stays.
    if (stored) conversation.nodes = { ...stored.nodes, ...conversation.nodes };
    await promised(conversations.put(conversation));
    channel?.postMessage(conversation.id);
}

export async function remove(id) {
    if (!database) return;
    await promised(store('readwrite').delete(id));
    channel?.postMessage(id);
}

// Calls `changed(id)` when another tab has saved or removed a conversation.
export function watch(changed) {
    channel?.addEventListener('message', ({ data }) => changed(data));
}

// Small values: the key, the theme, the settings of new conversations. Where a browser keeps nothing, the tab does.
const kept = new Map();

export function remember(name, value) {
    kept.set(name, value);
    try {
        if (value === null) localStorage.removeItem(`tq-run.${name}`);
        else localStorage.setItem(`tq-run.${name}`, value);
        kept.delete(name);
    } catch { /* it stays in `kept` */ }
}

export function recall(name) {
    if (kept.has(name)) return kept.get(name);
    try {
        return localStorage.getItem(`tq-run.${name}`);
    } catch {
        return null;
    }
}
