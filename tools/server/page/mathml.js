// Nodes of MathML, {tag, attributes, children}: children are nodes and texts. The room beside operators is TeX's.

export const unknown = {}; // is thrown where a formula cannot be drawn: an Error would gather a stack

export const node = (tag, attributes = {}, ...children) => ({ tag, attributes, children });
export const row = (nodes) => (nodes.length === 1 ? nodes[0] : node('mrow', {}, ...nodes));
export const space = (width) => node('mspace', { width });

// As high as what it encloses; nothing for null.
export const fence = (text, form) => (text === null ? [] : [node('mo', { form, stretchy: 'true' }, text)]);

export function symbolNode({ kind, text }) {
    switch (kind) {
        case 'large': return Object.assign(node('mo', {}, text), { limits: true });
        case 'integral': return Object.assign(node('mo', {}, text), { limits: false });
        case 'bar': return Object.assign(node('mo', { stretchy: 'false', lspace: '0', rspace: '0' }, text), { bar: true });
        case 'open': return node('mo', { form: 'prefix', stretchy: 'false' }, text);
        case 'close': return node('mo', { form: 'postfix', stretchy: 'false' }, text);
        case 'after': return node('mo', { form: 'postfix' }, text);
        case 'vertical': return node('mo', { stretchy: 'false' }, text);
        case 'tight': return node('mo', { lspace: '0', rspace: '0' }, text);
        default: return node('mo', {}, text);
    }
}

// The name of a function: `beside` makes room for it.
export function named(text, limits) {
    const made = node('mo', { lspace: '0', rspace: '0', ...(limits ? { movablelimits: 'true' } : {}) }, text);
    return Object.assign(made, { named: true, limits });
}

const scripts = new Set(['msub', 'msup', 'msubsup', 'munder', 'mover', 'munderover']);

// What bears the scripts of a node.
export function coreOf(made) {
    while (scripts.has(made.tag)) [made] = made.children;
    return made;
}

const signs = new Set('+−±∓');
const thin = '0.1667em';

// Gives a node, and the one before it or null, the room that depends on both.
export function beside(before, made) {
    const operand = before && (before.tag !== 'mo' || before.attributes.form === 'postfix');
    if (made.bar) made.attributes.form = operand ? 'postfix' : 'prefix';
    if (made.tag === 'mo' && signs.has(made.children[0]) && !operand && !made.attributes.form) made.attributes.form = 'prefix';
    if (made.named && (operand || before?.named)) made.attributes.lspace = thin;
    if (before?.named && made.tag !== 'mo') before.attributes.rspace = thin;
}
