// Asks a server's page questions and takes a picture of it: TQ_PAGE_URL=http://127.0.0.1:8080 node picture.mjs FILE.png QUESTION...
import { chromium } from 'playwright-core';

const [file, ...questions] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });
const page = await browser.newPage({ viewport: { width: 1100, height: 620 }, colorScheme: 'light' });
await page.goto(process.env.TQ_PAGE_URL);
await page.waitForSelector('body.ready');
for (const question of questions) {
    await page.getByRole('textbox', { name: 'Message', exact: true }).fill(question);
    await page.getByRole('textbox', { name: 'Message', exact: true }).press('Enter');
    await page.waitForFunction((said) => [...document.querySelectorAll('.bubble')].at(-1)?.textContent === said, question);
    await page.waitForSelector('.send[data-running="false"]', { timeout: 120000 });
    await page.waitForFunction(() => !document.querySelector('[aria-busy="true"]'));
}
await page.screenshot({ path: file });
await browser.close();
