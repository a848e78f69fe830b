"""ALiBi slopes, as ggml defines them."""
import numpy as np


def alibi_slopes(n_heads: int, max_bias: float) -> np.ndarray:
    """What the mask of each head is multiplied by; 1 without bias."""
    if max_bias <= 0:
        return np.ones(n_heads)
    power = 2 ** int(np.floor(np.log2(n_heads)))
    m0, m1 = 2.0 ** (-max_bias / power), 2.0 ** (-max_bias / 2 / power)
    return np.array([m0 ** (h + 1) if h < power else m1 ** (2 * (h - power) + 1) for h in range(n_heads)])
