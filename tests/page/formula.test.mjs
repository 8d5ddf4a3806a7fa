// Formulas of TeX: the MathML that they become, those that stay their source, and how they are drawn.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { closeBrowser, lastAnswer, openBrowser, phone, picture, say, withPage } from './browser.mjs';

before(openBrowser);
after(closeBrowser);

const tex = String.raw;

// A formula and the markup of its tree, without what is around every formula.
const known = [
    [tex`x+1`, '<mi>x</mi><mo>+</mo><mn>1</mn>'],
    [tex`-x=-1`, '<mo form="prefix">−</mo><mi>x</mi><mo>=</mo><mo form="prefix">−</mo><mn>1</mn>'],
    [tex`3.14x^2_i`, '<mn>3.14</mn><msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup>'],
    [tex`x^23`, '<msup><mi>x</mi><mn>2</mn></msup><mn>3</mn>'],
    [tex`f''(x)^2`, '<msup><mi>f</mi><mo>′′</mo></msup><mo form="prefix" stretchy="false">(</mo><mi>x</mi><msup><mo form="postfix" stretchy="false">)</mo><mn>2</mn></msup>'],
    [tex`{}_nC_k`, '<msub><mrow></mrow><mi>n</mi></msub><msub><mi>C</mi><mi>k</mi></msub>'],
    [tex`1{,}000`, '<mn>1</mn><mo lspace="0" rspace="0">,</mo><mn>000</mn>'],
    [tex`\alpha\varepsilon\Gamma\infty`, '<mi>α</mi><mi>ε</mi><mi mathvariant="normal">Γ</mi><mi>∞</mi>'],
    [tex`a\le b\to\pm c`, '<mi>a</mi><mo>≤</mo><mi>b</mi><mo>→</mo><mo form="prefix">±</mo><mi>c</mi>'],
    [tex`\frac{a}{b}`, '<mfrac><mi>a</mi><mi>b</mi></mfrac>'],
    [tex`\frac12`, '<mfrac><mn>1</mn><mn>2</mn></mfrac>'],
    [tex`\dfrac ab`, '<mfrac displaystyle="true"><mi>a</mi><mi>b</mi></mfrac>'],
    [tex`\binom{n}{k}`, '<mrow><mo form="prefix" stretchy="true">(</mo><mfrac linethickness="0"><mi>n</mi><mi>k</mi></mfrac><mo form="postfix" stretchy="true">)</mo></mrow>'],
    [tex`\sqrt2`, '<msqrt><mn>2</mn></msqrt>'],
    [tex`\sqrt[n]{x}`, '<mroot><mi>x</mi><mi>n</mi></mroot>'],
    [tex`\text{if $x$ is}~y`, '<mrow><mtext>if </mtext><mi>x</mi><mtext> is</mtext></mrow><mspace width="0.25em"></mspace><mi>y</mi>'],
    [tex`\textbf{a\_b}`, '<mtext class="bold">a_b</mtext>'],
    [tex`\mathrm{d}x`, '<mi mathvariant="normal">d</mi><mi>x</mi>'],
    [tex`\mathbf{v1}\mathbb{RQ}\mathcal{LF}`, '<mrow><mi>𝐯</mi><mn>𝟏</mn></mrow><mrow><mi>ℝ</mi><mi>ℚ</mi></mrow><mrow><mi>ℒ</mi><mi>ℱ</mi></mrow>'],
    [tex`\boldsymbol{\alpha}`, '<mi>𝜶</mi>'],
    [tex`\operatorname{rank}A`, '<mo lspace="0" rspace="0.1667em">rank</mo><mi>A</mi>'],
    [tex`2\sin x`, '<mn>2</mn><mo lspace="0.1667em" rspace="0.1667em">sin</mo><mi>x</mi>'],
    [tex`\log(x)`, '<mo lspace="0" rspace="0">log</mo><mo form="prefix" stretchy="false">(</mo><mi>x</mi><mo form="postfix" stretchy="false">)</mo>'],
    [tex`\left(\frac12\right.`, '<mrow><mo form="prefix" stretchy="true">(</mo><mfrac><mn>1</mn><mn>2</mn></mfrac></mrow>'],
    [tex`\left\{x\middle|y\right\}`, '<mrow><mo form="prefix" stretchy="true">{</mo><mi>x</mi><mo form="infix" stretchy="true" lspace="0" rspace="0">|</mo><mi>y</mi><mo form="postfix" stretchy="true">}</mo></mrow>'],
    [tex`\bigl[x\Big|`, '<mo form="prefix" stretchy="true" minsize="1.2em" maxsize="1.2em">[</mo><mi>x</mi><mo form="infix" stretchy="true" minsize="1.8em" maxsize="1.8em" lspace="0" rspace="0">|</mo>'],
    [tex`|x|-1`, '<mo stretchy="false" lspace="0" rspace="0" form="prefix">|</mo><mi>x</mi><mo stretchy="false" lspace="0" rspace="0" form="postfix">|</mo><mo>−</mo><mn>1</mn>'],
    [tex`\sum_{i=1}^nx`, '<munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover><mi>x</mi>'],
    [tex`\sum\nolimits_i`, '<msub><mo>∑</mo><mi>i</mi></msub>'],
    [tex`\int\limits_a^b`, '<munderover><mo movablelimits="false">∫</mo><mi>a</mi><mi>b</mi></munderover>'],
    [tex`\int_0^1`, '<msubsup><mo>∫</mo><mn>0</mn><mn>1</mn></msubsup>'],
    [tex`\lim_{x\to0}x`, '<munder><mo lspace="0" rspace="0.1667em" movablelimits="true">lim</mo><mrow><mi>x</mi><mo>→</mo><mn>0</mn></mrow></munder><mi>x</mi>'],
    [tex`\hat{x}\vec v`, '<mover accent="true"><mi>x</mi><mo stretchy="false">^</mo></mover><mover accent="true"><mi>v</mi><mo stretchy="false">→</mo></mover>'],
    [tex`\overline{AB}\boxed{x}`, '<mrow class="line-above"><mrow><mi>A</mi><mi>B</mi></mrow></mrow><mrow class="boxed" displaystyle="true"><mi>x</mi></mrow>'],
    [tex`\underbrace{a}_{b}`, '<munder><munder><mi>a</mi><mo stretchy="true">⏟</mo></munder><mi>b</mi></munder>'],
    [tex`\overset{!}{=}`, '<mover><mo movablelimits="false">=</mo><mo form="postfix">!</mo></mover>'],
    [tex`\not\in\not=`, '<mo>∉</mo><mo>≠</mo>'],
    [tex`a\bmod b\quad\pmod n`, '<mi>a</mi><mo lspace="0.2222em" rspace="0.2222em">mod</mo><mi>b</mi><mspace width="1em"></mspace><mrow><mspace width="1em"></mspace><mtext>(</mtext><mtext>mod</mtext><mspace width="0.3333em"></mspace><mi>n</mi><mtext>)</mtext></mrow>'],
    [tex`\begin{pmatrix}a&b\\c&d\end{pmatrix}`, '<mrow><mo form="prefix" stretchy="true">(</mo><mtable><mtr><mtd><mi>a</mi></mtd><mtd><mi>b</mi></mtd></mtr><mtr><mtd><mi>c</mi></mtd><mtd><mi>d</mi></mtd></mtr></mtable><mo form="postfix" stretchy="true">)</mo></mrow>'],
    [tex`\begin{cases}x&y\\[2pt]-1&\end{cases}`, '<mrow><mo form="prefix" stretchy="true">{</mo><mtable class="cases"><mtr><mtd><mi>x</mi></mtd><mtd><mi>y</mi></mtd></mtr><mtr><mtd><mo form="prefix">−</mo><mn>1</mn></mtd><mtd></mtd></mtr></mtable></mrow>'],
    [tex`\begin{aligned}a&=b\\&-c\end{aligned}`, '<mtable class="aligned" displaystyle="true"><mtr><mtd><mi>a</mi></mtd><mtd><mrow></mrow><mo>=</mo><mi>b</mi></mtd></mtr><mtr><mtd></mtd><mtd><mrow></mrow><mo>−</mo><mi>c</mi></mtd></mtr></mtable>'],
    [tex`\begin{array}{r|l}1&2\\\hline3&4\\\hline\end{array}`, '<mtable><mtr><mtd class="right line-after"><mn>1</mn></mtd><mtd class="left"><mn>2</mn></mtd></mtr><mtr class="line-above line-below"><mtd class="right line-after"><mn>3</mn></mtd><mtd class="left"><mn>4</mn></mtd></mtr></mtable>'],
    [tex`\sum_{\substack{a\\b}}`, '<munder><mo>∑</mo><mtable class="stack"><mtr><mtd><mi>a</mi></mtd></mtr><mtr><mtd><mi>b</mi></mtd></mtr></mtable></munder>'],
    [tex`a\\b`, '<mtable displaystyle="true"><mtr><mtd><mi>a</mi></mtd></mtr><mtr><mtd><mi>b</mi></mtd></mtr></mtable>'],
    [tex`\displaystyle x\color{red}y\!z\nonumber`, '<mstyle displaystyle="true"><mi>x</mi><mi>y</mi><mi>z</mi></mstyle>'],
    [tex`x\tag{1}`, '<mi>x</mi><mrow><mspace width="2em"></mspace><mtext>(</mtext><mtext>1</mtext><mtext>)</mtext></mrow>'],
    [tex`α≤∑é中`, '<mi>α</mi><mo>≤</mo><mo>∑</mo><mi>é</mi><mi>中</mi>'],
];

