// Draws the pool of pages as a grid: pages in use, spare ones, free ones, in `colours`. In a large pool a square is several pages.

const most = 1200; // squares

export function drawPages(canvas, { used, spare, free }, colours) {
    const total = used + spare + free;
    const width = canvas.clientWidth;
    if (!total || !width) return;
    const each = Math.ceil(total / most);
    const squares = Math.ceil(total / each);
    // Squares as large as fit into about a third of the width's square, from 4 to 14 pixels.
    const step = Math.max(4, Math.min(14, Math.floor(Math.sqrt((width * width * 0.45) / squares))));
    const columns = Math.max(1, Math.floor((width + 2) / step));
    const height = Math.ceil(squares / columns) * step;
    const scale = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
        canvas.width = Math.round(width * scale);
        canvas.height = Math.round(height * scale);
        canvas.style.height = `${height}px`;
    }
    const context = canvas.getContext('2d');
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    const gap = step > 6 ? 2 : 1;
    for (let i = 0; i < squares; i++) {
        const page = i * each;
        context.fillStyle = page < used ? colours.used : page < used + spare ? colours.spare : colours.free;
        context.beginPath();
        context.roundRect((i % columns) * step, Math.floor(i / columns) * step, step - gap, step - gap, step > 8 ? 2 : 1);
        context.fill();
    }
}
