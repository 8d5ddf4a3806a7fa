"""The pictures of docs/, drawn from its tables."""
import re

from plots.quality import Point, draw_sizes
from plots.style import MARKERS, Bad, lines_by_depth, shades


def table(path, first_cells):
    """The rows of the table of a Markdown file whose head begins with these cells, as {first cell: {head: cell}}."""
    head, rows = None, {}
    for line in path.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if head is None:
            head = cells if cells[:len(first_cells)] == first_cells else None
        elif not line.startswith("|"):
            break
        elif not cells[0].startswith("---"):
            rows[cells[0]] = dict(zip(head, cells))
    if not rows:
        raise Bad(f"{path} has no table that begins with {' | '.join(first_cells)}")
    return rows


def points_of(rows, model):
    """The divergences of a model with keys conditioned by norms, and without."""
    out = []
    for cache, row in rows.items():
        for condition, star in ("norms", ""), ("none", "*"):
            kl, _, error = row[f"{model}: KL, {condition}"].partition(" ± ")
            out.append(Point(int(row["B/token"]), float(kl), float(error or 0), cache + star))
    return out


def points_of_model(rows, model):
    """The divergences of a real model: the first numbers of its cells, and of the bytes, which are those of the first model."""
    first = lambda cell: float(cell.split(",")[0])
    return [Point(int(first(row["B/token"])), first(row[model]), 0, cache.split(" ")[0]) for cache, row in rows.items() if row[model]]


def draw_quality(path, page):
    points = points_of_model(table(path, ["cache", "B/token"]), "0.5B")
    draw_sizes(points, "Qwen2.5-Coder 0.5B, 1024 tokens: lower left is better", "f16", page, "quality")


def draw_demo(path, page):
    rows = table(path, ["cache", "B/token"])
    draw_sizes(points_of(rows, "demo"), "All caches, the demo model: lower left is better", "f16", page, "quality-demo")
    draw_sizes(points_of(rows, "stressed"), "All caches, keys of uneven channels: lower left is better", "f16", page, "quality-stressed")


def number(cell):
    return float(cell.replace(",", ""))


def depths_of(row):
    return [(int(number(head)), number(cell), 0) for head, cell in row.items() if re.fullmatch(r"[\d,]+", head) and cell]


def draw_depth(path, page):
    rows = table(path, ["cache", "0", "2048"])
    colours = shades(["tq4", "f16"])
    lines = [(f"{cache}, {depths_of(rows[cache])[-1][1]:g}", colour, MARKERS[0], depths_of(rows[cache]), [])
             for cache, colour in colours.items()]
    title = "Generation on two threads: the cache's bytes decide at depth"
    page.save(lines_by_depth(lines, title, "tokens per second"), "depth")


def draw_llvmpipe(path, page):
    lines, rows = [], table(path, ["ms", "0", "2048"])
    for cache, colour in shades(rows).items():
        points = depths_of(rows[cache])
        (depth, start, _), last = points[0], points[-1][0]
        slope = number(rows[cache]["expected, ns a token of context"]) * 1e-6
        lines.append((f"{cache}, {points[-1][1]:.0f}", colour, MARKERS[0], points, [(depth, start), (last, start + slope * (last - depth))]))
    note = "dashed: the cache's bytes over the attention kernel's bandwidth"
    page.save(lines_by_depth(lines, "Time of a token on llvmpipe: a straight line by depth", "ms per token", note), "depth-llvmpipe")


def draw(directory, page):
    draw_quality(directory / "quality.md", page)
    draw_depth(directory / "performance.md", page)
    lab = page.below("lab")
    draw_demo(directory / "lab/quality-report.md", lab)
    draw_llvmpipe(directory / "lab/software-drivers.md", lab)