const notKnown = [tex`\foo`, tex`a\foo{b}`, '{a', 'a}', 'a^b^c', 'a_b_c', "x^2'", 'x^', tex`\frac{a}`, tex`\sqrt[3{x}`, tex`\left(a`, tex`a\right)`, tex`\left(a\right`, tex`\leftx\right)`,
    tex`\left{a\right}`, tex`\middle|`, tex`\begin{foo}a\end{foo}`, tex`\begin{matrix}a`, tex`\begin{matrix}a\end{pmatrix}`, 'a&b', tex`\begin{array}{p}a\end{array}`,
    tex`\begin{array}{c}a&b\end{array}`, tex`a\\[b]c`, tex`{a\\b}`, tex`\text{a`, tex`\text{a\foo}`, tex`\text{$a}`, tex`\text x`, tex`x\limits_a`, tex`\not a`, '50%', '#', '"', '`', '\\',
    '\u0000', '\u202e', '\ud800', 'a\u0301', tex`\constructor`, tex`\begin{constructor}a\end{constructor}`, '', ' ', tex`\begin{aligned}[0]a\end{aligned}`, tex`\verb|a|`];

const repeat = (text, count) => text.repeat(count);
const hostile = [repeat('{', 5000), repeat('{', 2500) + repeat('}', 2500), repeat('\\frac', 1000), repeat('\\sqrt{', 800), repeat('x^{', 1600), repeat('\\left(', 800), repeat('\\left(', 700) + repeat('\\right)', 100),
    repeat('\\text{', 800), repeat('\\text{$', 700), repeat('\\begin{matrix}', 350), repeat('\\displaystyle', 380), repeat('\\hat', 1200), repeat('\\mathbf', 700), repeat('\\not', 1250),
    repeat('\\sqrt[', 800), repeat(' ', 4999) + '}', repeat('\\', 4999), repeat('\\color{', 700), `\\text{${repeat('{', 4900)}`, `\\begin{${repeat('a', 4900)}`, repeat('a', 5001)];
