// What is seen: Markdown, hostile text, small and large windows, light and dark, and the keyboard alone.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { closeBrowser, idle, lastAnswer, openBrowser, phone, picture, prompt, say, serverAddress, textOf, wide, withPage } from './browser.mjs';
import { hostile } from './double.mjs';

before(openBrowser);
after(closeBrowser);

test('the server sends the page with its policy', async () => {
    const reply = await fetch(serverAddress);
    assert.match(reply.headers.get('content-type'), /^text\/html/);
    const policy = reply.headers.get('content-security-policy');
    for (const directive of ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"]) assert.ok(policy.includes(directive), directive);
    assert.equal(reply.headers.get('cache-control'), 'no-cache');
});

test('hostile text stays text', () => withPage(async (page) => {
    await say(page, 'hostile <img src=x onerror="window.broken=0">');
    const answer = lastAnswer(page);
    const content = answer.locator('.body > .markdown');
    assert.equal(await content.locator('script, img, iframe, svg[onload], i, b').count(), 0);
    const links = await content.locator('a').evaluateAll((all) => all.map((link) => [link.getAttribute('href'), link.rel, link.target]));
    assert.deepEqual(links, ['https://elsewhere.example/p.png', 'https://elsewhere.example', 'https://right.example/a_(b)']
        .map((href) => [href, 'noopener noreferrer', '_blank']));
    const text = await content.innerText();
    for (const part of ['<script>window.broken = 1</script>', 'onerror="window.broken = 2"', 'javascript:window.broken=3', '<iframe', '<svg onload', '<script>window.broken = 9']) {
        assert.ok(text.includes(part), part);
        assert.ok(hostile.includes(part));
    }
    await page.reload();
    await page.getByText('window.broken = 9').waitFor();
}));

test('Markdown is drawn', () => withPage(async (page) => {
    await say(page, 'rich text');
    const body = lastAnswer(page).locator('.body');
    for (const [selector, text] of [['h3', 'Title'], ['p > strong', 'bold'], ['p > em', 'italic'], ['em > strong', 'both'], ['del', 'gone'], ['p > code', 'code'],
        ['ol > li > ul > li', 'inner'], ['li.task input:checked + *, li.task', 'done'], ['th.right', 'b'], ['td.right', '2'], ['blockquote p', 'quoted'],
        ['.code-keyword', 'let'], ['.code-number', '42'], ['.code-comment', '// why']]) {
        assert.equal((await body.locator(selector).first().innerText()).trim(), text, selector);
    }
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await body.getByRole('button', { name: 'Copy code' }).click();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'let answer = 42; // why');
}));

test('formulas that are not drawn keep their backslashes, and indented lines are code', () => withPage(async (page) => {
    const drawn = await page.evaluate(async (texts) => {
        const { Markdown } = await import('/markdown.js');
        return texts.map((text) => {
            const markdown = new Markdown();
            markdown.show(text);
            return [...markdown.element.querySelectorAll('p, pre')].map((node) => `${node.tagName} ${node.textContent}`);
        });
    }, ['\\(x\\,\\dx\\), \\[a\\_\\b\\], $$\\{1\\x\\}$$ and $x\\,\\y$', 'it costs $5 \\* 2 or \\(so', 'See:\n\n    if x:\n        y\n\n    z\n\nend', '- a\n\n    b']);
    assert.deepEqual(drawn, [['P \\(x\\,\\dx\\), \\[a\\_\\b\\], $$\\{1\\x\\}$$ and $x\\,\\y$'], ['P it costs $5 * 2 or \\(so'], ['P See:', 'PRE if x:\n    y\n\nz', 'P end'],
        ['P a', 'P b']]);
}));

test('each message has the direction of its own text', () => withPage(async (page) => {
    const direction = (locator) => locator.evaluate((element) => getComputedStyle(element).direction);
    await say(page, 'שלום world');
    assert.equal(await direction(page.locator('.bubble').last()), 'rtl');
    assert.equal(await direction(lastAnswer(page).locator('.markdown p').first()), 'rtl');
    await say(page, 'rich שלום');
    assert.equal(await direction(page.locator('.bubble').last()), 'ltr');
    assert.equal(await direction(lastAnswer(page).locator('.markdown p').first()), 'ltr');
    assert.equal(await direction(page.locator('.conversation.shown .name')), 'rtl');
    const drawn = await page.evaluate(async () => {
        const { Markdown } = await import('/markdown.js');
        const markdown = new Markdown();
        document.body.append(markdown.element);
        markdown.show('- עברית\n\n- שתיים\n\n      code\n\n> ציטוט\n\n- one\n\n- two');
        return [...markdown.element.querySelectorAll('ul, li, p, blockquote, .code-block')].map((node) => `${node.tagName} ${getComputedStyle(node).direction}`);
    });
    const list = (direction) => [`UL ${direction}`, `LI ${direction}`, `P ${direction}`, `LI ${direction}`, `P ${direction}`];
    assert.deepEqual(drawn, [...list('rtl'), 'DIV ltr', 'BLOCKQUOTE rtl', 'P rtl', ...list('ltr')]);
}));

