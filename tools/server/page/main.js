// Puts the page together.
import { request, setKeyDialog, untilReady } from './api.js';
import { closePanel, startCache } from './cache.js';
import { startChat } from './chat.js';
import { focusComposer, startComposer } from './composer.js';
import { stop } from './answer.js';
import { keyDialog, settingsDialog } from './dialogs.js';
import { icon, iconButton } from './dom.js';
import { count } from './format.js';
import { closeDrawer, focusSearch, newChat, startSidebar } from './sidebar.js';
import { emit, keep, loadConversations, on, state } from './state.js';
import { openStore, remember } from './store.js';

const notice = document.getElementById('notice');

function say(text) {
    notice.textContent = text;
    notice.hidden = !text;
}

function isDark() {
    const { theme } = document.documentElement.dataset;
    return theme ? theme === 'dark' : window.matchMedia('(prefers-color-scheme: dark)').matches;
}

function startTheme() {
    const button = iconButton('moon', 'Dark', () => {
        const theme = isDark() ? 'light' : 'dark';
        document.documentElement.dataset.theme = theme;
        remember('theme', theme);
        update();
    });
    const update = () => {
        const label = isDark() ? 'Light theme' : 'Dark theme';
        button.replaceChildren(icon(isDark() ? 'sun' : 'moon'));
        button.setAttribute('aria-label', label);
        button.title = label;
        emit('theme');
    };
    window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', update);
    update();
    return button;
}

function startKeys() {
    document.addEventListener('keydown', (event) => {
        if (document.querySelector('dialog[open]')) return;
        const command = event.ctrlKey || event.metaKey;
        if (event.key === 'Escape') {
            if (closeDrawer()) return;
            if (state.current && state.running.has(state.current.id)) stop(state.current);
            else if (!closePanel()) focusComposer();
        } else if (command && event.key.toLowerCase() === 'k') {
            event.preventDefault();
            focusSearch();
        } else if (command && event.shiftKey && event.key.toLowerCase() === 'o') {
            event.preventDefault();
            newChat();
        }
    });
}

async function readProps() {
    const props = await request('/props').then((response) => response.json());
    const models = await request('/v1/models').then((response) => response.json()).catch(() => null);
    state.props = props ?? {};
    state.model = models?.data?.[0]?.id ?? props?.model_alias ?? '';
    const facts = [state.model, props?.context > 0 ? `${count(props.context)} tokens of context` : null];
    if (props?.f16_bytes_per_token > 0 && props?.kv_bytes_per_token > 0) {
        facts.push(`cache ${(props.f16_bytes_per_token / props.kv_bytes_per_token).toFixed(1)}× smaller than f16`);
    }
    document.getElementById('about').textContent = facts.filter(Boolean).join(' · ');
    emit('props');
}

async function start() {
    setKeyDialog(keyDialog);
    startChat();
    startSidebar();
    startComposer();
    startCache();
    startKeys();
    document.querySelector('header').append(iconButton('sliders', 'Settings', settingsDialog), startTheme());
    on('compose', focusComposer);
    // A key that was refused at first may have been given later.
    on('stats', () => state.model || readProps().catch(() => {}));
    const kept = await openStore();
    await loadConversations();
    document.body.classList.add('ready');
    focusComposer();
    if (!kept) say('This browser keeps no data here: conversations are lost when the tab is closed. Export what you want to keep.');
    // An answer that is being written is kept as far as it has come.
    window.addEventListener('pagehide', () => {
        for (const id of state.running.keys()) if (state.conversations.has(id)) keep(state.conversations.get(id));
    });
    try {
        await untilReady(say);
        if (kept) say('');
        await readProps();
    } catch (error) {
        say(error.message);
    }
}

start();