const long = [repeat('a', 5000), repeat("'", 5000), repeat('\\\\', 2500), repeat('x_1^2', 1000), repeat('\\frac12', 700), repeat('|', 5000), repeat('- ', 2500), `\\begin{matrix}${repeat('&', 2400)}${repeat('\\\\', 1200)}\\end{matrix}`,
    repeat('\\sin', 1250), repeat('\\,', 2500), `\\text{${repeat('{}', 2490)}}`, repeat('\\left(\\right)', 384), '1' + repeat('.1', 2000)];

// The trees' markup, or null, and the milliseconds that they took.
function markups(page, formulas) {
    return page.evaluate(async (all) => {
        const { parseFormula } = await import('/formula.js');
        const markup = (node) => (typeof node === 'string' ? node
            : `<${[node.tag, ...Object.entries(node.attributes).map(([name, value]) => `${name}="${value}"`)].join(' ')}>${node.children.map(markup).join('')}</${node.tag}>`);
        const begun = performance.now();
        const trees = all.map((formula) => parseFormula(formula, false));
        const ms = performance.now() - begun;
        return { ms, made: trees.map((tree) => tree && tree.children[0].children[0].children.map(markup).join('')), whole: trees[0] && markup(trees[0]) };
    }, formulas);
}

test('formulas become MathML', () => withPage(async (page) => {
    const { made, whole } = await markups(page, known.map(([formula]) => formula));
    known.forEach(([formula, expected], i) => assert.equal(made[i], expected, formula));
    assert.equal(whole, '<math alttext="x+1"><semantics><mrow><mi>x</mi><mo>+</mo><mn>1</mn></mrow><annotation encoding="application/x-tex">x+1</annotation></semantics></math>');
}));

