"""The tables of a summary's figures."""


def table(head, rows):
    return ["| " + " | ".join(map(str, head)) + " |", "|" + "---|" * len(head), *("| " + " | ".join(map(str, row)) + " |" for row in rows)]


def share(count, of):
    return f"{count} of {of}"


def several(rows):
    """Whether the rows are of more than one text, whose number then stands in a table."""
    return len({row["text"] for row in rows}) > 1


def perplexity(rows, summary):
    head = (["text"] if several(rows) else []) + ["cache", "keys", "B/token", "KL", "median", "99 %", "99.9 %", "same top", "PPL", "PPL, f16"]
    cells = [([row["text"]] if several(rows) else []) + [
        row["cache"], row["kv_condition"], row["size"], f"{row['kl']:.2e} ± {row['kl_error']:.0e}", f"{row['kl_median']:.1e}",
        f"{row['kl_99']:.1e}", f"{row['kl_999']:.1e}", f"{100 * row['same_top']:.2f} %", f"{row['perplexity']:.4f}",
        f"{row['perplexity_f16']:.4f}"] for row in rows]
    return [f"KL divergence from an f16 cache in nats, of texts of {summary['context']} tokens the second half of each ({summary['tokens']} tokens).", "",
            *table(head, cells), "", "The same by the tokens before:", "",
            *table((["text"] if several(rows) else []) + ["cache", "keys", "first quarter", "second", "third", "last"],
                   [([row["text"]] if several(rows) else []) + [row["cache"], row["kv_condition"], *(f"{kl:.1e}" for kl in row["kl_by_quarter"])]
                    for row in rows])]


def peer(rows, _):
    head = (["text"] if several(rows) else []) + ["llama.cpp's cache", "KL", "median", "99 %", "99.9 %", "same top", "PPL", "PPL, f16"]
    return ["llama.cpp's caches, against its own f16 cache, on the same text.", "", *table(head, [
        ([row["text"]] if several(rows) else []) + [
            row["cache"], f"{row['kl']:.2e} ± {row['kl_error']:.0e}", f"{row['kl_median']:.1e}", f"{row['kl_99']:.1e}", f"{row['kl_999']:.1e}",
            f"{100 * row['same_top']:.2f} %", f"{row['perplexity']:.4f}", f"{row['perplexity_f16']:.4f}"] for row in rows])]


def agreement(rows, _):
    one = rows[0]
    return [f"Greedy answers of {one['tokens']} tokens to {one['prompts']} prompts of {one['prompt_tokens']}: how many are those with an f16 cache, "
            "and the tokens before the first other one.", "",
            *table(["cache", "equal answers", "equal tokens, mean"],
                   [[row["cache"], share(row["equal"], row["prompts"]), f"{row['mean_equal_tokens']:.1f}"] for row in rows])]


def needle(rows, _):
    lengths = list(dict.fromkeys(row["length"] for row in rows))
    of = {(row["cache"], row["length"]): row for row in rows}
    cell = lambda row: f"{share(row['found'], row['facts'])}, {row['log_p']:.2f}"
    return ["Facts found in texts of so many tokens, and the mean of log p of their values.", "",
            *table(["cache", *lengths], [[cache, *(cell(of[cache, length]) for length in lengths)]
                                         for cache in dict.fromkeys(row["cache"] for row in rows)])]


def tools(rows, _):
    return ["Calls of tools, of which ten are offered at a time: one call of the tool that is asked for, with arguments of its schema; with those "
            "of the question; and answers that are those with an f16 cache.", "",
            *table(["cache", "valid", "as asked", "equal to f16's"],
                   [[row["cache"], *(share(row[key], row["calls"]) for key in ("valid", "as_asked", "same_as_f16"))] for row in rows])]


def drafts(rows, _):
    return [f"Of the {rows[0]['tokens']} tokens that the model says itself: how many of those that were drafted were right.", "",
            *table(["drafts", "cache", "accepted"], [[row["drafts"], row["cache"], share(row["accepted"], row["drafted"])] for row in rows])]


def render(summary):
    """The report of all parts that the summary has."""
    lines = []
    for part in (perplexity, peer, agreement, needle, tools, drafts):
        if summary.get(part.__name__):
            lines += [*part(summary[part.__name__], summary), ""]
    return "\n".join(lines)
