// TeX's formulas as a tree of MathML (mathml.js). What is not known has no tree: a formula is drawn as TeX would, or not at all. One pass
// over the lexemes, with bounds on length and depth, so that hostile text is cheap.
import { commands, functionName, functions, isColumn, isLength, textOf } from './commands.js';
import { beside, coreOf, named, node, row, symbolNode, unknown } from './mathml.js';
import { inFont, symbols } from './tex.js';

const longest = 5000; // characters
const deepest = 40; // lists and arguments within one another
const ends = new Set(['}', '&', '\\\\', '\\end', '\\right', '$']); // of a list
const ignored = new Set(['\\!', '\\scriptstyle', '\\scriptscriptstyle', '\\nonumber', '\\notag', '\\allowbreak']);

class Parser {
    constructor(tex) {
        this.tokens = tex.match(/\\[a-zA-Z]+|\\[^]|\s+|[^]/gu);
        this.at = 0;
        this.depth = 0;
        this.font = null;
        this.fences = 0; // \left that are open
    }

    peek() {
        while (/^\s/.test(this.tokens[this.at] ?? '')) this.at++;
        return this.tokens[this.at];
    }

    next() {
        const token = this.peek();
        this.at++;
        return token;
    }

    has(token) {
        const found = this.peek() === token;
        if (found) this.at++;
        return found;
    }

    take(token) {
        if (!this.has(token)) throw unknown;
    }

    within(make) {
        if (++this.depth > deepest) throw unknown;
        const made = make();
        this.depth--;
        return made;
    }

    // The text up to a closing mark, without braces in it.
    raw(close) {
        let text = '';
        for (;;) {
            const token = this.tokens[this.at++];
            if (token === close) return text.trim();
            if (token === undefined || token === '{' || token === '}') throw unknown;
            text += token;
        }
    }

    rawArgument() {
        this.take('{');
        return this.raw('}');
    }

    // The nodes up to what ends a list, or to `close`; they follow those in `nodes`.
    list(close, nodes = []) {
        return this.within(() => {
            let before = nodes.at(-1) ?? null;
            for (;;) {
                const token = this.peek();
                if (token === undefined || token === close || ends.has(token)) return nodes;
                if (token === '\\displaystyle' || token === '\\textstyle') {
                    this.at++;
                    nodes.push(node('mstyle', { displaystyle: String(token === '\\displaystyle') }, ...this.list(close)));
                } else if (ignored.has(token)) this.at++;
                else if (/^\\(?:color|textcolor|label)$/.test(token)) {
                    this.at++;
                    this.rawArgument();
                } else {
                    const made = this.scripted();
                    nodes.push(made);
                    if (made.tag === 'mspace') continue;
                    beside(before && coreOf(before), coreOf(made));
                    before = made;
                }
            }
        });
    }

    group() {
        const nodes = this.list();
        this.take('}');
        return row(nodes);
    }

    // What a command applies to: a group, or one thing alone.
    argument() {
        return this.has('{') ? this.group() : this.within(() => this.atom(true));
    }

