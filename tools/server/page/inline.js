// Markdown within a paragraph, as a tree: {type: 'text' | 'code' | 'break' | 'formula' | 'strong' | 'em' | 'del' | 'link', text, href, children}.
// Emphasis and links are CommonMark's, by its stack of delimiters, so that hostile text takes no more than linear time. HTML is text.
import { parseFormula } from './formula.js';

const special = /[\\`*_~[\]!<\n$]|https?:\/\//g;
const deepest = 64; // open emphasis at once; further marks are text
const punctuation = /[\p{P}\p{S}]/u;

// The address of a link, or null for any but web and mail addresses.
export function safeAddress(address) {
    const url = address.trim();
    if (!/^(https?:\/\/[^\s/]|mailto:[^\s@]+@)/i.test(url) || /[\s\u0000-\u001f\u007f\\]/.test(url)) return null;
    try {
        return ['http:', 'https:', 'mailto:'].includes(new URL(url).protocol) ? url : null;
    } catch {
        return null;
    }
}

function characterBefore(text, at) {
    return at === 0 ? ' ' : String.fromCodePoint(text.codePointAt(at - (at > 1 && /[\udc00-\udfff]/.test(text[at - 1]) ? 2 : 1)));
}

// Whether a run of marks can open or close emphasis. Unlike CommonMark's, a closing * may stand between punctuation and a letter: models
// write "**Note:**text", and Chinese has no spaces.
function flanking(text, start, end) {
    const before = characterBefore(text, start);
    const after = end < text.length ? String.fromCodePoint(text.codePointAt(end)) : ' ';
    const opens = !/\s/.test(after), closes = !/\s/.test(before);
    if (text[start] !== '_') return { opens, closes };
    const wordBefore = closes && !punctuation.test(before), wordAfter = opens && !punctuation.test(after);
    return { opens: opens && !wordBefore, closes: closes && !wordAfter };
}

class Parser {
    constructor(text) {
        this.text = text;
        this.parts = []; // nodes, and delimiters {mark, length, opens, closes} that are not yet paired
        this.brackets = []; // indices of open brackets in `parts`
        this.unclosed = new Set(); // lengths of backtick runs, and ends of formulas, that do not come further on
    }

    add(text) {
        const last = this.parts.at(-1);
        if (last?.type === 'text' && !last.bracket) last.text += text;
        else if (text) this.parts.push({ type: 'text', text });
    }

    parse() {
        const { text } = this;
        let at = 0;
        while (at < text.length) {
            special.lastIndex = at;
            const found = special.exec(text);
            this.add(text.slice(at, found ? found.index : text.length));
            if (!found) break;
            at = this.take(found[0], found.index);
        }
        return this.pair(this.parts);
    }

    // Takes what begins at `at`; returns where to go on.
    take(mark, at) {
        if (mark === '\\') return this.escape(at);
        if (mark === '`') return this.code(at);
        if (mark === '$') return this.dollar(at);
        if (mark === '\n') return this.lineBreak(at);
        if (mark === '*' || mark === '_' || mark === '~') return this.delimiter(at);
        if (mark === '<') return this.autolink(at);
        if (mark.startsWith('http')) return this.address(at);
        if (mark === ']') return this.close(at);
        if (mark === '!') {
            if (this.text[at + 1] === '[') return this.open('![', at);
            this.add('!');
            return at + 1;
        }
        return this.open('[', at);
    }

    escape(at) {
        const next = this.text[at + 1] ?? '';
        if (next === '(') return this.formula(at, '\\(', '\\)');
        if (next === '[') return this.formula(at, '\\[', '\\]');
        const escaped = /[!"#$%&'*+,\-./:;<=>?@\\^_`{|}~]/.test(next);
        this.add(escaped ? next : `\\${next === '\n' ? '' : next}`);
        return at + 1 + (next && next !== '\n' ? next.length : 0);
    }

    formula(at, begin, close) {
        const end = this.unclosed.has(close) ? -1 : this.text.indexOf(close, at + begin.length);
        if (end < 0) {
            this.unclosed.add(close);
            this.add(begin);
            return at + begin.length;
        }
        this.addFormula(this.text.slice(at, end + close.length), begin.length, begin !== '\\(');
        return end + close.length;
    }

    // A formula {type, display, text, tree} between marks of this length. One that cannot be drawn stays as it is.
    addFormula(text, length, display) {
        const tree = parseFormula(text.slice(length, -length), display);
        if (tree) {
            this.parts.push({ type: 'formula', display, text, tree });
            return;
        }
        text.split('\n').forEach((line, i) => {
            if (i > 0) this.parts.push({ type: 'break' });
            this.add(line);
        });
    }

    // $$…$$, and $…$ with a backslash in it: a price has none.
    dollar(at) {
        if (this.text[at + 1] === '$') return this.formula(at, '$$', '$$');
        const stop = /[$\n]/g;
        stop.lastIndex = at + 1;
        const end = stop.exec(this.text)?.index;
        const inside = this.text[end] === '$' ? this.text.slice(at, end + 1) : '';
        if (!inside.includes('\\')) {
            this.add('$');
            return at + 1;
        }
        // "$20\,000 and $30" are prices.
        if (/^\$\s/.test(inside) === /\s\$$/.test(inside) && !/\d/.test(this.text[end + 1] ?? '')) this.addFormula(inside, 1, false);
        else this.add(inside);
        return end + 1;
    }

    code(at) {
        const { text } = this;
        let end = at;
        while (text[end] === '`') end++;
        const length = end - at;
        const mark = '`'.repeat(length);
        let from = this.unclosed.has(length) ? -1 : text.indexOf(mark, end);
        while (from >= 0 && (text[from + length] === '`' || text[from - 1] === '`')) {
            while (text[from] === '`') from++;
            from = text.indexOf(mark, from);
        }
        if (from < 0) {
            this.unclosed.add(length);
            this.add(mark);
            return end;
        }
        let inside = text.slice(end, from).replace(/\n/g, ' ');
        if (inside.startsWith(' ') && inside.endsWith(' ') && inside.trim()) inside = inside.slice(1, -1);
        this.parts.push({ type: 'code', text: inside });
        return from + length;
    }

    lineBreak(at) {
        const last = this.parts.at(-1);
        if (last?.type === 'text') last.text = last.text.replace(/ +$/, '');
        const shown = last?.text === '' ? this.parts.at(-2) : last;
        if (!shown?.display) this.parts.push({ type: 'break' }); // such a formula has a line of its own
        let next = at + 1;
        while (this.text[next] === ' ') next++;
        return next;
    }

    delimiter(at) {
        const { text } = this;
        let end = at;
        while (text[end] === text[at]) end++;
        const length = end - at;
        const { opens, closes } = flanking(text, at, end);
        if ((opens || closes) && (text[at] !== '~' || length === 2)) this.parts.push({ mark: text[at], length, whole: length, opens, closes });
        else this.add(text.slice(at, end));
        return end;
    }

    autolink(at) {
        const found = /^<([a-z][a-z0-9+.-]*:[^\s<>]*|[^\s<>@]+@[^\s<>@]+\.[^\s<>@]+)>/i.exec(this.text.slice(at, at + 2000));
        const href = found && safeAddress(found[1].includes(':') ? found[1] : `mailto:${found[1]}`);
        if (href) this.parts.push({ type: 'link', href, children: [{ type: 'text', text: found[1] }] });
        else this.add(found ? found[0] : '<');
        return at + (found ? found[0].length : 1);
    }

    address(at) {
        let [address] = /^https?:\/\/[^\s<>"'`*[\]\\]*/.exec(this.text.slice(at, at + 2000));
        address = address.replace(/[.,;:!?_~]+$/, '');
        // A bracket that closes one before the address is not part of it.
        while (address.endsWith(')') && address.split(')').length > address.split('(').length) address = address.slice(0, -1).replace(/[.,;:!?]+$/, '');
        const href = /[\p{L}\p{N}_]/u.test(characterBefore(this.text, at)) || this.brackets.length ? null : safeAddress(address);
        if (href) this.parts.push({ type: 'link', href, children: [{ type: 'text', text: address }] });
        else this.add(address);
        return at + address.length;
    }

    open(mark, at) {
        this.brackets.push(this.parts.length);
        this.parts.push({ type: 'text', text: mark, bracket: true });
        return at + mark.length;
    }

    close(at) {
        const target = /^\]\(\s*(?:<([^<>\n]*)>|([^\s()]*(?:\([^\s()]*\)[^\s()]*)*))(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/.exec(this.text.slice(at, at + 4000));
        const opened = this.brackets.pop();
        const href = target && opened !== undefined ? safeAddress(target[1] ?? target[2]) : null;
        if (!href) {
            this.add(']');
            return at + 1;
        }
        const children = this.pair(this.parts.splice(opened).slice(1));
        this.brackets = []; // no link contains another
        this.parts.push({ type: 'link', href, children: withoutLinks(children.length ? children : [{ type: 'text', text: href }]) });
        return at + target[0].length;
    }

    // Pairs the delimiters among `parts`: CommonMark's process emphasis.
    pair(parts) {
        const stack = []; // {delimiter, nodes}: what follows an unpaired delimiter
        let nodes = [];
        const none = {}; // kinds of closers for which nothing on the stack opens, and how high it was then
        for (const part of parts) {
            if (!part.mark) {
                nodes.push(part);
                continue;
            }
            while (part.closes && part.length) {
                const kind = `${part.mark}${part.opens}${part.whole % 3}`;
                let at = stack.length - 1;
                while (at >= (none[kind] ?? 0) && !matching(stack[at].delimiter, part)) at--;
                if (at < (none[kind] ?? 0)) {
                    none[kind] = stack.length;
                    break;
                }
                nodes = closeAt(stack, at, part, nodes);
                for (const key of Object.keys(none)) none[key] = Math.min(none[key], stack.length);
            }
            if (!part.length) continue;
            if (part.opens && stack.length < deepest) {
                stack.push({ delimiter: part, nodes });
                nodes = [];
            } else nodes.push({ type: 'text', text: part.mark.repeat(part.length) });
        }
        return joined(stack, 0, nodes);
    }
}

function matching(opener, closer) {
    if (opener.mark !== closer.mark) return false;
    const either = opener.closes || closer.opens;
    return !either || (opener.whole + closer.whole) % 3 !== 0 || (opener.whole % 3 === 0 && closer.whole % 3 === 0);
}

// Takes the openers from stack[from] on, which found no closer, off the stack: their marks are text between the nodes.
function joined(stack, from, last) {
    const nodes = [];
    for (const { delimiter, nodes: before } of stack.splice(from)) {
        for (const node of before) nodes.push(node);
        nodes.push({ type: 'text', text: delimiter.mark.repeat(delimiter.length) });
    }
    for (const node of last) nodes.push(node);
    return nodes;
}

// Wraps what follows the opener stack[at] into emphasis.
function closeAt(stack, at, closer, last) {
    const nodes = joined(stack, at + 1, last);
    const { delimiter, nodes: before } = stack[at];
    const used = Math.min(2, delimiter.length, closer.length);
    const type = closer.mark === '~' ? 'del' : used === 2 ? 'strong' : 'em';
    const node = { type, children: nodes };
    delimiter.length -= used;
    closer.length -= used;
    if (delimiter.length) return [node];
    stack.pop();
    before.push(node);
    return before;
}

function withoutLinks(nodes) {
    return nodes.flatMap((node) => (node.type === 'link' ? withoutLinks(node.children) : [node]));
}

export function parseInline(text) {
    return new Parser(text).parse();
}