test('a formula with anything unknown in it has no tree', () => withPage(async (page) => {
    const { made } = await markups(page, notKnown);
    notKnown.forEach((formula, i) => assert.equal(made[i], null, JSON.stringify(formula)));
}));

test('hostile formulas take little time', () => withPage(async (page) => {
    const { made, ms } = await markups(page, [...hostile, ...long]);
    hostile.forEach((formula, i) => assert.equal(made[i], null, formula.slice(0, 30)));
    long.forEach((formula, i) => assert.notEqual(made[hostile.length + i], null, formula.slice(0, 30)));
    assert.ok(ms < 2000, `${ms} ms`);
}));

test('what is between the marks of formulas is drawn, and nothing else', () => withPage(async (page) => {
    const texts = [tex`a \(x\) b`, tex`\[x\]`, '$$x$$', tex`$\pi$, $ \pi $`, 'a $x$ b', tex`$20\,000 and $30`, tex`$5\,$6`, '`\\(x\\)` and `$$x$$`', tex`**\(x\)**`, tex`\(x`, '$$x', '$$\\foo\n*x*$$', '\\[x\\] \nb', '\\(x\\)\nb'];
    const parsed = await page.evaluate(async (all) => {
        const { parseInline } = await import('/inline.js');
        const brief = (node) => (node.type === 'text' ? node.text : node.type === 'formula' ? [node.display ? 'display' : 'inline', node.text] : node.children ? [node.type, ...node.children.map(brief)] : [node.type, node.text ?? '']);
        return all.map((text) => parseInline(text).map(brief));
    }, texts);
    assert.deepEqual(parsed, [['a ', ['inline', tex`\(x\)`], ' b'], [['display', tex`\[x\]`]], [['display', '$$x$$']], [['inline', tex`$\pi$`], ', ', ['inline', tex`$ \pi $`]], ['a $x$ b'],
        [tex`$20\,000 and $30`], [tex`$5\,$6`], [['code', tex`\(x\)`], ' and ', ['code', '$$x$$']], [['strong', ['inline', tex`\(x\)`]]], [tex`\(x`], ['$$x'],
        ['$$\\foo', ['break', ''], '*x*$$'], [['display', tex`\[x\]`], 'b'], [['inline', tex`\(x\)`], ['break', ''], 'b']]);
}));

for (const [size, viewport] of Object.entries({ wide: undefined, phone })) {
    test(`${size}: formulas of an answer are drawn`, () => withPage(async (page) => {
        await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
        await say(page, 'formulas please');
        const body = lastAnswer(page).locator('.body');
        await picture(page, `${size}-formulas`);
        const seen = await body.evaluate((element) => {
            const box = (selector) => element.querySelector(selector).getBoundingClientRect();
            const [centred, wide] = element.querySelectorAll('.formula.display');
            const middle = (rect) => rect.left + rect.width / 2;
            return {
                fraction: box('mfrac').height, numerator: box('mfrac > *').height, source: element.querySelector('math').getAttribute('alttext'),
                annotation: box('annotation').height, ink: getComputedStyle(element.querySelector('mfrac')).color === getComputedStyle(element).color,
                off: Math.abs(middle(centred.getBoundingClientRect()) - middle(centred.querySelector('semantics > mrow').getBoundingClientRect())),
                scrolls: wide.scrollWidth > wide.clientWidth, begins: wide.querySelector('mi').getBoundingClientRect().left - wide.getBoundingClientRect().left,
                hebrew: getComputedStyle(element.querySelector('p:last-of-type')).direction, direction: getComputedStyle(element.querySelector('p:last-of-type math')).direction,
                fits: document.scrollingElement.scrollWidth <= innerWidth,
            };
        });
        assert.ok(seen.fraction > seen.numerator * 1.5, `${seen.fraction} ${seen.numerator}`);
        assert.equal(seen.source, tex`\frac{a}{b}`);
        assert.equal(seen.annotation, 0);
        assert.ok(seen.ink);
        assert.ok(seen.off < 1, `${seen.off} px from the middle`);
        assert.ok(seen.scrolls);
        assert.ok(seen.begins >= 0 && seen.begins < 20, `begins at ${seen.begins}`);
        assert.equal(seen.hebrew, 'rtl');
        assert.equal(seen.direction, 'ltr');
        assert.ok(seen.fits);
        await lastAnswer(page).getByRole('button', { name: 'Copy', exact: true }).click();
        assert.ok((await page.evaluate(() => navigator.clipboard.readText())).startsWith(tex`Half: \(\frac{a}{b}\)`));
    }, viewport && { viewport }));
}
