"""Pictures of the logs of tq-run perplexity, needle and mix: divergence by bytes and by the tokens before, facts that are found,
how much each layer tolerates."""
import collections
import json
import math

import matplotlib.lines
import matplotlib.ticker

from plots.style import (FAMILIES, GREY, MARKERS, NAMES, PAIRS, PEERS, Bad, family, label_ends, label_points, plain, plt, shades,
                         short_name)

# A cache's results, by its short name, in which * means keys without conditioning. error: the standard error of the divergence.
Point = collections.namedtuple("Point", "bytes kl error name")
# Caches of these families are joined by lines and labelled if a picture has many: (title, whether with a window).
FIRST = [("TurboQuant", False), ("trellis", True), (FAMILIES[3][0], False)]
MANY = 20


def read_log(path):
    """(header, parts). A last line that was cut is left out, as tq-run itself does."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Bad(f"{path} cannot be read: {error}") from None
    rows = []
    for number, line in enumerate(text.split("\n")[:-1], 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise Bad(f"{path}, line {number}: it is not a JSON object")
        rows.append(row)
    if not rows or not isinstance(rows[0].get("schema"), str):
        raise Bad(f"{path} has no line with a \"schema\": it is no log of tq-run")
    if rows[0]["schema"] not in PICTURES:
        raise Bad(f"{path} is of the kind {rows[0]['schema']!r}: there are pictures of {', '.join(PICTURES)}")
    if not rows[1:]:
        raise Bad(f"{path} has no part that is finished")
    return rows[0], rows[1:]


def mean(values):
    """(mean, standard error)"""
    n = len(values)
    average = sum(values) / n
    return average, math.sqrt(sum((v - average) ** 2 for v in values) / max(n - 1, 1) / n)


def one_of(logs, *keys):
    """Returns the values that all logs have under these keys; logs with different ones cannot share a plot."""
    found = {tuple(header.get(key) for key in keys) for _, header, _ in logs}
    if len(found) > 1:
        raise Bad("logs of other measurements cannot stand in one plot: " +
                  ", ".join(sorted(f"{path} ({', '.join(str(header.get(k)) for k in keys)})" for path, header, _ in logs)))
    return found.pop()


def finite_list(part, key):
    values = part[key]
    if not values or not all(isinstance(v, (int, float)) and math.isfinite(v) for v in values):
        raise ValueError(key)
    return values


def kl_of_second_halves(parts):
    return mean([v for part in parts for v in finite_list(part, "kl")[len(part["kl"]) // 2:]])


def size_axis(axes, points):
    """Bytes to a logarithmic scale, and if f16 was measured how many times smaller they are."""
    exact = next((p.bytes for p in points if p.name.rstrip("*") == "f16"), None)
    sizes = [p.bytes for p in points if p.kl > 0 and p.bytes != exact]
    least, most = min(sizes) / 1.12, max(sizes) * 1.15
    axes.set_xscale("log", base=2)
    axes.set_xlim(least, most)
    ticks = [exact / ratio for ratio in (16, 8, 5, 4, 3, 2)] if exact else \
        [factor * 2 ** power for power in range(4, 30) for factor in (1, 1.5)]
    axes.xaxis.set_major_locator(matplotlib.ticker.FixedLocator([tick for tick in ticks if least <= tick <= most]))
    axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(
        lambda x, _: (f"f16 / {exact / x:g}\n" if exact else "") + f"{x:,.0f}"))
    axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
    axes.set_xlabel("bytes per token of context")


def series_of(points):
    """{(title, whether with a window): its points by size}, families in their order. Of caches that differ in conditioning
    alone the conditioned one."""
    names = {p.name for p in points}
    out = {(title, window): [] for title, *_ in [*FAMILIES, PAIRS] for window in (False, True)}
    for p in sorted(points):
        if not p.name.endswith("*") or p.name[:-1] not in names:
            out[family(p.name)[0], "+" in p.name].append(p)
    return {key: found for key, found in out.items() if found}


def draw_without_conditioning(axes, line, bare, colour, marker):
    """A dotted line of hollow marks through a family's caches without conditioning, if most of them are much worse for it."""
    pairs = [(p, bare[p.name]) for p in line if p.name in bare]
    if 2 * sum(worse.kl > 2 * p.kl for p, worse in pairs) <= len(pairs):
        return False
    axes.plot([p.bytes for _, p in pairs], [p.kl for _, p in pairs], color=colour, marker=marker, markerfacecolor="none",
              markersize=6, linewidth=1, linestyle=":" if len(pairs) > 2 else "none")
    return True


