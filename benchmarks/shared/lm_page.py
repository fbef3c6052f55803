"""Compressed heads of language models in docs/reference/benchmarks.md."""

from .markdown import join, source, table


def lm_section(results):
    names = sorted((name for name in results if name.startswith("lm_heads-")), key=lambda name: int(name.split("-")[1]))
    if not names:
        return ""
    made = [results[name]["measured"]["made"] for name in names]
    parts = [
        "## The head of a language model",
        f"Small decoders of width {' and '.join(str(one['width']) for one in made)}, trained on WordNet's glosses "
        f'({made[0]["vocabulary"]:,} tokens; `experiments/language_model`) and tested on held-out positions. "Best" '
        'and "best five" are the agreement with the float32 head. With a shortlist, perplexity uses exact logits for '
        "the tokens on the list and estimates for the others; the last column is the share of positions whose next "
        "token is on the list. Bytes include the codebook of product quantisation and the int8 weights of a shortlist.",
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
    return join(*parts, conclusion(results[names[0]]["measured"]["rows"]))


def conclusion(rows):
    by_name = {row["name"]: row for row in rows}
    codes, whole = by_name["256 bits"], by_name["float32"]
    quantised = by_name["product quantisation, 128 parts"]
    four, short = by_name["int4"], by_name["256 bits, shortlist of 100 in int8"]
    return (
        f"Codes cannot replace the head of a language model without its weights. At {codes['bytes_per_token']:.0f} "
        f"bytes they are better than product quantisation of {quantised['bytes_per_token']:.0f} bytes (perplexity "
        f"{codes['perplexity']:.1f} and {quantised['perplexity']:.1f}), but only {codes['top1']:.0%} of the best "
        f"tokens are unchanged, while 4-bit rows of {four['bytes_per_token']:.0f} bytes keep {four['top1']:.0%} at a "
        f"perplexity of {four['perplexity']:.1f} (float32: {whole['perplexity']:.1f}). With a shortlist of 100 in 8 "
        f"bits {short['top1']:.1%} are unchanged. It takes {short['bytes_per_token']:.0f} bytes, more than 8-bit rows "
        f"({by_name['int8']['bytes_per_token']:.0f}), so it reads fewer rows per token but does not make the model "
        "smaller."
    )
