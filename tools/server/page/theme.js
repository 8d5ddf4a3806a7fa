// Runs before the page is drawn, so that a theme that was chosen does not flash.
try {
    const theme = localStorage.getItem('tq-run.theme');
    if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch { /* the system's theme it is */ }