def draw_sizes(points, title, reference, page, name):
    """Divergence by bytes: a line for each family of caches. With many families only the first are labelled."""
    shown = [p for p in points if p.kl > 0 and p.name.rstrip("*") != reference]
    if not shown:
        raise Bad(f"nothing but {reference} itself was measured: there is nothing to draw by size")
    bare = {p.name[:-1]: p for p in shown if p.name.endswith("*")}
    figure, axes = plt.subplots(figsize=(7.6, 4.4))
    axes.set_yscale("log")
    size_axis(axes, points)
    labels, legend, bare_shown = [], [], False
    all_series = series_of(shown)
    many = sum(map(len, all_series.values())) > MANY
    for key, line in all_series.items():
        colour, first = family(line[0].name)[1], not many or key in FIRST
        marker = "^" if key[1] else "s" if line[0].name.rstrip("*") in PEERS else "o"
        joined = first and len(line) > 2 and key[0] != PAIRS[0]
        axes.errorbar([p.bytes for p in line], [p.kl for p in line], yerr=[min(p.error, p.kl * 0.99) for p in line], color=colour,
                      marker=marker, markersize=6 if first else 4, linewidth=1.6 if joined else 0, elinewidth=0.8,
                      alpha=1 if first else 0.6, zorder=3 if first else 2)
        legend.append(matplotlib.lines.Line2D([], [], color=colour, marker=marker, markersize=6 if first else 4, alpha=1 if first else 0.6,
                                              linewidth=1.6 if joined else 0, label=key[0] + (", with a window (+N)" if key[1] else "")))
        if first:
            bare_shown |= draw_without_conditioning(axes, line, bare, colour, marker)
        labels += [(p.bytes, p.kl, NAMES.get(p.name, p.name) if first else "", colour, p.name in NAMES or p.name in PEERS) for p in line]
    if bare_shown:
        legend.append(matplotlib.lines.Line2D([], [], color=GREY, marker="o", markerfacecolor="none", linestyle=":", linewidth=1,
                                              label="hollow: keys not conditioned"))
    axes.set_ylabel(f"KL divergence from {plain(reference)}, nats")
    axes.set_title(title)
    place = {"loc": "upper right"} if len(legend) <= 4 else {"loc": "center left", "bbox_to_anchor": (1.02, 0.5)}
    axes.legend(handles=legend, **place)
    label_points(axes, labels)
    page.save(figure, name)


def plot_size(logs, page):
    model, _, context, reference = one_of(logs, "model", "text", "context", "reference")

    def size(header):
        window = header.get("kv_window_bytes", header.get("kv_recent_bytes", 0))
        return header["kv_bytes_per_token"] + window / header["context"]

    points = [Point(size(header), *kl_of_second_halves(parts), short_name(header["kv"])) for _, header, parts in logs]
    draw_sizes(points, f"{plain(model)}, texts of {context} tokens: lower left is better", short_name(reference), page, "quality_by_size")


def by_depth(parts):
    """[(tokens before, mean KL, its standard error)], by powers of two."""
    bins = {}
    for part in parts:
        for before, kl in enumerate(finite_list(part, "kl"), 1):
            bins.setdefault(before.bit_length() - 1, []).append(kl)
    return [(1.5 * 2 ** power, *mean(values)) for power, values in sorted(bins.items()) if power >= 3 and sum(values) > 0]


def panels(count, width, height, **options):
    """Returns a figure with the given number of axes, at most three a row, and the axes."""
    columns = min(3, count)
    rows = (count + columns - 1) // columns
    figure, grid = plt.subplots(rows, columns, figsize=(0.8 + width * columns, 0.8 + height * rows), squeeze=False, sharey=True,
                                layout="constrained", **options)
    for axes in list(grid.flat)[count:]:
        axes.axis("off")
    return figure, list(grid.flat)[:count]


def plot_depth(logs, page):
    """A panel for each family; if a cache was measured with and without conditioning, only with it."""
    model, _, context, reference = one_of(logs, "model", "text", "context", "reference")
    lines = {short_name(header["kv"]): by_depth(parts) for _, header, parts in logs}
    lines = {name: points for name, points in lines.items() if points and (not name.endswith("*") or name[:-1] not in lines)}
    groups = {}
    for name, points in lines.items():
        groups.setdefault("with a window (+N)" if "+" in name else family(name)[0], []).append((name, points))
    if not groups:
        raise Bad("no cache has a divergence above 0: there is nothing to draw by depth")
    figure, grid = panels(len(groups), 2.9, 2.3, sharex=True)
    for axes, (title, series) in zip(grid, groups.items()):
        colours = shades(sorted(name for name, _ in series))
        for name, points in series:
            x, y, error = zip(*points)
            axes.errorbar(x, y, yerr=[min(e, v * 0.99) for v, e in zip(y, error)], markersize=3.5, marker="o", color=colours[name],
                          linewidth=1.4, elinewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda before, _: f"{before:,.0f}"))
        axes.tick_params(labelbottom=True)
        axes.set_title(title, fontsize=10)
    figure.supxlabel("tokens before", fontsize=10)
    figure.supylabel(f"KL divergence from {plain(short_name(reference))}, nats", fontsize=10)
    figure.suptitle(f"{plain(model)}, texts of {context} tokens: lower is better", fontsize=11)
    for axes, (_, series) in zip(grid, groups.items()):
        colours = shades(sorted(name for name, _ in series))
        label_ends(axes, [(*points[-1][:2], plain(name, 24), colours[name]) for name, points in series])
    page.save(figure, "kl_by_depth")


