/* embedding.cl - looks up a row of a table per symbol, and the gradient of the table.
 *
 * A symbol outside the table becomes a row of zeros and has no gradient. */

kernel void embedding_forward(int symbols, int rows, int width, global const int *tokens,
                              global const float *table, global float *y) {
    int column = (int)get_global_id(0), at = (int)get_global_id(1);
    if (column >= width || at >= symbols) {
        return;
    }
    int symbol = tokens[at];
    bool known = symbol >= 0 && symbol < rows;
    y[(size_t)at * width + column] = known ? table[(size_t)symbol * width + column] : 0.0f;
}

/* Adds to a table of zeros. One work item per column, since a symbol may occur twice: no atomics,
 * so a run repeats bit by bit. Neighbours read adjacent values. */
kernel void embedding_gradient(int symbols, int rows, int width, global const int *tokens,
                               global const float *dy, global float *dtable) {
    int column = (int)get_global_id(0);
    if (column >= width) {
        return;
    }
    for (int at = 0; at < symbols; ++at) {
        int symbol = tokens[at];
        if (symbol >= 0 && symbol < rows) {
            dtable[(size_t)symbol * width + column] += dy[(size_t)at * width + column];
        }
    }
}
