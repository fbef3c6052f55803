"""Pieces of generated pages."""

NOTICE = (
    "<!-- Written by python benchmarks/page.py from benchmarks/results; change those, not this. -->\n"
    "Every number comes from a file in `benchmarks/results`, which `make bench` writes; the page is generated "
    "from them."
)

UNTIMED = (
    "camera_evidence.py",
    "cameras.py",
    "detection.py",
    "lm_heads.py",
    "paper.py",
    "text_embeddings.py",
)  # what they say does not hang on time


def join(*parts):
    """Parts that are there, with an empty line between."""
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def bold_best(values, text, best=max):
    """Texts of values, those that round to the best one in bold; None stays empty."""
    shown = ["" if value is None else text(value) for value in values]
    top = text(best(value for value in values if value is not None))
    return [f"**{one}**" if one == top else one for one in shown]


def source(results, *names):
    """The commands, machine, commit and day of some results."""
    parts = []
    for name in names:
        report = results[name]
        given = ["residuals.npz"] if report["script"] in ("cameras.py", "camera_evidence.py") else []
        arguments = " ".join([*given, *flags(report["options"])])
        parts.append(f"`python benchmarks/{report['script']}{' ' + arguments if arguments else ''}`")
    report = results[names[0]]
    machine = report["machine"]
    load = "" if report["script"] in UNTIMED else f", load {machine['load']}"
    return (
        f"{', '.join(parts)}; {machine['processor']}, {machine['cores']} cores, {machine['kernels']} "
        f"kernels{load}, commit "
        f"`{report['commit']}`, {report['date']}."
    )


def flags(options):
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is None or value is False or name == "plot":
            continue
        if value is True:
            yield flag
        elif isinstance(value, list):
            yield " ".join([flag, *map(str, value)])
        else:
            yield f"{flag} {value}"


def number(value):
    """Three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def listed(items):
    items = [str(item) for item in items]
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]