def shares(header, parts, exact):
    """[lengths][depths]: the share of facts that were found, or NaN. exact(fact): whether this one was."""
    cells = {}
    for part in parts:
        for fact in part["found"]:
            cells.setdefault((part["length"], fact["depth"]), []).append(1 if exact(fact) else 0)
    return [[sum(cell) / len(cell) if (cell := cells.get((length, depth))) else math.nan
             for depth in range(len(header["depths"]))] for length in header["lengths"]]


def plot_needles(logs, page):
    for _, header, _ in logs:
        header.update(lengths=tuple(header["lengths"]), depths=tuple(header["depths"]))
    model, lengths, depths = one_of(logs, "model", "lengths", "depths")
    maps = {short_name(header["kv"]): shares(header, parts, lambda fact: fact["exact"]) for _, header, parts in logs}
    for _, header, parts in logs:  # each reference once
        reference = header.get("reference") and short_name(header["reference"])
        if reference and reference not in maps:
            maps[reference] = shares(header, parts, lambda fact: fact["reference"]["exact"])
    figure, grid = panels(len(maps), 2.0, 0.5 + 0.3 * len(lengths), sharex=True)
    for (name, share), axes in zip(maps.items(), grid):
        axes.imshow(share, cmap="YlGnBu", vmin=0, vmax=1.2, aspect="auto")
        axes.grid(False)
        for y, row in enumerate(share):
            for x, value in enumerate(row):
                if not math.isnan(value):
                    axes.text(x, y, f"{value * 100:.0f}", ha="center", va="center", fontsize=8, color="1" if value > 0.6 else "0")
        axes.set_xticks(range(len(depths)), [f"{d:g}" for d in depths])
        axes.set_yticks(range(len(lengths)), lengths)
        axes.set_title(plain(NAMES.get(name, name), 30), fontsize=9, color=family(name)[1])
        axes.tick_params(length=0, labelsize=8)
    figure.suptitle(f"{plain(model)}: facts found exactly, %", fontsize=11)
    figure.supxlabel("share of the text before the fact", fontsize=9)
    figure.supylabel("tokens of the text", fontsize=9)
    page.save(figure, "needles")


def plot_sensitivity(logs, page):
    model, = one_of(logs, "model")
    found = {}  # (side, type): {layer: kl}; other parts of the log are not sensitivities
    for _, _, parts in logs:
        for part in parts:
            layer, side, kind, kl = (part.get(key) for key in ("layer", "side", "type", "kl"))
            if isinstance(layer, int) and side in ("k", "v") and isinstance(kind, str) and isinstance(kl, (int, float)) and kl > 0:
                found.setdefault((side, kind), {})[layer] = kl
    if not found:
        raise Bad("the log has no sensitivities: parts with \"layer\", \"side\", \"type\" and \"kl\"")
    figure, grid = panels(2, 4.0, 3.2)
    colours = shades(sorted({short_name(kind) for _, kind in found}))
    for side, axes in zip("kv", grid):
        for (_, kind), layers in sorted(item for item in found.items() if item[0][0] == side):
            name = short_name(kind)
            axes.plot(*zip(*sorted(layers.items())), color=colours[name], marker=MARKERS[0], linewidth=1.4, markersize=4)
        axes.set_yscale("log")
        axes.set_xlabel("layer")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_title({"k": "keys", "v": "values"}[side], fontsize=10)
    grid[0].set_ylabel("KL divergence of this side alone, nats")
    figure.suptitle(f"{plain(model)}: how much each layer tolerates", fontsize=11)
    for side, axes in zip("kv", grid):
        label_ends(axes, [(*max(layers.items()), plain(short_name(kind), 24), colours[short_name(kind)])
                          for (s, kind), layers in found.items() if s == side])
    page.save(figure, "sensitivity")


PICTURES = {"tq-run-perplexity": [plot_size, plot_depth], "tq-run-needle": [plot_needles], "tq-run-tune": [plot_sensitivity]}


def draw(paths, page):
    by_schema = {}
    for path in paths:
        header, parts = read_log(path)
        by_schema.setdefault(header["schema"], []).append((path, header, parts))
    for schema, logs in by_schema.items():
        for plot in PICTURES[schema]:
            try:
                plot(logs, page)
            except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
                raise Bad(f"a log of {schema} is broken ({type(error).__name__}: {error}): "
                          f"{', '.join(str(path) for path, _, _ in logs)}") from None
