// Numbers and dates as people read them.

export function count(n) {
    return Math.round(n).toLocaleString('en-US');
}

// Three digits and a unit of 1000, as disks and networks have them: "31.2 MB".
export function bytes(n) {
    const units = ['B', 'kB', 'MB', 'GB', 'TB'];
    let unit = 0;
    for (; n >= 999.5 && unit < units.length - 1; unit++) n /= 1000;
    return `${unit === 0 || n >= 99.95 ? Math.round(n) : n.toFixed(n >= 9.995 ? 1 : 2)} ${units[unit]}`;
}

export function seconds(ms) {
    const s = ms / 1000;
    if (s < 9.95) return `${s.toFixed(s < 0.995 ? 2 : 1)} s`;
    if (s < 59.5) return `${Math.round(s)} s`;
    return `${Math.floor(Math.round(s) / 60)} min ${Math.round(s) % 60} s`;
}

export function rate(perSecond) {
    return `${perSecond >= 99.95 ? count(perSecond) : perSecond.toFixed(1)} tokens/s`;
}

// The heading under which a conversation is listed.
export function dayName(time, now = Date.now()) {
    const midnight = new Date(now).setHours(0, 0, 0, 0);
    const day = 24 * 3600 * 1000;
    if (time >= midnight) return 'Today';
    if (time >= midnight - day) return 'Yesterday';
    if (time >= midnight - 6 * day) return 'This week';
    if (time >= midnight - 30 * day) return 'This month';
    return new Date(time).toLocaleDateString(undefined, { month: 'long', year: 'numeric' });
}
