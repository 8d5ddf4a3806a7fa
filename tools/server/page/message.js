// One message: its text, the thinking folded above it, what it cost, and what can be done with it.
import { answer, ask } from './answer.js';
import { copyButton, h, icon, iconButton } from './dom.js';
import { count, rate, seconds } from './format.js';
import { Markdown } from './markdown.js';
import { emit, keep, showBranch, state } from './state.js';
import { addNode, siblings } from './tree.js';

export class Message {
    constructor(conversation, node) {
        this.conversation = conversation;
        this.node = node;
        this.body = h('div', { class: 'body' });
        this.footer = h('div', { class: 'footer' });
        const name = node.role === 'user' ? 'You' : 'Answer';
        this.element = h('article', { class: `message ${node.role}`, 'aria-label': name, tabindex: '-1', 'data-id': node.id }, this.body, this.footer);
        if (node.role === 'assistant') this.makeAnswer();
    }

    makeAnswer() {
        this.thinking = new Markdown();
        this.summary = h('span', {});
        this.details = h('details', { class: 'thought', hidden: true },
            h('summary', { onclick: () => (this.folded = true) }, icon('right'), this.summary), this.thinking.element);
        this.markdown = new Markdown();
        this.waited = h('span');
        this.waiting = h('div', { class: 'waiting' }, h('i'), h('i'), h('i'), this.waited);
        this.note = h('div', { class: 'note', hidden: true });
        this.body.append(this.details, this.markdown.element, this.waiting, this.note);
    }

    // Shows the message as it is now.
    update() {
        if (this.editing) return;
        if (this.node.role === 'user') this.body.replaceChildren(h('div', { class: 'bubble', dir: 'auto' }, this.node.text));
        else this.updateAnswer();
        this.updateFooter();
    }

    updateAnswer() {
        const { node } = this;
        const running = node.state === 'running';
        this.element.setAttribute('aria-busy', String(running));
        this.element.classList.toggle('running', running);
        this.waiting.hidden = !running || Boolean(node.text || node.thought);
        this.countSeconds();
        this.markdown.show(node.text);
        this.updateThought(running && !node.text);
        const notes = { failed: node.error, cut: 'Cut off: the limit of tokens was reached.', stopped: 'Stopped.', edited: 'Edited.' };
        this.note.hidden = !notes[node.state];
        this.note.classList.toggle('bad', node.state === 'failed');
        if (node.state === 'failed') this.note.replaceChildren(h('span', {}, node.error), h('button', { type: 'button', class: 'quiet', onclick: () => this.again() }, 'Try again'));
        else this.note.textContent = notes[node.state] ?? '';
    }

    // A long prompt on a slow device takes its time: how long, is shown.
    countSeconds() {
        if (this.waiting.hidden) {
            clearInterval(this.timer);
            this.timer = null;
            return;
        }
        this.timer ??= setInterval(() => {
            const ms = Date.now() - this.node.created;
            if (ms > 2500) this.waited.textContent = `Reading the prompt, ${seconds(Math.floor(ms / 1000) * 1000).replace('.0', '')}`;
        }, 1000);
    }

    updateThought(thinking) {
        const { node, details } = this;
        details.hidden = !node.thought;
        if (!node.thought) return;
        const time = node.thoughtMs >= 1000 ? ` for ${seconds(node.thoughtMs)}` : '';
        this.summary.textContent = thinking ? `Thinking${time}…` : `Thought${time || ' briefly'}`;
        details.classList.toggle('active', thinking);
        // It folds itself when the answer begins, unless the person has opened or closed it.
        if (!this.folded && (thinking || this.wasThinking)) details.open = thinking;
        this.wasThinking = thinking;
        if (thinking || details.open) this.thinking.show(node.thought);
        else details.ontoggle = () => this.thinking.show(node.thought);
    }

