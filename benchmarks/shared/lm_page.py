"""What compression costs the head of a language model."""

from .markdown import join, source, table


def lm_section(results):
    names = sorted((name for name in results if name.startswith("lm_heads-")), key=lambda name: int(name.split("-")[1]))
    if not names:
        return ""
    made = [results[name]["measured"]["made"] for name in names]
    parts = [
        "## The head of a language model",
        f"Small decoders of width {' and '.join(str(one['width']) for one in made)}, trained on WordNet's glosses "
        f"({made[0]['vocabulary']:,} tokens; `experiments/language_model`); held-out positions. Agreement with the "
        "float32 head: of the best token, and of the best five. With a shortlist, perplexity takes exact logits on it "
        "and estimates elsewhere; the last column is how often the token that follows is on it. Bytes count all, "
        "the codebook of product quantisation and the 8-bit weights of a shortlist too.",
    ]
    for name in names:
        found = results[name]["measured"]
        rows = [
            [
                row["name"],
                f"{row['bytes_per_token']:.0f}",
                f"{row['perplexity']:.1f}",
                f"{row['top1']:.1%}",
                f"{row['top5']:.1%}",
                f"{row['in_shortlist']:.1%}" if "in_shortlist" in row else "",
            ]
            for row in found["rows"]
        ]
        header = [
            f"width {found['made']['width']}",
            "bytes per token",
            "perplexity",
            "best",
            "best five",
            "on the list",
        ]
        parts += [table(header, rows), source(results, name)]
    return join(*parts, verdict(results[names[0]]["measured"]["rows"]))


def verdict(rows):
    by_name = {row["name"]: row for row in rows}
    codes, whole = by_name["256 bits"], by_name["float32"]
    quantised = by_name["product quantisation, 128 parts"]
    four, short = by_name["int4"], by_name["256 bits, shortlist of 100 in int8"]
    return (
        f"Verdict: codes alone are no head for a language model. At {codes['bytes_per_token']:.0f} bytes they beat "
        f"product quantisation of {quantised['bytes_per_token']:.0f} (perplexity {codes['perplexity']:.1f} beside "
        f"{quantised['perplexity']:.1f}), but {codes['top1']:.0%} of the best tokens stay, and 4-bit rows of "
        f"{four['bytes_per_token']:.0f} bytes keep {four['top1']:.0%} at perplexity {four['perplexity']:.1f} (float32: "
        f"{whole['perplexity']:.1f}). With a shortlist of 100 in 8 bits {short['top1']:.1%} stay; that costs "
        f"{short['bytes_per_token']:.0f} bytes, more than 8-bit rows alone ({by_name['int8']['bytes_per_token']:.0f}), "
        "so it buys fewer rows read per token, not a smaller model."
    )