    scripted() {
        const base = /^[\^_']/.test(this.peek()) ? row([]) : this.atom();
        let { limits } = base, below = null, above = null, primes = '';
        for (;;) {
            if (!below && this.has('_')) below = this.argument();
            else if (!above && this.has('^')) above = this.argument();
            else if (!above && this.has("'")) primes += '′';
            else if (limits !== undefined && /^\\(?:no)?limits$/.test(this.peek())) {
                limits = this.next() === '\\limits';
                if (limits && base.tag === 'mo') base.attributes.movablelimits = 'false';
            } else break;
        }
        if (/^[\^_']/.test(this.peek() ?? '')) throw unknown; // a second one
        if (primes) above = row([node('mo', {}, primes), ...(above ? [above] : [])]);
        if (below && above) return node(limits ? 'munderover' : 'msubsup', {}, base, below, above);
        if (below) return node(limits ? 'munder' : 'msub', {}, base, below);
        return above ? node(limits ? 'mover' : 'msup', {}, base, above) : base;
    }

    // alone: of a number, one digit.
    atom(alone = false) {
        const token = this.next();
        if (token === '{') return this.braced();
        const command = commands.get(token);
        if (command) return command(this);
        if (functions.has(token)) return named(functionName(token), functions.get(token));
        const symbol = symbols.get(token);
        if (symbol) return symbol.kind === 'letter' ? this.letter(symbol.text) : symbolNode(symbol);
        if (/^\p{L}/u.test(token ?? '')) return this.letter(token);
        if (/^\p{N}/u.test(token ?? '')) return this.number(token, alone);
        throw unknown;
    }

    // Braces take the room of an operator away: 1{,}000.
    braced() {
        const made = this.group();
        delete made.limits;
        if (made.tag === 'mo' && !made.named) Object.assign(made.attributes, { lspace: '0', rspace: '0' });
        return made;
    }

    letter(text) {
        const upright = this.font === 'rm' || (/[Α-Ω∇]/.test(text) && this.font !== 'it');
        const styled = inFont(text, this.font);
        return node('mi', upright && styled === text ? { mathvariant: 'normal' } : {}, styled);
    }

    number(text, alone) {
        let digits = inFont(text, this.font);
        const isDigit = (at) => /^\d/.test(this.tokens[at] ?? '');
        while (!alone && (isDigit(this.at) || (this.tokens[this.at] === '.' && isDigit(this.at + 1)))) {
            digits += inFont(this.tokens[this.at++], this.font);
        }
        return node('mn', {}, digits);
    }

    inFont(font) {
        const outer = this.font;
        this.font = font;
        const made = this.argument();
        this.font = outer;
        return made;
    }

    // Text, with formulas between $ in it.
    text(attributes) {
        this.take('{');
        const parts = [node('mtext', attributes, '')];
        for (let open = 1; ;) {
            const token = this.tokens[this.at++];
            if (token === '$') {
                parts.push(row(this.list()), node('mtext', attributes, ''));
                this.take('$');
                continue;
            }
            if (token === '}' && --open === 0) break;
            if (token === '{') open++;
            else if (token !== '}') parts.at(-1).children[0] += textOf(token);
        }
        return row(parts.filter(({ tag, children }) => tag !== 'mtext' || children[0] !== ''));
    }

    // Rows of cells. lines: \hline may stand between them. lead: whether every second cell goes on with the one before it.
    rows({ lines = false, lead = false } = {}) {
        const rows = [];
        do {
            const attributes = {};
            while (lines && this.has('\\hline')) attributes.class = 'line-above';
            const cells = [];
            do {
                cells.push(node('mtd', {}, ...this.list(null, lead && cells.length % 2 ? [row([])] : [])));
            } while (this.has('&'));
            rows.push(node('mtr', attributes, ...cells));
        } while (this.newLine());
        const last = rows.at(-1);
        if (rows.length > 1 && last.children.length === 1 && !last.children[0].children.length) {
            rows.pop();
            if (last.attributes.class) rows.at(-1).attributes.class = `${rows.at(-1).attributes.class ?? ''} line-below`.trim();
        }
        return rows;
    }

    newLine() {
        if (!this.has('\\\\')) return false;
        if (this.tokens[this.at] === '*') this.at++;
        if (this.tokens[this.at] !== '[') return true;
        this.at++;
        if (!isLength(this.raw(']'))) throw unknown;
        return true;
    }
}

// The tree of a formula, without the marks around it, or null.
export function parseFormula(tex, display) {
    if (tex.length > longest || !tex.trim()) return null;
    try {
        const parser = new Parser(tex);
        const rows = parser.rows();
        if (parser.peek() !== undefined || !isColumn(rows)) return null;
        const drawn = rows.length > 1 ? [node('mtable', { displaystyle: 'true' }, ...rows)] : rows[0].children[0].children;
        const source = tex.trim();
        return node('math', { alttext: source, ...(display ? { display: 'block' } : {}) },
            node('semantics', {}, node('mrow', {}, ...drawn), node('annotation', { encoding: 'application/x-tex' }, source)));
    } catch (error) {
        if (error !== unknown) throw error;
        return null;
    }
}