    updateFooter() {
        const { node, conversation } = this;
        const key = JSON.stringify([node.state, node.stats, siblings(conversation, node).length, state.running.has(conversation.id)]);
        if (key === this.footerKey) return;
        this.footerKey = key;
        if (node.state === 'running') return this.footer.replaceChildren();
        const isUser = node.role === 'user';
        const busy = state.running.has(conversation.id);
        this.footer.replaceChildren(...[
            this.branches(),
            h('div', { class: 'actions' },
                copyButton('Copy', () => node.text),
                iconButton('edit', 'Edit', () => this.edit(), { disabled: busy }),
                isUser ? null : iconButton('again', 'Answer again', () => this.again(), { disabled: busy })),
            isUser ? null : this.stats(),
        ].filter(Boolean));
    }

    // ‹ 2/3 › where the message has siblings.
    branches() {
        const all = siblings(this.conversation, this.node);
        if (all.length < 2) return null;
        const at = all.indexOf(this.node);
        const go = (step) => {
            showBranch(this.conversation, all[at + step]);
            emit('focus', { node: all[at + step], label: step < 0 ? 'Previous version' : 'Next version' });
        };
        return h('div', { class: 'branches', role: 'group', 'aria-label': `Version ${at + 1} of ${all.length}` },
            iconButton('left', 'Previous version', () => go(-1), { disabled: at === 0 }),
            h('span', {}, `${at + 1}/${all.length}`),
            iconButton('right', 'Next version', () => go(1), { disabled: at === all.length - 1 }));
    }

    stats() {
        const { firstMs, rate: speed, tokens, cached, prompt } = this.node.stats ?? {};
        const parts = [];
        if (speed !== undefined) parts.push([rate(speed), 'Tokens of the answer per second']);
        if (tokens !== undefined) parts.push([tokens === 1 ? '1 token' : `${count(tokens)} tokens`, 'Length of the answer, with its thinking']);
        if (firstMs !== undefined) parts.push([`${seconds(firstMs)} to first`, 'Time to the first token']);
        if (cached !== undefined && prompt) {
            parts.push([`${count(cached)} of ${count(prompt)} cached`, 'Tokens of the prompt that were found in the cache and not computed again']);
        }
        return parts.length ? h('div', { class: 'stats' }, parts.map(([text, hint]) => h('span', { title: hint }, text))) : null;
    }

    // Another answer, as a sibling of this one.
    again() {
        const parent = this.conversation.nodes[this.node.parent];
        if (parent) answer(this.conversation, parent);
    }

    edit() {
        const { node, conversation } = this;
        const area = h('textarea', { class: 'edit', 'aria-label': 'Edit the message', rows: '1', dir: 'auto' });
        area.value = node.text;
        const isUser = node.role === 'user';
        const close = () => {
            this.editing = false;
            this.footerKey = null;
            this.editor.remove();
            this.body.hidden = this.footer.hidden = false;
            this.update();
            this.footer.querySelector('[aria-label="Edit"]')?.focus();
        };
        const done = () => {
            const text = area.value.trim();
            if (!text || state.running.has(conversation.id)) return;
            close();
            if (isUser) ask(conversation, node.parent, text);
            else if (text !== node.text) {
                addNode(conversation, node.parent, 'assistant', { text, state: 'edited' });
                emit('branch');
                keep(conversation);
            }
        };
        const grow = () => {
            area.style.height = 'auto';
            area.style.height = `${Math.min(area.scrollHeight + 2, window.innerHeight * 0.6)}px`;
        };
        area.addEventListener('input', grow);
        area.addEventListener('keydown', (event) => {
            if (event.key === 'Escape') {
                event.stopPropagation();
                close();
            } else if (event.key === 'Enter' && !event.isComposing && (isUser ? !event.shiftKey : event.ctrlKey || event.metaKey)) {
                event.preventDefault();
                done();
            }
        });
        this.editing = true;
        this.editor = h('div', { class: 'editor' }, area, h('div', { class: 'buttons' },
            h('button', { type: 'button', class: 'quiet', onclick: close }, 'Cancel'),
            h('button', { type: 'button', class: 'primary', onclick: done }, isUser ? 'Send' : 'Save')));
        this.body.hidden = this.footer.hidden = true;
        this.element.append(this.editor);
        grow();
        area.focus();
    }
}