test('text made to be slow or deep is drawn', () => withPage(async (page) => {
    const drawn = await page.evaluate(async () => {
        const { Markdown } = await import('/markdown.js');
        const repeat = (text, count) => text.repeat(count);
        const texts = [repeat('[', 20000), repeat('*a ', 20000) + repeat('a* ', 20000), repeat('**x*', 10000), repeat('> ', 5000) + 'x', repeat('- ', 5000) + 'x', repeat('`a``b```c', 5000),
            repeat('[a](', 10000), repeat('<a:', 10000), repeat('https://', 5000), repeat('_a*', 10000), repeat('|', 3000) + '\n' + repeat('|-', 2999) + '|\n' + repeat('|\n', 300),
            Array.from({ length: 200 }, (_, i) => ' '.repeat(2 * i) + '- x').join('\n'), repeat('```\n', 10001), '\u0000\ud800\u202e', repeat('1. \n', 5000),
            repeat('$\\', 20000), repeat('$$ ', 20000), repeat('\\(', 20000), repeat('    x\n\n', 5000)];
        return texts.map((text) => {
            const markdown = new Markdown();
            markdown.show(text);
            return markdown.element.textContent.length;
        });
    });
    assert.equal(drawn.length, 19);
    assert.equal(drawn[0], 20000);
}));

test('what is drawn bit by bit is what is drawn at once', () => withPage(async (page) => {
    const [bits, once] = await page.evaluate(async (text) => {
        const { Markdown } = await import('/markdown.js');
        const parts = new Markdown(), whole = new Markdown();
        for (let end = 1; end <= text.length; end++) parts.show(text.slice(0, end));
        whole.show(text);
        return [parts.element.outerHTML, whole.element.outerHTML];
    }, `${hostile}\n\n# Title\n\n- a\n- b\n\n  c\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n~~~py\nx = "1"\n~~~\n\nend \\(\\frac{a}{b}\\) $$x_1$$ **bold** [l](https://a.b)`);
    assert.equal(bits, once);
}));

