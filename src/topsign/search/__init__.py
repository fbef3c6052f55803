"""Search: engines that execute comparisons over snapshots, rescoring, pairs, regions and recall."""
