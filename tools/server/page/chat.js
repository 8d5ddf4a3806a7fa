// The shown branch of the conversation. Draws what changed at most once a frame, and follows the answer unless the person scrolls up.
import { h, icon } from './dom.js';
import { Message } from './message.js';
import { on, state } from './state.js';
import { shownPath } from './tree.js';

const list = document.getElementById('messages');
const scroller = document.getElementById('scroller');
const latest = document.getElementById('latest');
const views = new Map(); // by node id
const changed = new Set(); // ids to be drawn
let shown = null;
let follows = true;
let frame = 0;
let nextDraw = 0;

function follow() {
    if (follows) scroller.scrollTop = scroller.scrollHeight;
    latest.hidden = follows;
}

function draw() {
    frame = 0;
    const start = performance.now();
    if (start < nextDraw) {
        schedule();
        return;
    }
    for (const id of changed) views.get(id)?.update();
    changed.clear();
    follow();
    // A long answer takes long to draw: leave the page most of the time for everything else.
    nextDraw = performance.now() + 3 * (performance.now() - start);
}

function schedule() {
    frame ||= requestAnimationFrame(draw);
}

function showBranch() {
    const conversation = state.current;
    if (shown !== conversation) views.clear();
    const path = shownPath(conversation);
    const elements = path.map((node) => {
        if (!views.has(node.id)) views.set(node.id, new Message(conversation, node));
        views.get(node.id).update();
        return views.get(node.id).element;
    });
    const kept = new Set(elements);
    for (const child of [...list.children]) if (!kept.has(child)) child.remove();
    elements.forEach((element, i) => {
        if (list.children[i] !== element) list.insertBefore(element, list.children[i] ?? null);
    });
    document.body.classList.toggle('empty', path.length === 0);
    if (shown !== conversation) follows = true;
    shown = conversation;
    follow();
}

export function startChat() {
    latest.append(icon('down'));
    latest.addEventListener('click', () => {
        follows = true;
        follow();
    });
    scroller.addEventListener('scroll', () => {
        follows = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 48;
        latest.hidden = follows;
    }, { passive: true });
    new ResizeObserver(follow).observe(list);
    on('current', showBranch);
    on('branch', () => {
        follows ||= state.running.has(state.current.id);
        showBranch();
    });
    on('node', (node) => {
        changed.add(node.id);
        schedule();
    });
    on('running', () => {
        for (const id of views.keys()) changed.add(id);
        schedule();
    });
    on('focus', ({ node, label }) => {
        const footer = views.get(node.id)?.footer;
        (footer?.querySelector(`[aria-label="${label}"]:enabled`) ?? footer?.querySelector('.branches button:enabled'))?.focus();
    });
    on('unsaved', () => {
        const notice = document.getElementById('notice');
        notice.textContent = 'The browser could not save this conversation: its storage may be full. Export it to keep it.';
        notice.hidden = false;
    });
    document.getElementById('welcome').prepend(h('div', { class: 'mark' }, icon('pages')));
}
