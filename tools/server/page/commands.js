// TeX's commands in formulas, and its environments: each makes a node of what a Parser (formula.js) reads behind the name.
import { fence, named, node, row, space, unknown } from './mathml.js';
import { symbols } from './tex.js';

const names = (text) => text.split(' ').map((name) => `\\${name}`);

// Whether the names of functions have limits below them.
export const functions = new Map([
    ...names('arccos arcsin arctan arg cos cosh cot coth csc deg dim exp hom ker lg ln log sec sin sinh tan tanh').map((name) => [name, false]),
    ...names('argmax argmin det gcd inf lim liminf limsup max min Pr sup').map((name) => [name, true]),
]);
export const functionName = (name) => name.slice(1).replace(/^lim(?=.)/, 'lim\u2009');

// The character of a lexeme within \text.
export function textOf(token) {
    if (token === undefined || /^[%#&]$/.test(token)) throw unknown;
    if (/^\s|^~$|^\\\s$/.test(token)) return '\u00a0';
    if (token === '\\,') return '\u2009';
    if (/^\\[#$%&_{}]$/.test(token)) return token[1];
    if (token.startsWith('\\')) throw unknown;
    return token;
}

export const isLength = (text) => /^-?(?:\d+\.?\d*|\.\d+)(?:em|ex|pt|px|mm|cm|in)$/.test(text);

const fraction = (attributes) => (parser) => node('mfrac', attributes, parser.argument(), parser.argument());
const binomial = (attributes) => (parser) => node('mrow', {}, ...fence('(', 'prefix'), fraction({ linethickness: '0', ...attributes })(parser), ...fence(')', 'postfix'));
const displayed = { displaystyle: 'true' }, inText = { displaystyle: 'false' };

function root(parser) {
    if (!parser.has('[')) return node('msqrt', {}, parser.argument());
    const index = row(parser.list(']'));
    parser.take(']');
    return node('mroot', {}, parser.argument(), index);
}

// The base of \overset keeps what is above it there, also within a line.
function stacked(tag) {
    return (parser) => {
        const script = parser.argument(), base = parser.argument();
        if (base.tag === 'mo') base.attributes.movablelimits = 'false';
        return node(tag, {}, base, script);
    };
}

const overArrow = (arrow) => (parser) => {
    const below = parser.has('[') ? row(parser.list(']')) : null;
    if (below) parser.take(']');
    const above = parser.argument(), base = node('mo', { stretchy: 'true' }, arrow);
    return below ? node('munderover', {}, base, below, above) : node('mover', {}, base, above);
};

function negated(parser) {
    const symbol = symbols.get(parser.next());
    if (symbol?.kind !== 'operator') throw unknown;
    return node('mo', {}, `${symbol.text}\u0338`.normalize());
}

function operatorName(parser) {
    const limits = parser.has('*');
    const made = parser.text({});
    if (made.tag !== 'mtext') throw unknown;
    return named(made.children[0], limits);
}

function tag(parser) {
    const bare = parser.has('*');
    const made = parser.text({});
    return node('mrow', {}, space('2em'), ...(bare ? [made] : [node('mtext', {}, '('), made, node('mtext', {}, ')')]));
}

const fences = new Set(['bar', 'open', 'close', 'vertical', 'tight']);

// The text of a fence, or null for none.
function delimiter(parser) {
    const token = parser.next();
    if (token === '.') return null;
    const symbol = symbols.get({ '<': '⟨', '>': '⟩' }[token] ?? token);
    if (!fences.has(symbol?.kind) || token === '?') throw unknown;
    return symbol.text;
}

function fenced(parser) {
    const open = fence(delimiter(parser), 'prefix');
    parser.fences++;
    const nodes = parser.list();
    parser.fences--;
    parser.take('\\right');
    return node('mrow', {}, ...open, ...nodes, ...fence(delimiter(parser), 'postfix'));
}

function middle(parser) {
    if (!parser.fences) throw unknown;
    return row(fence(delimiter(parser), 'infix').map((made) => Object.assign(made, { attributes: { ...made.attributes, lspace: '0', rspace: '0' } })));
}

// A delimiter of \big and the like; without a form it takes that of its character.
function sized(parser, form, size) {
    const symbol = symbols.get(parser.peek());
    const made = fence(delimiter(parser), form ?? { open: 'prefix', close: 'postfix' }[symbol?.kind] ?? 'infix');
    for (const { attributes } of made) Object.assign(attributes, size, attributes.form === 'infix' ? { lspace: '0', rspace: '0' } : {});
    return row(made);
}

export const isColumn = (rows) => rows.every(({ children }) => children.length === 1);

function stack(parser) {
    parser.take('{');
    const rows = parser.rows();
    parser.take('}');
    if (!isColumn(rows)) throw unknown;
    return node('mtable', { class: 'stack' }, ...rows);
}

const environments = new Map([['array', { columns: true, position: true }], ['smallmatrix', { scriptlevel: '1' }]]);
for (const [name, open, close] of [['matrix', null, null], ['pmatrix', '(', ')'], ['bmatrix', '[', ']'], ['Bmatrix', '{', '}'], ['vmatrix', '|', '|'], ['Vmatrix', '‖', '‖']]) {
    environments.set(name, { open, close });
}
environments.set('cases', { open: '{', class: 'cases' });
environments.set('dcases', { open: '{', class: 'cases', displaystyle: 'true' });
environments.set('rcases', { close: '}', class: 'cases' });
for (const name of ['aligned', 'split', 'align', 'align*']) environments.set(name, { position: name === 'aligned', class: 'aligned', displaystyle: 'true' });
for (const name of ['gathered', 'gather', 'gather*', 'equation', 'equation*']) environments.set(name, { position: name === 'gathered', displaystyle: 'true' });

// The classes of an array's columns: "c|rl".
function columnsOf(text) {
    const columns = [];
    let before = '';
    for (const mark of text.replace(/\s+/g, '')) {
        if (mark === '|' && columns.length) columns.push(`${columns.pop()} line-after`);
        else if (mark === '|') before = 'line-before';
        else if ('lcr'.includes(mark)) columns.push([{ l: 'left', r: 'right', c: '' }[mark], columns.length ? '' : before].join(' '));
        else throw unknown;
    }
    return columns.map((column) => column.trim().replace(/ +/g, ' '));
}

function alignCells(rows, columns) {
    for (const { children } of rows) {
        if (children.length > columns.length) throw unknown;
        children.forEach(({ attributes }, i) => columns[i] && Object.assign(attributes, { class: columns[i] }));
    }
}

function environment(parser) {
    const name = parser.rawArgument();
    if (!environments.has(name)) throw unknown;
    const { open = null, close = null, position, columns, ...attributes } = environments.get(name);
    if (position && parser.has('[') && !/^[tcb]$/.test(parser.raw(']'))) throw unknown;
    const aligned = columns && columnsOf(parser.rawArgument());
    const rows = parser.rows({ lines: columns, lead: attributes.class === 'aligned' });
    parser.take('\\end');
    if (parser.rawArgument() !== name) throw unknown;
    if (aligned) alignCells(rows, aligned);
    return row([...fence(open, 'prefix'), node('mtable', attributes, ...rows), ...fence(close, 'postfix')]);
}

const modulo = () => node('mo', { lspace: '0.2222em', rspace: '0.2222em' }, 'mod');
const word = (text) => node('mtext', {}, text);

export const commands = new Map(Object.entries({
    frac: fraction({}), dfrac: fraction(displayed), cfrac: fraction(displayed), tfrac: fraction(inText),
    binom: binomial({}), dbinom: binomial(displayed), tbinom: binomial(inText),
    sqrt: root, left: fenced, middle, begin: environment,
    overset: stacked('mover'), stackrel: stacked('mover'), underset: stacked('munder'),
    xrightarrow: overArrow('→'), xleftarrow: overArrow('←'), not: negated, operatorname: operatorName, tag,
    overline: (parser) => node('mrow', { class: 'line-above' }, parser.argument()),
    underline: (parser) => node('mrow', { class: 'line-below' }, parser.argument()),
    boxed: (parser) => node('mrow', { class: 'boxed', displaystyle: 'true' }, parser.argument()),
    phantom: (parser) => node('mphantom', {}, parser.argument()),
    overbrace: (parser) => Object.assign(node('mover', {}, parser.argument(), node('mo', { stretchy: 'true' }, '⏞')), { limits: true }),
    underbrace: (parser) => Object.assign(node('munder', {}, parser.argument(), node('mo', { stretchy: 'true' }, '⏟')), { limits: true }),
    substack: stack,
    bmod: modulo, mod: (parser) => node('mrow', {}, space('1em'), word('mod'), space('0.3333em'), parser.argument()),
    pmod: (parser) => node('mrow', {}, space('1em'), word('('), word('mod'), space('0.3333em'), parser.argument(), word(')')),
}).map(([name, make]) => [`\\${name}`, make]));

const byName = {
    font: { mathrm: 'rm', mathit: 'it', mathbf: 'bf', boldsymbol: 'bm', bm: 'bm', mathbb: 'bb', mathcal: 'cal', mathscr: 'cal', mathfrak: 'frak', mathsf: 'sf', mathtt: 'tt' },
    text: { text: null, textrm: null, textnormal: null, mbox: null, textbf: 'bold', textit: 'italic', emph: 'italic', texttt: 'code' },
    space: { ',': '0.1667em', thinspace: '0.1667em', ':': '0.2222em', '>': '0.2222em', ';': '0.2778em', ' ': '0.25em', '\n': '0.25em', enspace: '0.5em',
        quad: '1em', qquad: '2em' },
    size: { big: '1.2em', Big: '1.8em', bigg: '2.4em', Bigg: '3em' },
};
for (const [name, font] of Object.entries(byName.font)) commands.set(`\\${name}`, (parser) => parser.inFont(font));
for (const [name, style] of Object.entries(byName.text)) commands.set(`\\${name}`, (parser) => parser.text(style ? { class: style } : {}));
for (const [name, width] of Object.entries(byName.space)) commands.set(`\\${name}`, () => space(width));
commands.set('~', () => space('0.25em'));
const accents = { hat: '^', bar: '¯', vec: '→', tilde: '~', dot: '˙', ddot: '¨', dddot: '⃛', check: 'ˇ', breve: '˘', acute: '´', grave: '`', mathring: '˚' };
const wide = { widehat: '^', widetilde: '~', overrightarrow: '→', overleftarrow: '←', overleftrightarrow: '↔' };
for (const [name, mark] of Object.entries({ ...accents, ...wide })) {
    commands.set(`\\${name}`, (parser) => node('mover', { accent: 'true' }, parser.argument(), node('mo', { stretchy: String(name in wide) }, mark)));
}
for (const [name, size] of Object.entries(byName.size)) {
    for (const [end, form] of [['', null], ['l', 'prefix'], ['r', 'postfix'], ['m', 'infix']]) {
        commands.set(`\\${name}${end}`, (parser) => sized(parser, form, { minsize: size, maxsize: size }));
    }
}
