// Scores of a few queries and trellis codes; `Summer` computes the sums. QUERIES and FEW_THREADS are compile-time
// constants; a query of two digits counts as two QUERIES.

extern "C" __global__ void __launch_bounds__(FEW_THREADS) few(const u32* stripes, SUM_PARAMETERS, CANDIDATE_PARAMETERS) {
    const Candidates to = CANDIDATES;
    const Summer summer = SUMMER;
    summer.for_each_sum(stripes, n_codes, [&](u32 code, u32 query, const int* sums) {
        if (query >= n_queries) return;
        const float center = center_of(sums, steps[query], steps[n_queries + query]);
        offer(to, query, code, center, weights[code], biases ? biases[code] : 0.f);
    });
}

// Writes all scores, (n_queries, n_all).
extern "C" __global__ void __launch_bounds__(FEW_THREADS) few_all(const u32* stripes, SUM_PARAMETERS, const float* steps,
                                                                  const float* weights, const float* biases, u32 n_codes,
                                                                  u32 n_queries, u64 n_all, float* out) {
    const Summer summer = SUMMER;
    summer.for_each_sum(stripes, n_codes, [&](u32 code, u32 query, const int* sums) {
        if (query >= n_queries) return;
        const float center = center_of(sums, steps[query], steps[n_queries + query]);
        out[query * n_all + code] = center * weights[code] + (biases ? biases[code] : 0.f);
    });
}
