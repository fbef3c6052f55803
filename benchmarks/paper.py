"""Table I and Figure 3 of the paper, as measured by ``topsign reproduce``: a network's head, and weak matches.

    python benchmarks/paper.py [--seeds 20] [--matrices 8] [--references 1000] [--json FILE]

Points of accuracy that the head of a CIFAR-10 network loses, mean over seeds of the projection and its standard error;
areas under the curves of detectors at equal computation and at equal storage. The numbers are those of the page that
``topsign reproduce`` writes, for the same seeds.
"""

import argparse

from shared.results import save

from topsign.paper.roc import roc
from topsign.paper.table import table


def measure_table(options):
    found = table(n_seeds=options.seeds)
    print(f"{found.n_images} images, accuracy {found.accuracy:.2f}% uncompressed, {found.n_seeds} seeds")
    rows = []
    for row in found.rows:
        for kept, cell in zip(found.kept, row.cells, strict=True):
            lost = {"points_lost": cell.lost, "standard_error": cell.standard_error}
            rows.append({"method": row.method, "kept": kept, "storage": cell.storage, "step": cell.step, **lost})
            print(f"{row.method:40} {cell.storage:5} bits: {cell.lost:+7.3f} ± {cell.standard_error:.3f} points")
    return {"images": found.n_images, "accuracy": found.accuracy, "rows": rows}


def measure_roc(options):
    found = roc(n_matrices=options.matrices, n_references=options.references)
    rows = []
    for one in found.detections:
        area = {"auc": one.auc, "standard_error": one.auc_error, "exact": one.exact_auc}
        rows.append({"detector": one.name, "bits": one.stored_bits, **area})
        shown = f"AUC {one.auc:.4f} ± {one.auc_error:.4f}, {one.exact_auc:.4f} exact"
        print(f"{one.name:40} {one.stored_bits:7} bits: {shown}")
    matches = found.n_matches
    return {"matches": matches, "impostors": matches * (found.n_references - 1), "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--matrices", type=int, default=8)
    parser.add_argument("--references", type=int, default=1000, help="a matrix, of as many matches")
    parser.add_argument("--json", help="write the numbers into this file")
    options = parser.parse_args()
    measured = {"table": measure_table(options), "roc": measure_roc(options)}
    if options.json:
        save(options.json, options, measured)


if __name__ == "__main__":
    main()
