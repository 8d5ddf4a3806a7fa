// Makes DOM nodes. Text only ever becomes text nodes: nothing here takes HTML.

// h('a', {class: 'link', href, onclick, 'aria-label': '…'}, children…): attributes that are null or false are left out; functions
// become listeners; children are nodes, texts, or null for nothing.
export function h(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
        if (value === null || value === undefined || value === false) continue;
        if (typeof value === 'function') element.addEventListener(name.slice(2), value);
        else element.setAttribute(name, value === true ? '' : value);
    }
    element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
    return element;
}

// The elements of a tree of MathML: {tag, attributes, children}.
export function drawTree({ tag, attributes, children }) {
    const element = document.createElementNS('http://www.w3.org/1998/Math/MathML', tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children.map((child) => (typeof child === 'string' ? child : drawTree(child))));
    return element;
}

const paths = {
    menu: 'M4 7h16M4 12h16M4 17h10',
    plus: 'M12 5v14M5 12h14',
    search: 'M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM20 20l-4-4',
    send: 'M12 19V5M6 11l6-6 6 6',
    copy: 'M9 9h10v11H9zM5 15V4h10',
    check: 'M5 13l4 4L19 7',
    edit: 'M4 20h4L19 9l-4-4L4 16zM13 7l4 4',
    again: 'M19 12a7 7 0 1 1-2-5l2 2M19 4v5h-5',
    left: 'M14 6l-6 6 6 6',
    right: 'M10 6l6 6-6 6',
    down: 'M12 5v14M6 13l6 6 6-6',
    sun: 'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2M5.3 5.3l1.4 1.4M17.3 17.3l1.4 1.4M5.3 18.7l1.4-1.4M17.3 6.7l1.4-1.4',
    moon: 'M20 14.5A8 8 0 0 1 9.5 4 8 8 0 1 0 20 14.5z',
    sliders: 'M4 8h8M18 8h2M15 5.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM4 16h2M12 16h8M9 13.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5z',
    trash: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13',
    more: 'M5 12h.01M12 12h.01M19 12h.01',
    close: 'M6 6l12 12M18 6L6 18',
    pages: 'M5 4h5a1 1 0 0 1 1 1v5a1 1 0 0 1-1 1h-5a1 1 0 0 1-1-1v-5a1 1 0 0 1 1-1zM14.5 4h5a1 1 0 0 1 1 1v5a1 1 0 0 1-1 1h-5a1 1 0 0 1-1-1v-5a1 1 0 0 1 1-1zM5 13.5h5a1 1 0 0 1 1 1v5a1 1 0 0 1-1 1h-5a1 1 0 0 1-1-1v-5a1 1 0 0 1 1-1zM14.5 13.5h5a1 1 0 0 1 1 1v5a1 1 0 0 1-1 1h-5a1 1 0 0 1-1-1v-5a1 1 0 0 1 1-1z',
    think: 'M9 18h6M10 21h4M12 3a6 6 0 0 0-4 10.5c.7.7 1 1.5 1 2.5h6c0-1 .3-1.8 1-2.5A6 6 0 0 0 12 3z',
};

export function icon(name) {
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    svg.setAttribute('viewBox', '0 0 24 24');
    svg.setAttribute('aria-hidden', 'true');
    if (name === 'stop') {
        const square = document.createElementNS(svg.namespaceURI, 'rect');
        for (const [key, value] of Object.entries({ x: 7, y: 7, width: 10, height: 10, rx: 2, class: 'solid' })) square.setAttribute(key, value);
        svg.append(square);
    } else {
        const path = document.createElementNS(svg.namespaceURI, 'path');
        path.setAttribute('d', paths[name]);
        svg.append(path);
    }
    return svg;
}

// A button of an icon alone: its label is read aloud and shown as a hint.
export function iconButton(name, label, onclick, attributes = {}) {
    return h('button', { type: 'button', class: 'icon', 'aria-label': label, title: label, onclick, ...attributes }, icon(name));
}

// Says something to those who do not see the page.
export function announce(text) {
    document.getElementById('announcer').textContent = text;
}

// Copies, also where the page has no secure context (plain HTTP from another machine). Returns whether it did.
export async function copyText(text) {
    try {
        await navigator.clipboard.writeText(text);
        return true;
    } catch {
        const area = h('textarea', { class: 'unseen', readonly: true });
        area.value = text;
        (document.querySelector('dialog[open]') ?? document.body).append(area);
        const focused = document.activeElement;
        area.select();
        const copied = document.execCommand('copy');
        area.remove();
        focused?.focus();
        return copied;
    }
}

// A button that copies what `text()` returns, and shows for a moment that it did.
export function copyButton(label, text) {
    const button = iconButton('copy', label, async () => {
        const copied = await copyText(text());
        announce(copied ? 'Copied' : 'The browser did not allow copying');
        if (!copied) return;
        button.replaceChildren(icon('check'));
        setTimeout(() => button.replaceChildren(icon('copy')), 1500);
    });
    return button;
}

export function download(name, text) {
    const url = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
    h('a', { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
}
