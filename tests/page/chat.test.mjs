// Conversations: sent, streamed, stopped, edited, asked again, kept.
import assert from 'node:assert/strict';
import { readFile, writeFile, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { answers, closeBrowser, idle, lastAnswer, openBrowser, prompt, say, serverAddress, textOf, withPage } from './browser.mjs';

before(openBrowser);
after(closeBrowser);

const button = (scope, name) => scope.getByRole('button', { name, exact: true });
const conversations = (page) => page.locator('.conversation .name');

test('the server answers, and says what it cost', () => withPage(async (page, double) => {
    const first = await say(page, 'Hello');
    assert.ok(first.trim().length > 0);
    await say(page, 'And again');
    const stats = await lastAnswer(page).locator('.stats').innerText();
    assert.match(stats, /tokens?\b/);
    assert.match(stats, / s to first/);
    assert.match(stats, /[\d,]+ of [\d,]+ cached/);
    const [, second] = double.seen.bodies;
    assert.deepEqual(second.messages.map(({ role }) => role), ['user', 'assistant', 'user']);
    assert.equal(second.messages[1].content.trim(), (await textOf(answers(page).first())).trim());
    assert.equal(second.stream, true);
    assert.equal(second.stream_options.include_usage, true);
}));

test('the page works below a path of a proxy, and asks for nothing outside of it', () => withPage(async (page, double) => {
    assert.ok((await say(page, 'Hello')).trim().length > 0);
    await button(page, /^Cache/).click();
    await page.getByRole('complementary', { name: 'Cache' }).locator('.slots li').first().waitFor();
    await page.keyboard.press('Escape');
    await page.reload();
    await page.getByText('Hello', { exact: true }).last().waitFor();
    assert.equal(double.seen.bodies.length, 1);
    assert.deepEqual(double.seen.outside.filter((path) => path !== '/favicon.ico'), []);
}, { prefix: '/tools/chat' }));

test('the panel shows the bytes of the cache against f16, slots and pages', () => withPage(async (page) => {
    const props = await (await fetch(new URL('/props', serverAddress))).json();
    assert.ok(props.kv_bytes_per_token > 0 && props.f16_bytes_per_token > 0 && props.context > 0);
    await say(page, 'Hello');
    await button(page, /^Cache/).click();
    const panel = page.getByRole('complementary', { name: 'Cache' });
    const ratio = `${(props.f16_bytes_per_token / props.kv_bytes_per_token).toFixed(1)}× smaller than f16`;
    await panel.getByText(ratio).waitFor();
    await panel.getByText(new RegExp(`^[\\d,]+ of ${props.context.toLocaleString('en-US')}$`)).waitFor();
    await panel.locator('.slots li').first().waitFor();
    assert.equal(await panel.locator('.slots li').count(), (await (await fetch(new URL('/slots', serverAddress))).json()).length);
    const pages = await panel.locator('canvas').getAttribute('aria-label');
    const metrics = await (await fetch(new URL('/metrics', serverAddress))).text();
    const expected = ['used', 'spare', 'free'].map((kind) => Number(new RegExp(`^tqrun_pages\\{state="${kind}"\\} (\\S+)`, 'm').exec(metrics)[1]));
    const sum = (numbers) => numbers.reduce((a, b) => a + b);
    assert.equal(sum(pages.match(/\d+/g).map(Number)), sum(expected));
    const drawn = await panel.locator('canvas').evaluate((canvas) => new Set(new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size);
    assert.ok(drawn > 2, 'the grid has its colours');
    await page.keyboard.press('Escape');
    await panel.waitFor({ state: 'hidden' });
}));

test('an answer is seen while it comes, and stopping ends the request', () => withPage(async (page, double) => {
    await prompt(page).fill('endless one');
    await prompt(page).press('Enter');
    await page.getByText('word5 ').waitFor();
    const early = (await textOf(lastAnswer(page))).length;
    await page.getByText('word25 ').waitFor();
    await page.waitForFunction((length) => [...document.querySelectorAll('.message.assistant .markdown')].at(-1).innerText.length > length, early);
    assert.equal(double.seen.cut, 0);
    await page.keyboard.press('Escape');
    await page.getByText('Stopped.', { exact: true }).first().waitFor();
    await idle(page);
    for (let i = 0; double.seen.cut === 0 && i < 1000; i++) await new Promise((resolve) => setTimeout(resolve, 20));
    assert.equal(double.seen.cut, 1);
    const kept = await textOf(lastAnswer(page));
    assert.match(kept, /^word0 word1 /);

    await prompt(page).fill('endless two');
    await prompt(page).press('Enter');
    await button(page, 'Stop').click();
    await idle(page);
    await page.reload();
    await page.getByText('endless two').last().waitFor();
    assert.equal(await textOf(answers(page).first()), kept);
}));

test('thinking is open while it comes, then folded with its seconds', () => withPage(async (page, double) => {
    await prompt(page).fill('pondering please');
    await prompt(page).press('Enter');
    await page.locator('details.thought[open]').getByText('thought59 ').waitFor();
    double.goOn();
    await lastAnswer(page).getByText('said3 ').waitFor();
    await page.locator('details.thought:not([open])').waitFor();
    await idle(page);
    await page.getByText(/^Thought for [\d.]+ s$/).click();
    await page.getByText('thought59').waitFor();
}));

test('edited and repeated messages are branches', () => withPage(async (page, double) => {
    const first = await say(page, 'First question');
    await say(page, 'Second question');
    const user = page.locator('.message.user').first();
    await user.hover();
    await button(user, 'Edit').click();
    await page.getByRole('textbox', { name: 'Edit the message' }).fill('Changed question');
    await page.keyboard.press('Enter');
    await idle(page);
    assert.deepEqual(double.seen.bodies.at(-1).messages, [{ role: 'user', content: 'Changed question' }]);
    assert.equal(await page.locator('.message').count(), 2);
    await page.getByText('2/2').waitFor();
    await button(page, 'Previous version').click();
    await page.getByText('Second question').first().waitFor();
    assert.equal(await textOf(answers(page).first()), first);
    assert.equal(await page.locator('.message').count(), 4);

    await button(lastAnswer(page), 'Answer again').click();
    await idle(page);
    await lastAnswer(page).getByText('2/2').waitFor();
    assert.equal(double.seen.bodies.at(-1).messages.length, 3);
    await page.reload();
    await page.getByText('Second question').first().waitFor();
    assert.equal(await lastAnswer(page).locator('.branches span').innerText(), '2/2');
    await button(lastAnswer(page), 'Previous version').click();
    await lastAnswer(page).getByText('1/2').waitFor();

    await button(lastAnswer(page), 'Edit').click();
    await page.getByRole('textbox', { name: 'Edit the message' }).fill('What it should have said');
    await button(page, 'Save').click();
    await lastAnswer(page).getByText('3/3').waitFor();
    await say(page, 'Third question');
    assert.equal(double.seen.bodies.at(-1).messages.at(-2).content, 'What it should have said');
}));

test('conversations are kept, found, renamed, exported, deleted and imported', () => withPage(async (page) => {
    await say(page, 'About apples');
    await button(page, 'New conversation').click();
    await say(page, 'About pears and rich cheese');
    await page.reload();
    await page.getByText('About pears').last().waitFor();
    assert.deepEqual(await conversations(page).allInnerTexts(), ['About pears and rich cheese', 'About apples']);
    await page.keyboard.press('Control+k');
    await page.keyboard.type('cheese pears');
    assert.deepEqual(await conversations(page).allInnerTexts(), ['About pears and rich cheese']);
    await page.keyboard.type(' nowhere');
    await page.getByText('Nothing found.').waitFor();
    await page.getByRole('searchbox').fill('');

    await button(page, 'More of “About apples”').click();
    await page.getByRole('menuitem', { name: 'Rename' }).click();
    await page.getByRole('textbox', { name: 'Name of the conversation' }).fill('Fruit <b>');
    await page.keyboard.press('Enter');
    await conversations(page).getByText('Fruit <b>', { exact: true }).click();
    await page.locator('.bubble', { hasText: 'About apples' }).waitFor();
    const before = await textOf(lastAnswer(page));

    const wanted = page.waitForEvent('download');
    await button(page, 'Export all').click();
    const file = join(await mkdtemp(join(tmpdir(), 'tq-page-')), 'all.json');
    await (await wanted).saveAs(file);
    assert.equal(JSON.parse(await readFile(file, 'utf8')).conversations.length, 2);
    for (let left = 2; left > 0; left--) {
        await page.locator('.conversation').first().hover();
        await page.locator('.conversation').first().getByRole('button', { name: /^More/ }).click();
        await page.getByRole('menuitem', { name: 'Delete' }).click();
        await button(page.getByRole('dialog'), 'Delete').click();
        await page.waitForFunction((n) => document.querySelectorAll('.conversation').length === n, left - 1);
    }
    await page.reload();
    await page.getByText('What is on your mind?').waitFor();
    assert.equal(await conversations(page).count(), 0);

    await page.setInputFiles('#file', file);
    await conversations(page).getByText('Fruit <b>', { exact: true }).click();
    assert.equal(await textOf(lastAnswer(page)), before);
    await writeFile(file, '{"format": "tq-run conversations", "version": 1, "conversations": [{"messages": [{"id": "a", "parent": "a", "role": "user", "text": "x"}]}]}');
    await page.setInputFiles('#file', file);
    await page.getByText('a message follows one that is not there').waitFor();
}));

test('an answer goes on while another conversation is shown', () => withPage(async (page, double) => {
    await prompt(page).fill('held meanwhile');
    await prompt(page).press('Enter');
    await page.getByText('thought3 ').waitFor();
    await button(page, 'New conversation').click();
    await page.getByText('What is on your mind?').waitFor();
    await page.getByRole('img', { name: 'Being answered' }).waitFor();
    double.goOn();
    await page.getByRole('img', { name: 'Being answered' }).waitFor({ state: 'detached' });
    await conversations(page).getByText('held meanwhile').click();
    assert.match(await textOf(lastAnswer(page)), /said19/);
}));

test('two tabs show the same, and neither loses what the other added', () => withPage(async (page) => {
    await say(page, 'rich first');
    const other = await page.context().newPage();
    await other.goto(page.url());
    await other.getByText('rich first').last().waitFor();
    await say(page, 'rich second');
    await other.locator('.bubble').getByText('rich second').waitFor();
    await idle(other);
    await say(other, 'rich third');
    await page.locator('.bubble').getByText('rich third').waitFor();
    await page.reload();
    await page.locator('.bubble').getByText('rich third').waitFor();
    assert.equal(await page.locator('.message').count(), 6);
}));

test('a key is asked for once, and kept', () => withPage(async (page) => {
    const dialog = page.getByRole('dialog', { name: 'API key' });
    await dialog.waitFor();
    await page.keyboard.type('wrong');
    await page.keyboard.press('Enter');
    await dialog.getByText('does not know the key').waitFor();
    await page.keyboard.type('right');
    await page.keyboard.press('Enter');
    await dialog.waitFor({ state: 'detached' });
    await say(page, 'rich text');
    await page.reload();
    await page.getByText('rich text').last().waitFor();
    await say(page, 'rich again');
    assert.equal(await dialog.count(), 0);
}, { key: 'right' }));

test('errors are shown with the server\'s sentence, and what came is kept', () => withPage(async (page) => {
    await prompt(page).fill('refused');
    await prompt(page).press('Enter');
    await lastAnswer(page).getByText('The prompt has 40112 tokens, more than the context of 32768.').waitFor();
    await say(page, 'broken line');
    assert.equal((await textOf(lastAnswer(page))).trim(), 'half an');
    await lastAnswer(page).getByText('The connection broke before the answer was complete.').waitFor();
    await button(page, 'Try again').last().click();
    await lastAnswer(page).getByText('2/2').waitFor();
}));

test('settings are sent, and those left empty are not', () => withPage(async (page, double) => {
    await button(page, 'Settings').click();
    await page.getByLabel('System prompt').fill('Be brief.');
    await page.getByLabel('Temperature').fill('0.25');
    await page.getByLabel('Top k').fill('7');
    await page.getByLabel('Seed').fill('11');
    await page.getByText('Off', { exact: true }).click();
    await button(page, 'Save').click();
    await say(page, 'rich text');
    const body = double.seen.bodies.at(-1);
    assert.deepEqual(body.messages[0], { role: 'system', content: 'Be brief.' });
    assert.deepEqual([body.temperature, body.top_k, body.seed], [0.25, 7, 11]);
    assert.deepEqual(body.chat_template_kwargs, { enable_thinking: false });
    for (const name of ['top_p', 'min_p', 'max_tokens', 'system', 'think']) assert.ok(!(name in body), name);
    await button(page, 'New conversation').click();
    await say(page, 'rich text');
    assert.equal(double.seen.bodies.at(-1).temperature, 0.25);
}));

test('what is typed while the page loads is kept', () => withPage(async (page) => {
    await page.addInitScript(() => {
        new MutationObserver((_, observer) => {
            if (!document.querySelector('.send')) return;
            observer.disconnect(); // no conversation has been read yet
            window.dispatchEvent(new Event('resize'));
            const field = document.getElementById('prompt');
            field.value = 'early';
            field.dispatchEvent(new Event('input'));
            field.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true }));
        }).observe(document, { childList: true, subtree: true });
    });
    await page.reload();
    await page.waitForSelector('body.ready');
    assert.equal(await prompt(page).inputValue(), 'early');
}));
