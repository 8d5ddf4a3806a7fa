// Markdown's blocks as a tree: {type: 'paragraph' | 'heading' | 'code' | 'quote' | 'list' | 'table' | 'rule', source, …}. `source` is the
// text of the block: one that has not changed need not be drawn again while an answer streams.

const deepest = 12; // beyond, quotes and lists are text

const fencePattern = /^( {0,3})(`{3,}|~{3,})\s*([^`]*)$/;
const indentedPattern = /^ {4}/; // code, where no paragraph or list goes on
const headingPattern = /^ {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$/;
const rulePattern = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const quotePattern = /^ {0,3}> ?/;
const itemPattern = /^( {0,3})([-*+]|\d{1,9}[.)])( +|$)(.*)$/;
const rowPattern = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

export function parseBlocks(text) {
    return parseLines(text.replace(/\r\n?/g, '\n').replace(/\t/g, '    ').split('\n'), 0);
}

function parseLines(lines, depth) {
    const blocks = [];
    let at = 0;
    while (at < lines.length) {
        if (!lines[at].trim()) {
            at++;
            continue;
        }
        const [block, end] = parseBlock(lines, at, depth);
        block.source = lines.slice(at, end).join('\n');
        blocks.push(block);
        at = end;
    }
    return blocks;
}

// Returns the block that begins at a line, and the line after it.
function parseBlock(lines, at, depth) {
    if (indentedPattern.test(lines[at])) return parseIndented(lines, at);
    const fence = fencePattern.exec(lines[at]);
    if (fence) return parseFence(lines, at, fence);
    const heading = headingPattern.exec(lines[at]);
    if (heading) return [{ type: 'heading', level: heading[1].length, text: heading[2] ?? '' }, at + 1];
    if (rulePattern.test(lines[at])) return [{ type: 'rule' }, at + 1];
    if (depth < deepest && quotePattern.test(lines[at])) return parseQuote(lines, at, depth);
    if (depth < deepest && itemPattern.test(lines[at])) return parseList(lines, at, depth);
    if (lines[at].includes('|') && rowPattern.test(lines[at + 1] ?? '')) {
        const table = parseTable(lines, at);
        if (table) return table;
    }
    return parseParagraph(lines, at);
}

function parseFence(lines, at, [, indent, mark, info]) {
    const closing = new RegExp(`^ {0,3}${mark[0]}{${mark.length},}\\s*$`);
    const content = [];
    let end = at + 1;
    while (end < lines.length && !closing.test(lines[end])) content.push(lines[end++].replace(new RegExp(`^ {0,${indent.length}}`), ''));
    const closed = end < lines.length;
    return [{ type: 'code', language: info.trim().split(/\s+/)[0], text: content.join('\n'), closed }, closed ? end + 1 : end];
}

function parseIndented(lines, at) {
    let end = at;
    while (end < lines.length && (indentedPattern.test(lines[end]) || !lines[end].trim())) end++;
    while (!lines[end - 1].trim()) end--;
    return [{ type: 'code', language: '', text: lines.slice(at, end).map((line) => line.slice(4)).join('\n'), closed: true }, end];
}

function parseQuote(lines, at, depth) {
    const inner = [];
    let end = at;
    // A line without the mark goes on with a paragraph.
    while (end < lines.length && (quotePattern.test(lines[end]) || (lines[end].trim() && inner.at(-1)?.trim() && !startsBlock(lines, end)))) {
        inner.push(lines[end++].replace(quotePattern, ''));
    }
    return [{ type: 'quote', children: parseLines(inner, depth + 1) }, end];
}

const bulletOf = (mark) => (/\d/.test(mark) ? mark.at(-1) : mark);

