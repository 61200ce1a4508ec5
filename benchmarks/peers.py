"""The same weights in other engines: transformers on PyTorch, llama.cpp, and the loop without a cache.

    pip install -r benchmarks/requirements.txt
    python benchmarks/peers.py models/target models/1558M

Each engine runs in a process of its own, on as many threads as there are cores, all in float32, in turn; then again.
Seconds per forward pass after CONTEXT cached tokens, medians. "naive" is what a first version does: x @ w, and the
whole prefix at each step (picoGPT, and J. Mody's blog post on speculative sampling).
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from utils import load_hparams_and_params

CONTEXT, REPETITIONS, PASSES = 32, 9, 2
THREADS = len(os.sched_getaffinity(0))


def ours(directory, hparams, params):
    from gpt2 import GPT2

    net = GPT2(params, hparams)

    def forward(ids, n_new):
        if n_new == len(ids):
            net.forget()
        return net(ids, 1 if n_new == len(ids) else n_new)

    return forward


def naive(directory, hparams, params):
    """Every position anew in each pass, with plain matrix products; logits of all positions."""
    import gpt2

    params = as_float32(params)

    def forward(ids, n_new):
        def heads(x):
            return x.reshape(len(x), hparams["n_head"], -1).swapaxes(0, 1)

        def linear(x, w, b):
            return x @ w + b

        x = params["wte"][ids].astype(np.float32) + params["wpe"][: len(ids)]
        mask = np.triu(np.full((len(ids), len(ids)), -1e10, dtype=np.float32), 1)
        for block in params["blocks"]:
            qkv = linear(gpt2.layer_norm(x, **block["ln_1"]), **block["attn"]["c_attn"])
            q, k, v = map(heads, np.split(qkv, 3, axis=-1))
            weights = gpt2.softmax_weights(q @ k.swapaxes(1, 2) / np.float32(q.shape[-1] ** 0.5) + mask)
            out = weights / weights.sum(axis=-1, keepdims=True) @ v
            x = x + linear(out.swapaxes(0, 1).reshape(x.shape), **block["attn"]["c_proj"])
            hidden = gpt2.gelu(linear(gpt2.layer_norm(x, **block["ln_2"]), **block["mlp"]["c_fc"]))
            x = x + linear(hidden, **block["mlp"]["c_proj"])
        return (gpt2.layer_norm(x, **params["ln_f"]) @ params["wte"].T)[-n_new:]

    return forward


def as_float32(tree):
    if isinstance(tree, np.ndarray):
        return tree.astype(np.float32)
    if isinstance(tree, list):
        return list(map(as_float32, tree))
    return {name: as_float32(branch) for name, branch in tree.items()}


def transformers(directory, hparams, params):
    import torch
    from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

    torch.set_num_threads(THREADS)
    sizes = {name: hparams[name] for name in ("n_embd", "n_layer", "n_head")}
    with torch.device("meta"):
        model = GPT2LMHeadModel(GPT2Config(vocab_size=hparams["n_vocab"], n_positions=hparams["n_ctx"], **sizes))
    state = {}
    for name in model.state_dict():
        leaf = params
        path = name.removeprefix("transformer.").replace("lm_head", "wte").split(".")
        for part in path:
            if part == "h":
                leaf = leaf["blocks"]
            elif part.isdigit():
                leaf = leaf[int(part)]
            elif part in ("weight", "bias"):
                if isinstance(leaf, dict):
                    leaf = leaf["b" if part == "bias" else "w" if "w" in leaf else "g"]
            else:
                leaf = leaf[part]
        state[name] = torch.from_numpy(leaf.astype(np.float32))
    model.load_state_dict(state, assign=True)
    model.tie_weights()
    model.eval()
    cache = DynamicCache()

    @torch.inference_mode()
    def forward(ids, n_new):
        if (n_surplus := cache.get_seq_length() - (len(ids) - n_new)) > 0:
            cache.crop(-n_surplus)
        new = torch.from_numpy(ids[cache.get_seq_length() :])[None]
        return model(new, past_key_values=cache, logits_to_keep=1 if n_new == len(ids) else n_new).logits[0].numpy()

    return forward


def llama_cpp(directory, hparams, params):
    import gguf
    import llama_cpp

    writer = gguf.GGUFWriter(None, "gpt2")
    writer.add_block_count(hparams["n_layer"])
    writer.add_context_length(hparams["n_ctx"])
    writer.add_embedding_length(hparams["n_embd"])
    writer.add_feed_forward_length(4 * hparams["n_embd"])
    writer.add_head_count(hparams["n_head"])
    writer.add_layer_norm_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"<{i}>" for i in range(hparams["n_vocab"])])
    writer.add_token_merges(["a b"])

    def add(name, array):
        writer.add_tensor(name, np.ascontiguousarray(array, dtype=np.float32))

    add("token_embd.weight", params["wte"])
    add("position_embd.weight", params["wpe"])
    norms = {"output_norm": params["ln_f"]}
    for i, block in enumerate(params["blocks"]):
        norms |= {f"blk.{i}.attn_norm": block["ln_1"], f"blk.{i}.ffn_norm": block["ln_2"]}
        layers = {"attn_qkv": block["attn"]["c_attn"], "attn_output": block["attn"]["c_proj"]}
        layers |= {"ffn_up": block["mlp"]["c_fc"], "ffn_down": block["mlp"]["c_proj"]}
        for name, layer in layers.items():
            add(f"blk.{i}.{name}.weight", layer["w"].T)
            add(f"blk.{i}.{name}.bias", layer["b"])
    for name, norm in norms.items():
        add(f"{name}.weight", norm["g"])
        add(f"{name}.bias", norm["b"])
    with tempfile.TemporaryDirectory() as work:  # the file stays mapped when its name is gone
        path = os.path.join(work, "model.gguf")
        writer.write_header_to_file(path)
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        llama = llama_cpp.Llama(
            path, n_ctx=hparams["n_ctx"], n_batch=hparams["n_ctx"], n_ubatch=hparams["n_ctx"], n_threads=THREADS,
            n_threads_batch=THREADS, logits_all=True, verbose=False,
        )  # fmt: skip

    def forward(ids, n_new):
        llama.n_tokens = min(llama.n_tokens, len(ids) - n_new)
        llama.eval(ids[llama.n_tokens :].tolist())
        return llama.scores[len(ids) - n_new : len(ids)]

    return forward


PACKAGES = {"transformers": "transformers", "llama.cpp": "llama_cpp"}  # left out where they are not installed
ENGINES = {"ours": ours, "transformers": transformers, "llama.cpp": llama_cpp, "naive": naive}


def measure(engine, directory):
    """{case: seconds per pass} of one engine, and the logits of one pass, so that all can be held together."""
    hparams, params = load_hparams_and_params(directory)
    forward = ENGINES[engine](directory, hparams, params)
    n_prompt = min(512, hparams["n_ctx"] - 9)
    ids = np.random.default_rng(0).integers(hparams["n_vocab"], size=hparams["n_ctx"])
    cases = {f"{n} row{'s' * (n > 1)}": (CONTEXT + n, n) for n in (1, 5)}
    cases |= {"prompt": (n_prompt, n_prompt)}
    times = {}
    for name, (n, n_new) in cases.items():
        ts = []
        n_repetitions = 2 if engine == "naive" or (name == "prompt" and hparams["n_layer"] > 12) else REPETITIONS
        for _ in range(n_repetitions + 1):
            if n_new < n:
                forward(ids[: n - n_new], n - n_new)
            begun = time.perf_counter()
            logits = forward(ids[:n], n_new)
            ts.append(time.perf_counter() - begun)
        times[name] = np.median(ts[1:])
        if name == "5 rows":
            sample = logits[:, :5].tolist()
    return times, sample


def main():
    if sys.argv[1:2] == ["--engine"]:
        print(json.dumps(measure(*sys.argv[2:])))
        return
    engines = [e for e in ENGINES if e not in PACKAGES or importlib.util.find_spec(PACKAGES[e])]
    for directory in sys.argv[1:] or sys.exit(__doc__):
        times, samples = {engine: [] for engine in engines}, {}
        for _ in range(PASSES):
            for engine in engines:
                command = [sys.executable, __file__, "--engine", engine, directory]
                output = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
                seconds, samples[engine] = json.loads(output.strip().split("\n")[-1])
                times[engine].append(seconds)
        for engine, sample in samples.items():
            assert np.abs(np.subtract(sample, samples["ours"])).max() < 1e-2, f"{engine} computes another model"
        print(f"\n{directory}, {THREADS} threads, float32\n")
        print("| | 1 row, ms | 5 rows | 5 to 1 | prompt | ours to it: 1 row | 5 rows | prompt |\n" + "| --- " * 8 + "|")
        median = {e: {case: np.median([t[case] for t in ts]) for case in ts[0]} for e, ts in times.items()}
        for engine, t in median.items():
            ratios = [median["ours"][case] / t[case] for case in t]
            print(
                f"| {engine} | {t['1 row'] * 1e3:.2f} | {t['5 rows'] * 1e3:.2f} | {t['5 rows'] / t['1 row']:.2f} "
                f"| {t['prompt'] * 1e3:.0f} | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |"
            )


if __name__ == "__main__":
    main()
