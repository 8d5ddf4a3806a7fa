// Opens the page in headless Chromium, as people do, and notes whatever must never happen.
import assert from 'node:assert/strict';
import { chromium } from 'playwright-core';
import { startDouble } from './double.mjs';

export const serverAddress = process.env.TQ_PAGE_URL;
assert.ok(serverAddress, 'TQ_PAGE_URL says where the server is: TQ_PAGE_URL=http://127.0.0.1:8080 npm test');

let browser = null;

export async function openBrowser() {
    browser = await chromium.launch({
        executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
        args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update',
            '--disable-sync'],
    });
}

export async function closeBrowser() {
    await browser.close();
}

export const wide = { width: 1280, height: 800 };
export const phone = { width: 390, height: 844 };

// Runs `use(page, double)` on the page in a browser without any data. Fails on errors of scripts, refused content and other hosts.
export async function withPage(use, { viewport = wide, colorScheme = 'light', key = null, prefix = '' } = {}) {
    const double = await startDouble(serverAddress, { key, prefix });
    const small = viewport.width < 600;
    const context = await browser.newContext({ viewport, colorScheme, hasTouch: small, isMobile: small, acceptDownloads: true });
    context.setDefaultTimeout(20000);
    const page = await context.newPage();
    const faults = [];
    page.on('pageerror', (error) => faults.push(`script: ${error.stack}`));
    page.on('console', (message) => {
        // The browser itself reports answers such as 400 and 401.
        if (message.type() === 'error' && !/^Failed to load resource/.test(message.text())) faults.push(`console: ${message.text()}`);
    });
    page.on('request', (request) => {
        if (!request.url().startsWith(double.address) && !/^(blob|data):/.test(request.url())) faults.push(`another host: ${request.url()}`);
    });
    try {
        await page.goto(double.address);
        await page.waitForSelector('body.ready');
        await use(page, double);
        assert.deepEqual(faults, []);
        assert.equal(await page.evaluate(() => window.broken), undefined);
    } catch (error) {
        if (process.env.TQ_PAGE_SHOTS) await page.screenshot({ path: `${process.env.TQ_PAGE_SHOTS}/failed.png` });
        throw error;
    } finally {
        await context.close();
        double.close();
    }
}

export const prompt = (page) => page.getByRole('textbox', { name: 'Message', exact: true });
export const answers = (page) => page.locator('.message.assistant');
export const lastAnswer = (page) => answers(page).last();
export const textOf = (message) => message.locator(':scope > .body > .markdown').innerText();

export async function idle(page) {
    await page.waitForSelector('.send[data-running="false"]');
    await page.waitForFunction(() => !document.querySelector('[aria-busy="true"]'));
}

// Sends a message and waits for the end of the answer; returns its text.
export async function say(page, text) {
    await prompt(page).fill(text);
    await prompt(page).press('Enter');
    await page.waitForFunction((said) => [...document.querySelectorAll('.bubble')].at(-1)?.textContent === said, text);
    await idle(page);
    return textOf(lastAnswer(page));
}

// Takes a picture where TQ_PAGE_SHOTS names a directory.
export async function picture(page, name) {
    if (process.env.TQ_PAGE_SHOTS) await page.screenshot({ path: `${process.env.TQ_PAGE_SHOTS}/${name}.png` });
}