function parseList(lines, at, depth) {
    const [, , firstMark] = itemPattern.exec(lines[at]);
    const list = { type: 'list', ordered: /\d/.test(firstMark), start: parseInt(firstMark, 10), loose: false, items: [] };
    let end = at;
    while (end < lines.length) {
        const item = itemPattern.exec(lines[end]);
        if (!item || bulletOf(item[2]) !== bulletOf(firstMark) || rulePattern.test(lines[end])) break;
        const inner = [item[4]];
        const width = item[1].length + item[2].length + Math.min(Math.max(item[3].length, 1), 4);
        end = takeItem(lines, end + 1, width, inner);
        let blank = 0;
        while (inner.length && !inner.at(-1).trim()) {
            inner.pop();
            blank++;
        }
        const next = blank && itemPattern.exec(lines[end] ?? '');
        const made = parseItem(inner, depth);
        const paragraphs = made.children.some((child, i) => i > 0 && child.type === 'paragraph' && made.children[i - 1].type === 'paragraph');
        if (paragraphs || (next && bulletOf(next[2]) === bulletOf(firstMark))) list.loose = true;
        list.items.push(made);
    }
    return [list, end];
}

// Adds the lines that belong to an item whose content begins at column `width`; returns the line after them.
function takeItem(lines, end, width, inner) {
    // Models often indent by two or three columns below "10." or "- ".
    const least = Math.min(width, 2);
    const indented = new RegExp(`^ {${least},${width}}`);
    for (; end < lines.length; end++) {
        const line = lines[end];
        if (!line.trim()) {
            const next = lines.slice(end + 1, end + 3).find((one) => one.trim());
            if (!next || !(indented.test(next) || itemPattern.test(next))) break;
            inner.push('');
        } else if (indented.test(line)) inner.push(line.replace(indented, ''));
        else if (inner.at(-1).trim() && !startsBlock(lines, end) && !itemPattern.test(line)) inner.push(line);
        else break;
    }
    return end;
}

function parseItem(inner, depth) {
    const task = /^\[([ xX])\]\s+/.exec(inner[0] ?? '');
    if (task) inner[0] = inner[0].slice(task[0].length);
    return { checked: task ? task[1] !== ' ' : null, children: parseLines(inner, depth + 1) };
}

function cellsOf(line) {
    const cells = [''];
    const text = line.trim().replace(/^\|/, '').replace(/([^\\]|^)\|$/, '$1');
    let code = false;
    for (let at = 0; at < text.length; at++) {
        if (text[at] === '\\' && text[at + 1] === '|') cells[cells.length - 1] += text[++at];
        else if (text[at] === '|' && !code) cells.push('');
        else {
            if (text[at] === '`') code = !code && text.indexOf('`', at + 1) > 0;
            cells[cells.length - 1] += text[at];
        }
    }
    return cells.map((cell) => cell.trim());
}

function parseTable(lines, at) {
    const head = cellsOf(lines[at]);
    const align = cellsOf(lines[at + 1]).map((cell) => (cell.endsWith(':') ? (cell.startsWith(':') ? 'center' : 'right') : 'left'));
    if (head.length !== align.length) return null;
    const rows = [];
    let end = at + 2;
    while (end < lines.length && lines[end].trim() && lines[end].includes('|')) {
        rows.push(cellsOf(lines[end++]).slice(0, head.length));
    }
    return [{ type: 'table', head, align, rows }, end];
}

// Whether a line ends the paragraph before it.
function startsBlock(lines, at) {
    const line = lines[at];
    const item = itemPattern.exec(line);
    return fencePattern.test(line) || headingPattern.test(line) || rulePattern.test(line) || quotePattern.test(line)
        || (item && item[4] !== '' && (!/\d/.test(item[2]) || parseInt(item[2], 10) === 1))
        || (line.includes('|') && rowPattern.test(lines[at + 1] ?? '') && cellsOf(line).length === cellsOf(lines[at + 1]).length);
}

function parseParagraph(lines, at) {
    let end = at + 1;
    while (end < lines.length && lines[end].trim() && !startsBlock(lines, end)) end++;
    return [{ type: 'paragraph', text: lines.slice(at, end).map((line) => line.trimStart()).join('\n') }, end];
}