// The contrast of two colours, by WCAG's formula.
function contrast(a, b) {
    const luminance = (colour) => {
        const [r, g, b] = colour.match(/[\d.]+/g).map(Number).map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
}

for (const [size, viewport] of Object.entries({ wide, phone })) {
    for (const colorScheme of ['light', 'dark']) {
        test(`${size}, ${colorScheme}: everything fits and can be read`, () => withPage(async (page) => {
            await picture(page, `${size}-${colorScheme}-start`);
            await say(page, 'rich text');
            await say(page, 'thinking please');
            const fits = () => page.evaluate(() => document.scrollingElement.scrollWidth <= innerWidth && document.getElementById('scroller').scrollWidth <= document.getElementById('scroller').clientWidth);
            assert.ok(await fits());
            await picture(page, `${size}-${colorScheme}-answer`);
            const colours = await page.evaluate(() => ['.markdown p', '.bubble', '.stats span', '.code-comment', '.thought summary', '#cache-button'].map((selector) => {
                const element = document.querySelector(selector);
                let behind = element;
                while (getComputedStyle(behind).backgroundColor === 'rgba(0, 0, 0, 0)') behind = behind.parentElement;
                return [selector, getComputedStyle(element).color, getComputedStyle(behind).backgroundColor];
            }));
            for (const [selector, ink, paper] of colours) assert.ok(contrast(ink, paper) >= 4.5, `${selector}: ${ink} on ${paper}`);
            const dark = contrast(colours[0][1], 'rgb(0, 0, 0)') > 7;
            assert.equal(dark, colorScheme === 'dark');

            await page.getByRole('button', { name: /^Cache/ }).click();
            await page.locator('.slots li').first().waitFor();
            await page.waitForTimeout(300);
            await picture(page, `${size}-${colorScheme}-cache`);
            const box = await page.locator('#panel').boundingBox();
            assert.ok(box.x >= 0 && box.x + box.width <= viewport.width + 0.5 && box.y + box.height <= viewport.height + 0.5);
            await page.locator('#panel').getByRole('button', { name: 'Close' }).click();
            await page.getByRole('button', { name: 'Settings' }).click();
            await picture(page, `${size}-${colorScheme}-settings`);
            await page.keyboard.press('Escape');

            await page.getByRole('button', { name: colorScheme === 'dark' ? 'Light theme' : 'Dark theme' }).click();
            await page.reload();
            await page.locator('.markdown p').first().waitFor();
            const ink = await page.locator('.markdown p').first().evaluate((element) => getComputedStyle(element).color);
            assert.equal(contrast(ink, 'rgb(0, 0, 0)') > 7, colorScheme === 'light');
        }, { viewport, colorScheme }));
    }
}

test('on a phone the conversations are a drawer', () => withPage(async (page) => {
    await say(page, 'rich text');
    const fresh = page.getByRole('button', { name: 'New conversation' });
    assert.equal(await fresh.isVisible(), false);
    await page.getByRole('button', { name: 'Conversations' }).click();
    await fresh.waitFor();
    await page.waitForTimeout(300);
    await picture(page, 'phone-drawer');
    await page.locator('.conversation .open').click();
    await fresh.waitFor({ state: 'hidden' });
    await page.getByRole('button', { name: 'Conversations' }).click();
    await fresh.click();
    await page.getByText('What is on your mind?').waitFor();
    for (const control of await page.locator('header button').all()) {
        const { width, height } = await control.boundingBox();
        assert.ok(width >= 40 && height >= 40, 'large enough for a finger');
    }
}, { viewport: phone }));

// Presses a key until the focused element has this label or text.
async function reach(page, name, key = 'Tab') {
    for (let i = 0; i < 60; i++) {
        const focused = await page.evaluate(() => {
            const element = document.activeElement;
            return { name: element.getAttribute('aria-label') ?? element.textContent.trim(), outline: element === document.body || getComputedStyle(element).outlineStyle !== 'none' || element.matches('#prompt') };
        });
        assert.ok(focused.outline, `the focus is seen on ${focused.name}`);
        if (focused.name === name) return;
        await page.keyboard.press(key);
    }
    assert.fail(`${name} is not reached by ${key}`);
}

test('the keyboard is enough', () => withPage(async (page, double) => {
    await page.keyboard.type('rich one');
    await page.keyboard.press('Shift+Enter');
    await page.keyboard.type('second line');
    await page.keyboard.press('Enter');
    await idle(page);
    await page.waitForSelector('.stats');
    assert.equal(double.seen.bodies.at(-1).messages[0].content, 'rich one\nsecond line');
    await reach(page, 'Edit', 'Shift+Tab'); // of the answer
    await page.keyboard.press('Shift+Tab');
    await reach(page, 'Edit', 'Shift+Tab'); // of the message
    await page.keyboard.press('Enter');
    await page.keyboard.type('rich changed ');
    await page.keyboard.press('Escape');
    await reach(page, 'Edit');
    await page.keyboard.press('Enter');
    await page.keyboard.press('Control+a');
    await page.keyboard.type('rich two');
    await page.keyboard.press('Enter');
    await idle(page);
    await page.getByText('2/2').waitFor();
    await reach(page, 'Previous version', 'Shift+Tab');
    await page.keyboard.press('Enter');
    await page.getByText('1/2').waitFor();
    await reach(page, 'Next version');
    await reach(page, 'Settings', 'Shift+Tab');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await reach(page, 'More of “rich one”', 'Shift+Tab');
    await page.keyboard.press('Enter');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowUp');
    await page.keyboard.press('Enter');
    await page.keyboard.type('Named');
    await page.keyboard.press('Enter');
    await page.locator('.conversation').getByText('Named', { exact: true }).waitFor();
    await page.keyboard.press('Control+Shift+O');
    await page.getByText('What is on your mind?').waitFor();
    assert.ok(await prompt(page).evaluate((element) => element === document.activeElement));
    await page.keyboard.type('rich three');
    await page.keyboard.press('Enter');
    await idle(page);
    assert.match(await textOf(lastAnswer(page)), /Title/);
    await page.waitForFunction(() => document.getElementById('announcer').textContent.includes('Title'));
}));
