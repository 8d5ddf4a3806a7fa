// The list of conversations: search, new, rename, delete, export and import. On a narrow screen it is a drawer.
import { announce, download, h, icon, iconButton } from './dom.js';
import { dayName } from './format.js';
import { emit, forget, keep, listed, on, show, startNew, state } from './state.js';
import { exportText, importText, matches, newId } from './tree.js';
import { confirmDialog } from './dialogs.js';
import { recall, remember } from './store.js';

const sidebar = document.getElementById('sidebar');
const shade = document.getElementById('shade');
const list = document.getElementById('conversations');
const search = document.getElementById('search');
const narrow = window.matchMedia('(max-width: 760px)');
const opener = iconButton('menu', 'Conversations', () => setOpen(!isOpen()), { 'aria-expanded': 'false', 'aria-controls': 'sidebar' });
let menu = null;

function isOpen() {
    return document.body.classList.contains('side-open');
}

export function setOpen(open, byPerson = true) {
    document.body.classList.toggle('side-open', open);
    shade.hidden = !(open && narrow.matches);
    sidebar.inert = !open;
    opener.setAttribute('aria-expanded', String(open));
    if (!narrow.matches && byPerson) remember('side', open ? null : 'closed');
    if (narrow.matches && byPerson) (open ? document.getElementById('new') : opener).focus();
}

// Closes the drawer; returns whether it was open.
export function closeDrawer() {
    const open = narrow.matches && isOpen();
    if (open) setOpen(false);
    return open;
}

function closeMenu() {
    menu?.remove();
    menu = null;
    list.querySelector('[aria-haspopup][aria-expanded="true"]')?.setAttribute('aria-expanded', 'false');
}

function fileName(conversation) {
    return `${conversation.title.replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-+|-+$/g, '').slice(0, 40) || 'conversation'}.json`;
}

function openMenu(conversation, row, button) {
    closeMenu();
    const item = (name, text, action, kind = '') => h('button', { type: 'button', role: 'menuitem', class: kind, onclick: () => {
        closeMenu();
        action();
    } }, icon(name), text);
    menu = h('div', { class: 'menu', role: 'menu', 'aria-label': conversation.title },
        item('edit', 'Rename', () => rename(conversation)),
        item('down', 'Export', () => download(fileName(conversation), exportText([conversation]))),
        item('trash', 'Delete', () => removeAfterQuestion(conversation), 'bad'));
    menu.addEventListener('keydown', (event) => {
        const items = [...menu.children];
        const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
        if (step) {
            event.preventDefault();
            items[(items.indexOf(document.activeElement) + step + items.length) % items.length].focus();
        } else if (event.key === 'Escape' || event.key === 'Tab') {
            event.preventDefault();
            event.stopPropagation();
            closeMenu();
            button.focus();
        }
    });
    row.append(menu);
    menu.classList.toggle('above', menu.getBoundingClientRect().bottom > window.innerHeight - 8);
    button.setAttribute('aria-expanded', 'true');
    menu.firstChild.focus();
}

async function removeAfterQuestion(conversation) {
    const sure = await confirmDialog(`Delete “${conversation.title}”?`, 'It is kept only in this browser and cannot be brought back.', 'Delete');
    if (sure) await forget(conversation);
    (list.querySelector('.conversation button') ?? document.getElementById('new')).focus();
}

function rename(conversation) {
    const row = list.querySelector(`[data-id="${conversation.id}"]`);
    const field = h('input', { class: 'rename', 'aria-label': 'Name of the conversation', maxlength: '120', dir: 'auto' });
    field.value = conversation.title;
    let ended = false;
    const done = (wanted) => {
        if (ended) return;
        ended = true;
        field.remove();
        const title = field.value.trim();
        if (wanted && title && title !== conversation.title) {
            conversation.title = title;
            keep(conversation);
        }
        draw();
        list.querySelector(`[data-id="${conversation.id}"] button`)?.focus();
    };
    field.addEventListener('keydown', (event) => {
        event.stopPropagation();
        if (event.key === 'Enter' && !event.isComposing) done(true);
        if (event.key === 'Escape') done(false);
    });
    field.addEventListener('blur', () => done(true));
    row.replaceChildren(field);
    field.select();
}

