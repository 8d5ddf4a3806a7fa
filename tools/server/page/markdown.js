// Draws Markdown as DOM nodes, and only what changed since the last time.
import { parseBlocks } from './blocks.js';
import { copyButton, drawTree, h } from './dom.js';
import { highlight } from './highlight.js';
import { parseInline } from './inline.js';

function inlineNode(node) {
    switch (node.type) {
        case 'text': return node.text;
        case 'code': return h('code', {}, node.text);
        case 'break': return h('br');
        case 'formula': return h('span', { class: node.display ? 'formula display' : 'formula', dir: 'ltr' }, drawTree(node.tree));
        case 'link': return h('a', { href: node.href, target: '_blank', rel: 'noopener noreferrer' }, node.children.map(inlineNode));
        default: return h(node.type, {}, node.children.map(inlineNode));
    }
}

function inline(text) {
    return parseInline(text).map(inlineNode);
}

function codeBlock(block) {
    const code = h('code', {}, block.closed ? highlight(block.text, block.language) : block.text);
    return h('div', { class: 'code-block', dir: 'ltr' },
        h('div', { class: 'code-bar' }, h('span', {}, block.language || 'text'), copyButton('Copy code', () => code.textContent)),
        h('pre', { tabindex: '0', 'aria-label': 'Code' }, code));
}

function listItem(item, loose) {
    const children = item.children.flatMap((child) => (child.type === 'paragraph' && !loose ? inline(child.text) : [blockNode(child)]));
    if (item.checked === null) return h('li', {}, children);
    return h('li', { class: 'task' }, h('input', { type: 'checkbox', disabled: true, checked: item.checked }), children);
}

function table({ head, align, rows }) {
    const row = (cells, tag) => h('tr', {}, cells.map((cell, i) => h(tag, { class: align[i] }, inline(cell))));
    return h('div', { class: 'table', tabindex: '0', role: 'group', 'aria-label': 'Table' },
        h('table', {}, h('thead', {}, row(head, 'th')), h('tbody', {}, rows.map((cells) => row(cells, 'td')))));
}

function blockNode(block) {
    switch (block.type) {
        // The page has its own h1 and h2.
        case 'heading': return h(`h${Math.min(block.level + 2, 6)}`, { class: `level-${block.level}` }, inline(block.text));
        case 'code': return codeBlock(block);
        case 'quote': return h('blockquote', {}, block.children.map(blockNode));
        case 'rule': return h('hr');
        case 'table': return table(block);
        case 'list': return h(block.ordered ? 'ol' : 'ul', { start: block.ordered && block.start !== 1 ? block.start : null },
            block.items.map((item) => listItem(item, block.loose)));
        default: return h('p', {}, inline(block.text));
    }
}

export class Markdown {
    constructor() {
        this.element = h('div', { class: 'markdown' });
        this.text = '';
        this.drawn = []; // {key, node} of each block
    }

    show(text) {
        if (text === this.text) return;
        this.text = text;
        const blocks = parseBlocks(text);
        blocks.forEach((block, i) => {
            const key = `${block.source}\n${block.closed ?? ''}`;
            const old = this.drawn[i];
            if (old?.key === key) return;
            if (old && block.type === 'code' && !block.closed && old.open) {
                old.node.querySelector('code').textContent = block.text;
                old.node.querySelector('.code-bar span').textContent = block.language || 'text';
                old.key = key;
                return;
            }
            const node = blockNode(block);
            node.dir ||= 'auto'; // that of its first letters; of a list, or a quote, those of all its blocks
            if (old) old.node.replaceWith(node);
            else this.element.append(node);
            this.drawn[i] = { key, node, open: block.type === 'code' && !block.closed };
        });
        for (const { node } of this.drawn.splice(blocks.length)) node.remove();
    }
}
