"""GPT-2's forward pass as picoGPT writes it: no cache, no tricks. The rest of fast/ computes the same, sooner."""

import math

import numpy as np


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def softmax(x):
    exp_x = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return exp_x / np.sum(exp_x, axis=-1, keepdims=True)


def layer_norm(x, g, b, eps=1e-5):
    mean, variance = np.mean(x, axis=-1, keepdims=True), np.var(x, axis=-1, keepdims=True)
    return g * (x - mean) / np.sqrt(variance + eps) + b


def linear(x, w, b):  # [n_seq, n_in], [n_in, n_out], [n_out] -> [n_seq, n_out]
    return x @ w + b


def ffn(x, c_fc, c_proj):  # [n_seq, n_embd] -> [n_seq, n_embd]
    return linear(gelu(linear(x, **c_fc)), **c_proj)


def attention(q, k, v, mask):  # three times [n_seq, d], [n_seq, n_seq] -> [n_seq, d]
    return softmax(q @ k.T / math.sqrt(q.shape[-1]) + mask) @ v


def mha(x, c_attn, c_proj, n_head):  # [n_seq, n_embd] -> [n_seq, n_embd]
    qkv = linear(x, **c_attn)  # [n_seq, n_embd] -> [n_seq, 3*n_embd]
    q, k, v = (np.split(part, n_head, axis=-1) for part in np.split(qkv, 3, axis=-1))  # three times n_head [n_seq, d]
    mask = (1 - np.tri(len(x), dtype=x.dtype)) * -1e10  # no position sees a later one
    heads = [attention(*head, mask) for head in zip(q, k, v, strict=True)]
    return linear(np.hstack(heads), **c_proj)  # [n_seq, n_embd] -> [n_seq, n_embd]


def plain_gpt2(ids, params, n_head):  # [n_seq] -> [n_seq, n_vocab]
    x = params["wte"][ids] + params["wpe"][: len(ids)]  # [n_seq] -> [n_seq, n_embd]
    for block in params["blocks"]:
        x = x + mha(layer_norm(x, **block["ln_1"]), **block["attn"], n_head=n_head)
        x = x + ffn(layer_norm(x, **block["ln_2"]), **block["mlp"])
    return layer_norm(x, **params["ln_f"]) @ params["wte"].T  # [n_seq, n_embd] -> [n_seq, n_vocab]