function rowOf(conversation) {
    const shown = conversation === state.current;
    const open = h('button', { type: 'button', class: 'open', title: conversation.title, 'aria-current': shown ? 'true' : null, onclick: () => {
        show(conversation);
        if (narrow.matches) setOpen(false, false);
        emit('compose');
    }, ondblclick: () => rename(conversation) }, h('span', { class: 'name', dir: 'auto' }, conversation.title));
    const more = iconButton('more', `More of “${conversation.title}”`, (event) => {
        event.stopPropagation();
        if (menu && row.contains(menu)) closeMenu();
        else openMenu(conversation, row, more);
    }, { 'aria-haspopup': 'menu', 'aria-expanded': 'false' });
    const dot = state.running.has(conversation.id) ? h('span', { class: 'dot', title: 'Being answered', role: 'img', 'aria-label': 'Being answered' }) : null;
    const row = h('div', { class: `conversation${shown ? ' shown' : ''}`, 'data-id': conversation.id }, open, dot, more);
    return row;
}

function draw() {
    if (menu || list.querySelector('.rename:focus')) return;
    const focusedId = document.activeElement?.closest?.('.conversation')?.dataset.id;
    const found = listed().filter((conversation) => matches(conversation, search.value));
    const groups = new Map();
    for (const conversation of found) {
        const day = dayName(conversation.updated);
        if (!groups.has(day)) groups.set(day, []);
        groups.get(day).push(rowOf(conversation));
    }
    list.replaceChildren(...[...groups].map(([day, rows]) => h('section', { 'aria-label': day }, h('h2', {}, day), rows)));
    if (!found.length && search.value) list.append(h('p', { class: 'nothing' }, 'Nothing found.'));
    if (focusedId) list.querySelector(`[data-id="${focusedId}"] button`)?.focus();
    const title = document.getElementById('title');
    title.textContent = state.current?.title ?? '';
    title.hidden = !title.textContent;
    document.title = state.current?.title ? `${state.current.title} · tq-run` : 'tq-run';
    document.getElementById('export').disabled = state.conversations.size === 0;
}

async function importFile(file) {
    try {
        const conversations = importText(await file.text());
        for (const conversation of conversations) await keep({ ...conversation, id: newId() });
        announce(conversations.length === 1 ? '1 conversation was imported.' : `${conversations.length} conversations were imported.`);
    } catch (error) {
        await confirmDialog('The file was not imported', error.message, null);
    }
}

export function newChat() {
    startNew();
    if (narrow.matches) setOpen(false, false);
    emit('compose');
}

export function startSidebar() {
    document.querySelector('header').prepend(opener);
    document.getElementById('new').append(icon('plus'), 'New conversation');
    document.getElementById('new').addEventListener('click', newChat);
    document.querySelector('.search').prepend(icon('search'));
    document.querySelector('.side-top').append(iconButton('close', 'Close', () => setOpen(false)));
    search.addEventListener('input', draw);
    shade.addEventListener('click', () => setOpen(false));
    document.addEventListener('click', (event) => {
        if (menu && !menu.contains(event.target)) {
            closeMenu();
            draw();
        }
    });
    const file = document.getElementById('file');
    document.getElementById('import').addEventListener('click', () => file.click());
    document.getElementById('export').addEventListener('click', () => download('conversations.json', exportText(listed())));
    file.addEventListener('change', async () => {
        if (file.files[0]) await importFile(file.files[0]);
        file.value = '';
    });
    narrow.addEventListener('change', () => setOpen(!narrow.matches && recall('side') !== 'closed', false));
    setOpen(!narrow.matches && recall('side') !== 'closed', false);
    for (const event of ['list', 'current', 'running']) on(event, draw);
}

export function focusSearch() {
    setOpen(true, false);
    search.focus();
    search.select();
}
