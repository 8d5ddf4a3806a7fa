// Colours code by its lexemes alone: comments, strings, numbers and words that are keywords in most languages. One pass, no grammar.

const words = `abstract and as assert async await auto bool boolean break byte case catch char class const constexpr continue crate def
    default defer del delete do double dyn elif else end enum except export extends extern false final finally float fn for foreach from
    func function global go goto if impl implements import in inline instanceof int interface is lambda let long loop match mod module
    move mut namespace new nil none not null nullptr operator or override package pass private protected pub public raise range ref
    return self short signed sizeof static struct super switch template then this throw throws trait true try type typedef typename
    typeof undefined union unless unsafe unsigned until use using val var virtual void when where while with yield True False None
    echo fi done esac local export select insert update delete create table values join on group by order limit set into`;
const keywords = new Set(words.split(/\s+/));

const slashes = '\\/\\/[^\\n]*|\\/\\*[\\s\\S]*?(?:\\*\\/|$)';
const hash = '#[^\\n]*';
const families = [
    { names: 'py python rb ruby sh bash zsh shell console yaml yml toml ini conf r perl pl make makefile dockerfile cmake elixir nix', comment: hash },
    { names: 'sql lua hs haskell ada vhdl elm', comment: '--[^\\n]*' },
    { names: 'html xml svg vue markdown md', comment: '<!--[\\s\\S]*?(?:-->|$)' },
    { names: 'tex latex matlab erlang', comment: '%[^\\n]*' },
    { names: 'asm nasm lisp clojure scheme', comment: ';[^\\n]*' },
    { names: 'json', comment: '(?!)' },
    { names: 'php', comment: `${slashes}|${hash}` },
];

function patternFor(language) {
    const name = language.toLowerCase();
    const family = families.find(({ names }) => names.split(' ').includes(name));
    const strings = '"""[\\s\\S]*?(?:"""|$)|"(?:[^"\\\\\\n]|\\\\.)*"?|\'(?:[^\'\\\\\\n]|\\\\.)*\'|`(?:[^`\\\\]|\\\\[\\s\\S])*`';
    const numbers = '\\b(?:0[xX][\\da-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)\\w*';
    return new RegExp(`(?<comment>${family?.comment ?? slashes})|(?<string>${strings})|(?<number>${numbers})|(?<word>[A-Za-z_]\\w*)`, 'g');
}

const plain = new Set(['', 'text', 'txt', 'plain', 'plaintext', 'output', 'log', 'diff', 'csv']);

// The text as nodes: texts, and spans of a class.
export function highlight(text, language) {
    if (plain.has(language.toLowerCase()) || text.length > 200000) return [document.createTextNode(text)];
    const nodes = [];
    let at = 0;
    for (const found of text.matchAll(patternFor(language))) {
        const { comment, string, number, word } = found.groups;
        const kind = comment !== undefined ? 'comment' : string !== undefined ? 'string' : number !== undefined ? 'number' : null;
        const name = kind ?? (keywords.has(word) ? 'keyword' : text[found.index + word.length] === '(' ? 'call' : null);
        if (!name || !found[0]) continue;
        nodes.push(text.slice(at, found.index));
        const span = document.createElement('span');
        span.className = `code-${name}`;
        span.textContent = found[0];
        nodes.push(span);
        at = found.index + found[0].length;
    }
    nodes.push(text.slice(at));
    return nodes;
}
