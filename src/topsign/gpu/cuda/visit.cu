// Copies the codes of the regions that a query visits to contiguous memory; one thread per code, in whole warps.
//
// `order` lists the codes region by region. Span s of the copy is [ends[s - 1], ends[s]) and has the codes from
// order[firsts[s]] on. The copy has `n` codes, and a bitmap of those that are alive. `positions` gets the positions of the
// codes in the search; `base` is that of code 0.
extern "C" __global__ void copy_visited(const u32* stripes, const float* weights, const u32* alive, const u32* order,
                                        const u32* firsts, const u32* ends, u32 n_spans, u32 base, u32 n, u32* out_stripes,
                                        float* out_weights, u32* out_alive, u32* positions) {
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    u32 span = 0;
    for (u32 end = n_spans; span < end;) {
        const u32 middle = (span + end) / 2;
        if (ends[middle] > i) end = middle;
        else span = middle + 1;
    }
    const bool there = i < n;
    const u32 code = there ? order[firsts[span] + i - (span ? ends[span - 1] : 0)] : 0;
    const u32 living = __ballot_sync(ALL, there && (!alive || get_bit(alive, code)));
    if (i % GROUP == 0) out_alive[i / GROUP] = living;
    positions[i] = base + code;
    if (weights) out_weights[i] = weights[code];
    const u32* from = code_at(stripes, code);
    u32* to = out_stripes + i / GROUP * (u64(CODE_WORDS) * GROUP) + i % GROUP;
    for (u32 word = 0; word < CODE_WORDS; ++word) to[word * GROUP] = from[word * GROUP];
}
