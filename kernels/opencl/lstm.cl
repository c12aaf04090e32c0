/* lstm.cl - one time step of an LSTM over (samples, steps, units), forward and backward.
 *
 * The products with the weights are variants of sgemm_common.cl; these kernels do what lies between
 * two products. Gates are in the order input, forget, cell, output, `units` values each. One work
 * item per sample and unit. */

float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }

/* Turns the products of time step t into gates, and those into cells and y. `gates` holds the
 * product with x; `from_state` is (samples, 4 units), the product with the y of the time step
 * before, and is not read at t = 0. */
kernel void lstm_step(int samples, int steps, int units, int t, global const float *bias,
                      global const float *from_state, global float *y, global float *gates,
                      global float *cells) {
    int unit = (int)get_global_id(0), sample = (int)get_global_id(1);
    if (unit >= units || sample >= samples) {
        return;
    }
    size_t row = (size_t)sample * steps + t;
    global float *gate = gates + row * 4 * units + unit;
    global float *cell = cells + row * units + unit;
    float input[4];
    for (int g = 0; g < 4; ++g) {
        float state = t > 0 ? from_state[((size_t)sample * 4 + g) * units + unit] : 0.0f;
        input[g] = gate[g * units] + state + bias[g * units + unit];
    }
    float in = sigmoid(input[0]), forget = sigmoid(input[1]), fresh = tanh(input[2]),
          out = sigmoid(input[3]);
    float state = in * fresh;
    if (t > 0) {
        state = forget * *(cell - units) + state;
    }
    gate[0] = in;
    gate[units] = forget;
    gate[2 * units] = fresh;
    gate[3 * units] = out;
    *cell = state;
    y[row * units + unit] = out * tanh(state);
}

/* The gradient of the gates of time step t, before their functions. `dh` and `dc` are (samples,
 * units): what comes back from the next time step, and is not read at the last one. `dc` becomes
 * what goes back to the step before. */
kernel void lstm_gradient_step(int samples, int steps, int units, int t, global const float *dy,
                               global const float *gates, global const float *cells,
                               global const float *dh, global float *dc, global float *dgates) {
    int unit = (int)get_global_id(0), sample = (int)get_global_id(1);
    if (unit >= units || sample >= samples) {
        return;
    }
    size_t row = (size_t)sample * steps + t, at = (size_t)sample * units + unit;
    global const float *gate = gates + row * 4 * units + unit;
    global const float *cell = cells + row * units + unit;
    global float *dgate = dgates + row * 4 * units + unit;
    float in = gate[0], forget = gate[units], fresh = gate[2 * units], out = gate[3 * units];
    float old = t > 0 ? *(cell - units) : 0.0f, tanh_state = tanh(*cell);
    bool last = t == steps - 1;
    float h = dy[row * units + unit] + (last ? 0.0f : dh[at]);
    float c = h * out * (1.0f - tanh_state * tanh_state) + (last ? 0.0f : dc[at]);
    dgate[0] = c * fresh * in * (1.0f - in);
    dgate[units] = c * old * forget * (1.0f - forget);
    dgate[2 * units] = c * in * (1.0f - fresh * fresh);
    dgate[3 * units] = h * tanh_state * out * (1.0f - out);
    dc[at] = c * forget;
}

/* y one time step later: what the state was before each time step. */
kernel void previous_states(int count, int steps, int units, global const float *y,
                            global float *previous) {
    int i = (int)get_global_id(0);
    if (i < count) {
        previous[i] = i / units % steps > 0 ? y[i - units] : 0.0f;
    }
}
