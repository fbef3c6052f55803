"""Validate examples/cluster/kubernetes.yaml against the schema of the Dask operator: make test-kubernetes.

    python tests/check_kubernetes.py dask_kubernetes-*.whl

The wheel of dask-kubernetes contains the CustomResourceDefinition that a Kubernetes server validates with. A server
ignores unknown fields silently; here they are errors.
"""

import sys
import zipfile
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "cluster" / "kubernetes.yaml"
DEFINITION = "dask_kubernetes/operator/deployment/helm/dask-kubernetes-operator/crds/daskcluster.yaml"


def strict(schema):
    """Return the schema with unknown fields rejected wherever it lists the known fields."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: strict(one) for name, one in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        made.setdefault("additionalProperties", bool(schema.get("x-kubernetes-preserve-unknown-fields")))
    return made


def main():
    import jsonschema  # only ``make test-kubernetes`` installs these two
    import yaml

    with zipfile.ZipFile(sys.argv[1]) as wheel:
        definition = yaml.safe_load(wheel.read(DEFINITION))
    resource = yaml.safe_load(EXAMPLE.read_text())
    (version,) = [one for one in definition["spec"]["versions"] if resource["apiVersion"].endswith(f"/{one['name']}")]
    assert (resource["kind"], resource["apiVersion"].split("/")[0]) == (
        definition["spec"]["names"]["kind"],
        definition["spec"]["group"],
    )
    schema = strict(version["schema"]["openAPIV3Schema"])
    schema["properties"] |= {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    errors = list(jsonschema.Draft202012Validator(schema).iter_errors(resource))
    for error in errors:
        print(f"{error.json_path}: {error.message[:200]}")
    if errors:
        sys.exit(f"{EXAMPLE.name} does not match {Path(sys.argv[1]).name}")
    print(f"{EXAMPLE.name} matches the DaskCluster schema of {Path(sys.argv[1]).name}")


if __name__ == "__main__":
    main()
